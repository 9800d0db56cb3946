"""Code of bundled models compiled for size stays within what it was.

`pytest --update-golden` lowers the figures of `code_bounds.toml` to what is measured, and adds those that are
missing; it raises none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from microfold import target
from microfold.compiler import compile_file
from microfold.options import Options
from microfold.simulate.toolchain import ARM_COMPILER
from microfold.support.toml import read_toml
from microfold.support.tools import run_tool
from microfold.verification.measure import measure
from tests.counts import CORES, MODELS
from tests.needs import need_tools
from tests.sampling import sampled

FILE = Path(__file__).parent / "code_bounds.toml"
HEAD_ROOM = 0.02
# Other compilers than the one that the figures are from choose other instructions.
OTHER_COMPILER = 0.15
HEADER = "# Bytes of code at --optimize size, by core and bundled model: see test_code_bounds.py.\n"


def _save(compiler: str, bounds: dict[str, dict[str, int]]) -> None:
    text = f'{HEADER}compiler = "{compiler}"\n'
    for core, models in bounds.items():
        text += f"\n[{core}]\n" + "".join(f"{model} = {n:_}\n" for model, n in sorted(models.items()))
    FILE.write_text(text, encoding="utf-8")


def _code(model: str, core: str) -> int:
    measured = measure(compile_file(MODELS[model], target.load(core), Options(optimize="size")))
    assert measured is not None
    return measured.code


@pytest.mark.slow
@pytest.mark.parametrize("core", sampled(CORES, len(CORES)))
def test_code_stays_within_bounds(core: str, request: pytest.FixtureRequest) -> None:
    need_tools(ARM_COMPILER)
    compiler = run_tool(
        [ARM_COMPILER, "-dumpfullversion"], Path.cwd(), 10.0, "asking for its version"
    ).stdout.strip()
    bounds: dict[str, Any] = read_toml(FILE) if FILE.is_file() else {}
    recorded = bounds.pop("compiler", compiler)
    known: dict[str, int] = bounds.setdefault(core, {})
    found = {model: _code(model, core) for model in MODELS}
    if request.config.getoption("--update-golden"):
        known |= {model: min(n, known.get(model, n)) for model, n in found.items()}
        _save(compiler, bounds)
    room = 1 + (HEAD_ROOM if recorded == compiler else OTHER_COMPILER)
    larger = [
        f"{model} on {core}: at most {limit:,} bytes of code are allowed; there are {found[model]:,}"
        for model in MODELS
        if found[model] > (limit := int(known.get(model, 0) * room))
    ]
    assert not larger, "; ".join(larger)
