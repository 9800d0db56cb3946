"""Static analysis of generated C, which must have no findings: clang --analyze, gcc -fanalyzer, cppcheck.

    python -m tools.analyze [--part 1/1] [--keep DIR]

On three targets, the models together use every function template that any bundled model uses. Part 2/4 is the
second of every four programs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file
from microfold.errors import UnsupportedModelError
from microfold.options import Options
from tests.codegen.macros import macro_options

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("host", "cortex-m4", "cortex-m55")
EXAMPLES = ("digits/digits", "sine/sine")
MODELS = (
    "control_flow/if_int8", "dscnn_bn_int8", "lt_attn_aeq_w4a8", "lt_attn_aeq_w8a16", "lt_attn_aeq_w8a8",
    "nchw_like_f32", "o2t_nchw_integer_quant_with_int16_act", "preact_bn_aeq_w4a8_pt", "stream_f32",
    "stream_int8", "tcn1d_int8", "zoo_f32", "zoo_int8", "ops/argmin_int8", "ops/bmm_f32", "ops/cumsum_f32",
    "ops/div_f32", "ops/dw_m2s2_f32", "ops/dw_m2s2_int8", "ops/gather_int8", "ops/l2norm_f32",
    "ops/l2norm_int8", "ops/layernorm_int8", "ops/log_softmax_f32", "ops/log_softmax_int8",
    "ops/maxpool3same_int16x8", "ops/min_int8", "ops/quant_dq_f32", "ops/resize_nn_int8", "ops/select_int8",
)  # fmt: skip
# Additional levels for some models, because they select other kernels.
GOALS = {"digits/digits": ("speed", "size"), "dscnn_bn_int8": ("speed", "size")}

# Accepted findings of cppcheck.
ACCEPTED = (
    "duplicateAssignExpression",  # several sums start with the same bias
    "invalidFunctionArg",  # logf(0) of an empty row, which does not occur
    "missingIncludeSystem",  # cppcheck has its own model of the C library
    "shiftNegativeLHS",  # right shift, as in the next one
    "shiftTooManyBitsSigned",  # GCC, Clang and all compilers for Arm shift arithmetically
)
# Use the C versions of assembly, because analysers would report results of assembly as uninitialised.
NO_ASSEMBLY = "-DMF_NO_ASM"


@dataclass(frozen=True)
class Build:
    """C files of one program, in a separate folder."""

    folder: Path
    target: target.Target
    sources: tuple[str, ...]


def programs() -> Iterator[tuple[Path, target.Target, str]]:
    """Yield every model with every target and optimisation level."""
    paths = {name: ROOT / "examples" / f"{name}.tflite" for name in EXAMPLES}
    paths |= {name: ROOT / "tests" / "models" / "made" / f"{name}.tflite" for name in MODELS}
    for name, path in paths.items():
        for core in map(target.load, TARGETS):
            for goal in ("balanced", *GOALS.get(name, ())):
                yield path, core, goal


def builds(folder: Path, part: int, parts: int) -> Iterator[Build]:
    """Yield the builds of one part; models that a target does not support are skipped."""
    for path, core, goal in islice(programs(), part - 1, None, parts):
        try:
            files = emit(compile_file(path, core, Options(optimize=goal)))
        except UnsupportedModelError:  # a model for another target
            continue
        place = folder / f"{path.stem}-{core.name}-{goal}"
        place.mkdir()
        for file, text in files.items():
            (place / file).write_text(text, encoding="utf-8")
        yield Build(place, core, tuple(sorted(file for file in files if file.endswith(".c"))))


def arm_headers() -> list[str]:
    """Return the folders in which Arm's gcc finds newlib's headers, for clang and cppcheck."""
    command = ["arm-none-eabi-gcc", "-xc", "-E", "-v", os.devnull]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    folders = listing.partition("search starts here:\n")[2].partition("End of search")[0].split()
    return [folder for folder in folders if Path(folder, "string.h").is_file()]


def commands(build: Build, newlib: Sequence[str]) -> list[list[str]]:
    """Return one command per analyser; each must succeed without output."""
    flags, simulated = list(build.target.cpu_flags), bool(build.target.board)
    clang = ["clang", "--analyze", "--analyzer-output", "text", "-std=c99", NO_ASSEMBLY]
    # A pointer that walks over weights is also advanced after the last ones.
    clang += ["-Xclang", "-analyzer-disable-checker", "-Xclang", "deadcode.DeadStores"]
    gcc = ["gcc", "-fanalyzer", "-std=c99", "-O1", NO_ASSEMBLY, "-c"]
    cppcheck = ["cppcheck", "--quiet", "--std=c99", NO_ASSEMBLY, "--enable=warning,performance,portability"]
    cppcheck += ["--error-exitcode=1", *(f"--suppress={name}" for name in ACCEPTED)]
    if simulated:
        clang += ["--target=arm-none-eabi", *flags, *(f"-isystem{folder}" for folder in newlib)]
        gcc = ["arm-none-eabi-gcc", *flags, *gcc[1:]]
        if build.target.has("mve"):
            # gcc does not see the effect of vector stores; clang does.
            gcc.append("-Wno-analyzer-use-of-uninitialized-value")
        cppcheck += ["--platform=arm32-wchar_t4", *macro_options(["arm-none-eabi-gcc", *flags])]
    else:
        cppcheck += ["--platform=unix64", *macro_options(["gcc"])]
    return [[*command, *build.sources] for command in (clang, gcc, cppcheck)]


def findings(build: Build, newlib: Sequence[str]) -> list[str]:
    found: list[str] = []
    for command in commands(build, newlib):
        done = subprocess.run(command, cwd=build.folder, capture_output=True, text=True, check=False)
        if done.returncode or done.stderr or done.stdout:
            found.append(f"{build.folder.name}: {command[0]} ({done.returncode})\n{done.stdout}{done.stderr}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="empty folder in which to keep the C files")
    parser.add_argument("--part", default="1/1", help="part of all programs, e.g. 2/4")
    arguments = parser.parse_args()
    keep, (part, parts) = arguments.keep, map(int, arguments.part.split("/"))
    newlib = arm_headers()
    count, faults = 0, 0
    with tempfile.TemporaryDirectory(prefix="microfold-") as temporary, ThreadPoolExecutor() as pool:
        folder = keep or Path(temporary)
        for found in pool.map(lambda build: findings(build, newlib), builds(folder, part, parts)):
            count += 1
            faults += len(found)
            for text in found:
                print(text)
            print(f"\r{count} programs", end="", file=sys.stderr)
    print(f"\n{count} programs: {faults} findings")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
