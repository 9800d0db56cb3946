"""Generated C under the address and undefined-behaviour sanitizers: no report for any input."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
import pytest

from microfold.codegen.literals import C_TYPES
from microfold.ir.types import DType
from microfold.program import Buffer, Program
from tests.codegen.builds import compile_sample, compiled_models, sample_graphs, write_sources
from tests.needs import need_sanitizers
from tests.sampling import quick, sampled

COMPILERS = ("gcc", "clang")
FLAGS = (
    "-g",
    "-O0",  # nothing is left out that would be a report; compilers take half the time
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)
CALLS = 6
CHUNKS = 12
EVERY = 3  # of so many models one: most differ from their neighbours in types or scales only
MADE = Path(__file__).resolve().parents[1] / "models" / "made"


def _tensor(buffer: Buffer, name: str, *, read: bool) -> dict[str, Any]:
    """What the main program fills, hands in, or both."""
    type = buffer.type
    kind = {DType.FLOAT32: "floats", DType.BOOL: "bools"}.get(type.dtype, "integers")
    return {
        "name": name,
        "kind": kind if read else "",
        "length": type.size,
        "size": type.dtype.itemsize,
        "element": C_TYPES[type.dtype],
        "given": buffer.region in ("input", "output"),
    }


def _model(program: Program) -> dict[str, Any]:
    tensors = [_tensor(b, f"input_{i}", read=True) for i, b in enumerate(program.inputs)]
    tensors += [_tensor(b, f"output_{i}", read=False) for i, b in enumerate(program.outputs)]
    return {"name": program.name, "tensors": tensors}


def check(programs: Iterable[Program], compiler: str, folder: Path) -> int:
    """Builds the programs into one executable and runs it; how many there were."""
    programs = list(programs)
    sources = [name for program in programs for name in write_sources(program, folder)]
    models = [_model(program) for program in programs]
    template = jinja2.Template(
        Path(__file__).with_name("sanitizer_main.c.j2").read_text(encoding="utf-8"), trim_blocks=True
    )
    (folder / "main.c").write_text(template.render(models=models, calls=CALLS), encoding="utf-8")
    command = [compiler, "-std=c99", *FLAGS, *sources, "main.c", "-lm", "-o", "check"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[:4000]
    environment = os.environ | {"UBSAN_OPTIONS": "print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=0"}
    run = subprocess.run(
        ["./check"], cwd=folder, capture_output=True, text=True, check=False, env=environment, timeout=500
    )
    assert run.returncode == 0 and not run.stderr, f"{run.stdout.splitlines()[-1:]}: {run.stderr[:4000]}"
    return len(programs)


@pytest.mark.parametrize("compiler", quick(COMPILERS))
def test_samples(compiler: str, tmp_path: Path) -> None:
    need_sanitizers(compiler)
    check([compile_sample(name, graph) for name, graph in sample_graphs().items()], compiler, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("chunk", sampled(range(CHUNKS), CHUNKS))
def test_made_models(chunk: int, tmp_path: Path) -> None:
    """Bundled models that compile, in chunks that share an executable; the compilers take turns."""
    compiler = COMPILERS[chunk % len(COMPILERS)]
    need_sanitizers(compiler)
    paths = sorted(MADE.rglob("*.tflite"))[::EVERY][chunk::CHUNKS]
    assert check(compiled_models(paths), compiler, tmp_path) > len(paths) // 2


@pytest.mark.exhaustive
@pytest.mark.timeout(1500)
@pytest.mark.skipif("MICROFOLD_MODELS" not in os.environ, reason="MICROFOLD_MODELS names no folder of models")
@pytest.mark.parametrize("compiler", COMPILERS)
def test_other_models(compiler: str, tmp_path: Path) -> None:
    """Some of them; the compilers take turns."""
    need_sanitizers(compiler)
    paths = sorted(Path(os.environ["MICROFOLD_MODELS"]).rglob("*.tflite"))[COMPILERS.index(compiler) :: 4]
    assert check(compiled_models(paths), compiler, tmp_path)
