"""Rules of MISRA C:2012 that generated code breaks, by cppcheck's addon: ``python -m tests.tools.misra``.

The table of docs/misra.md, without the reasons: rule, how often it is broken, on which cores, a line of C.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file
from tests.codegen.macros import macro_options

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / "tests" / "models" / "made"
MODELS = (
    ROOT / "examples" / "digits" / "digits.tflite",
    *(MADE / f"{name}.tflite" for name in ("attn_int8", "dscnn_bn_int8", "stream_int8", "tcn1d_f32")),
)
CORES = ("cortex-m0plus", "cortex-m4", "cortex-m55")
# Assembly is no C: its twin is looked at.
CPPCHECK = ("cppcheck", "--addon=misra", "--enable=style", "--quiet", "--std=c99", "-DMF_NO_ASM")
CPPCHECK_AS_ARM = (*CPPCHECK, "--platform=arm32-wchar_t4", "--template={id}\t{file}\t{line}")


@dataclass
class Breaches:
    """Those of one rule.

    Attributes:
        example: a line of C, with the place.
    """

    count: int = 0
    cores: set[str] = field(default_factory=set)
    example: str = ""

    @property
    def magnitude(self) -> str:
        """The count, no more exactly than it means something."""
        return f"{10 ** (len(str(self.count)) - 1)}+"


def findings(model: Path, core: target.Target) -> list[tuple[str, str]]:
    """What cppcheck says of a model's C: the rule's number, and the line that breaks it."""
    macros = macro_options([core.compiler, *core.cpu_flags])
    with tempfile.TemporaryDirectory(prefix="microfold-") as folder:
        files = emit(compile_file(model, core)) | {"firmware.c": f'#include "{model.stem}_helpers.h"\n'}
        for name, text in files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        # The tables of weights lie in a file of their own, and have no code.
        command = [*CPPCHECK_AS_ARM, *macros, f"{model.stem}.c", "firmware.c"]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stderr
        found = re.findall(r"^misra-c2012-([\d.]+)\t(.+)\t(\d+)$", said, re.M)
        lines = {file: Path(folder, file).read_text(encoding="utf-8").splitlines() for _, file, _ in found}
        return [(rule, lines[file][int(line) - 1].strip()) for rule, file, line in found]


def survey(models: Iterable[Path], cores: Sequence[str] = CORES) -> dict[str, Breaches]:
    """The rules that are broken, in order."""
    rules: dict[str, Breaches] = {}
    for model in models:
        for name in cores:
            for rule, line in findings(model, target.load(name)):
                breaches = rules.setdefault(rule, Breaches(example=line))
                breaches.count += 1
                breaches.cores.add(name)
    return {rule: rules[rule] for rule in sorted(rules, key=lambda r: [*map(int, r.split("."))])}


def main() -> None:
    version = subprocess.run([CPPCHECK[0], "--version"], capture_output=True, text=True, check=True).stdout
    print(f"{version.strip()}; {len(MODELS)} models, {', '.join(CORES)}", file=sys.stderr)
    print("| rule | times | cores | e.g. |\n|---|---|---|---|")
    for rule, breaches in survey(MODELS).items():
        cores = ", ".join(core.removeprefix("cortex-") for core in CORES if core in breaches.cores)
        line = breaches.example.replace("|", "\\|")
        print(f"| {rule} | {breaches.magnitude} | {cores} | `{line}` |")


if __name__ == "__main__":
    main()
