"""The C of every core that has models of its intrinsics, under sanitizers and against the reference."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from microfold import target
from microfold.compiler import compile_file
from microfold.simulate.toolchain import ARM_COMPILER
from tests.codegen import sweep
from tests.codegen.builds import write_sources
from tests.codegen.host_cores import assert_exact
from tests.needs import need_sanitizers, need_tools
from tests.sampling import sampled_rows

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
# Of targets with the same kernels, one.
CORES = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33")
CHUNKS = 9
EVERY = 3  # of so many models one: most differ from their neighbours in types or scales only
RUNS = 5  # input sets: the lowest and highest values, zero, and random ones


@pytest.mark.parametrize("core", ["cortex-m0plus", pytest.param("cortex-m7", marks=pytest.mark.slow)])
def test_example(core: str) -> None:
    need_sanitizers("gcc", "-m32")
    assert_exact(compile_file(EXAMPLE, target.load(core)), RUNS)


@pytest.mark.parametrize("core", ["cortex-m4", pytest.param("cortex-m0plus", marks=pytest.mark.slow)])
def test_no_assembly_is_left(core: str, tmp_path: Path) -> None:
    """With MF_NO_ASM; GCC writes a comment with the line in front of each statement."""
    need_tools(ARM_COMPILER)
    program = compile_file(EXAMPLE, target.load(core))
    (source, *_) = write_sources(program, tmp_path)
    command = [ARM_COMPILER, *program.target.cpu_flags, "-std=c99", "-O2", "-S", source, "-o", "-"]
    for macro in ([], ["-DMF_NO_ASM"]):
        listing = subprocess.run(
            [*command, *macro], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        assert bool(re.search(r'^@ \d+ "', listing, re.MULTILINE)) is not bool(macro)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("core", "chunk"), sampled_rows(((core, chunk) for chunk in range(CHUNKS) for core in CORES), 22)
)
def test_bundled_models(core: str, chunk: int) -> None:
    """Every program that has a function or a helper that none before had, at every level."""
    need_sanitizers("gcc", "-m32")
    paths = sorted(sweep.MODELS.rglob("*.tflite"))[::EVERY][chunk::CHUNKS]
    checked = 0
    for source in sweep.sources(paths, target.load(core), sweep.LEVELS):
        assert_exact(source.program, RUNS)
        checked += 1
    assert checked > len(paths) // 4
