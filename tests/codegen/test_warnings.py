"""Generated C is silent under strict warnings: gcc and clang, this machine and every core."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from microfold import target
from microfold.program import Program
from tests.codegen.builds import STRICT, compile_sample, compiled_models, sample_graphs, write_sources
from tests.needs import need_tools

CORES = [name for name in target.available() if name != "host"]
MADE = Path(__file__).resolve().parents[1] / "models" / "made"


def silent(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr[:4000]


def arm_headers() -> list[str]:
    """Options by which clang finds newlib's headers where Arm's gcc does."""
    command = ["arm-none-eabi-gcc", "-xc", "-E", "-v", "/dev/null"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    folders = listing.partition("search starts here:\n")[2].partition("End of search")[0].split()
    return [f"-isystem{folder}" for folder in folders if Path(folder, "string.h").is_file()]


def check_core(programs: list[Program], core: str, folder: Path) -> None:
    """Compiles for a core with gcc, and with clang for the same instructions."""
    sources = [name for program in programs for name in write_sources(program, folder)]
    flags = target.load(core).cpu_flags
    silent(["arm-none-eabi-gcc", *flags, *STRICT, "-O2", "-c", *sources], folder)
    command = ["clang", "--target=arm-none-eabi", *flags, *arm_headers(), *STRICT]
    silent([*command, "-fsyntax-only", *sources], folder)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("optimize", ["-O0", "-O3"])
def test_host(compiler: str, optimize: str, tmp_path: Path) -> None:
    need_tools(compiler)
    programs = [compile_sample(name, graph) for name, graph in sample_graphs().items()]
    sources = [name for program in programs for name in write_sources(program, tmp_path)]
    silent([compiler, *STRICT, optimize, "-c", *sources], tmp_path)


@pytest.mark.parametrize("core", CORES)
def test_cores(core: str, tmp_path: Path) -> None:
    need_tools("arm-none-eabi-gcc", "clang")
    check_core([compile_sample(name, graph, core) for name, graph in sample_graphs().items()], core, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("core", CORES)
def test_made_models(core: str, tmp_path: Path) -> None:
    """Every third of the bundled models."""
    need_tools("arm-none-eabi-gcc", "clang")
    check_core(list(compiled_models(sorted(MADE.rglob("*.tflite"))[::3], core)), core, tmp_path)
