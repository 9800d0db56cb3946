"""Executed instructions of bundled models stay within what they were.

`pytest --update-golden` lowers the figures of `instruction_bounds.toml` to what is counted, and adds those
that are missing; it raises none. Where a change is worth more instructions, its author raises them by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from microfold.simulate.toolchain import ARM_COMPILER
from microfold.support.toml import read_toml
from microfold.support.tools import run_tool
from tests.counts import CORES, MODELS, counts
from tests.needs import CROSS_TOOLS, need_tools

FILE = Path(__file__).parent / "instruction_bounds.toml"
HEAD_ROOM = 0.02
# Other compilers than the one that the figures are from choose other instructions.
OTHER_COMPILER = 0.1
HEADER = "# Instructions of one run, by simulated core and bundled model: see test_instruction_bounds.py.\n"


def _load() -> dict[str, Any]:
    return read_toml(FILE) if FILE.is_file() else {}


def _save(compiler: str, bounds: dict[str, dict[str, int]]) -> None:
    text = f'{HEADER}compiler = "{compiler}"\n'
    for core, models in bounds.items():
        text += f"\n[{core}]\n" + "".join(f"{model} = {n:_}\n" for model, n in sorted(models.items()))
    FILE.write_text(text, encoding="utf-8")


def _compiler() -> str:
    return run_tool(
        [ARM_COMPILER, "-dumpfullversion"], Path.cwd(), 10.0, "asking for its version"
    ).stdout.strip()


def _limit(known: int, same_compiler: bool) -> int:
    return int(known * (1 + (HEAD_ROOM if same_compiler else OTHER_COMPILER)))


@pytest.mark.slow
@pytest.mark.parametrize("core", CORES)
def test_instructions_stay_within_bounds(core: str, request: pytest.FixtureRequest) -> None:
    need_tools(*CROSS_TOOLS)
    bounds, compiler = _load(), _compiler()
    recorded = bounds.pop("compiler", compiler)
    known: dict[str, int] = bounds.setdefault(core, {})
    executed = {model: counts(model, core).executed for model in MODELS}
    if request.config.getoption("--update-golden"):
        known |= {model: min(n, known.get(model, n)) for model, n in executed.items()}
        _save(compiler, bounds)
    slower = [
        f"{model} on {core}: at most {limit:,} instructions are allowed; {executed[model]:,} were executed"
        for model in MODELS
        if executed[model] > (limit := _limit(known.get(model, 0), recorded == compiler))
    ]
    assert not slower, "; ".join(slower)
