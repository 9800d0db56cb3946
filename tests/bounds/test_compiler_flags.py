"""How many instructions generated code needs hangs little on compiler and flags, as its header says."""

from __future__ import annotations

import itertools
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_file
from microfold.simulate.program import simulator
from microfold.target import Target
from microfold.verification import verify
from tests.codegen.sweep import arm_headers
from tests.counts import MODELS
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled_rows

# What others than GCC with -O2 may need more. Less is no harm: -O3 saves up to a sixth in small layers.
SPREAD = 0.15
# Elementwise operators in vectors, of which this model has many in small layers, suffer from -Os.
VECTORS_FOR_SIZE = 0.3
CHOSEN = ("cnn_int8", "dscnn_bn_int8", "digits", "attn_int8")


def _instructions(model: str, core: Target, flag: str) -> int:
    program = compile_file(MODELS[model], core)
    calls = verify.input_sets([buffer.type for buffer in program.inputs], 4)[3:]
    with simulator(program, flag) as machine:
        return machine.run(calls, layers=False).instructions[0]


def _clang(core: Target, folder: Path) -> Target:
    """The core with a compiler that leaves the model to clang, and the harness and linking to gcc."""
    script = folder / "compiler"
    headers = " ".join(arm_headers())
    script.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        f'*" -c model/"*) exec clang --target=arm-none-eabi {headers} "$@" ;;\n'
        "esac\n"
        f'exec {core.compiler} "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return replace(core, compiler=str(script))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "core"),
    sampled_rows(itertools.product(CHOSEN, ["cortex-m4", "cortex-m55", "cortex-m0plus"]), 7),
)
def test_flags(model: str, core: str) -> None:
    need_tools(*CROSS_TOOLS)
    loaded = target.load(core)
    usual = _instructions(model, loaded, "-O2")
    for flag in ("-O3", "-Os"):
        vectors = flag == "-Os" and core == "cortex-m55" and model == "attn_int8"
        allowed = VECTORS_FOR_SIZE if vectors else SPREAD
        assert _instructions(model, loaded, flag) <= usual * (1 + allowed), flag


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "core"), sampled_rows(itertools.product(CHOSEN[1:3], ["cortex-m4", "cortex-m0plus"]), 3)
)
def test_clang(model: str, core: str, tmp_path: Path) -> None:
    need_tools(*CROSS_TOOLS, "clang")
    loaded = target.load(core)
    usual = _instructions(model, loaded, "-O2")
    assert _instructions(model, _clang(loaded, tmp_path), "-O2") <= usual * (1 + SPREAD)
