"""Tuning layers that are computed by rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from microfold.compiler import compile_graph
from microfold.ir.text import parse
from microfold.tune.costs import load_costs
from microfold.tune.database import Database
from microfold.tune.measure import Job, SimulatedRunner, measure
from microfold.tune.space import Compiled, Subject
from microfold.tune.text import print_tuning
from microfold.tune.tune import Tuner
from microfold.verification.verify import input_sets, verify
from tests.needs import CROSS_TOOLS
from tests.plan.stream.nets import Nets
from tests.tune.stubs import InlineExecutor, StubRunner, subject

WAYS: list[dict[str, Any]] = [{"io": "rows"}, {"io": "rows", "ram": 300}]


def model(core: str = "cortex-m4", **options: Any) -> Subject:
    return subject(Nets(8).draw(), core, **options)


@pytest.mark.slow
@pytest.mark.parametrize("options", WAYS, ids=["any", "limit"])
def test_kernels_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any]
) -> None:
    """Each of them a call, and builds take the best ones."""
    of, path = model(**options), tmp_path / "a.db"
    with Database(path, create=True) as database:
        tuning = Tuner(InlineExecutor(), StubRunner(), "a", database, candidates=4).tune(of)
    assert tuning.total_before is not None and tuning.total_after is not None
    changed = any(layer.after != layer.before for layer in tuning.layers)
    assert tuning.total_after <= tuning.total_before
    assert (tuning.total_after < tuning.total_before) == changed
    assert any(layer.variants > 1 for layer in tuning.layers)
    costs = load_costs(path, of.target, of.options)
    program = compile_graph(parse(of.text), of.target, of.options, costs=costs)
    assert program.stream is not None
    measured = [layer for layer in program.layers if layer.measured_cycles is not None]
    for layer in measured:
        took = StubRunner().layer_cycles(layer)
        assert layer.measured_cycles == pytest.approx(took, abs=len(layer.rows or (0,)))
    assert [layer.name for layer in measured] == [layer.name for layer in tuning.layers]
    print_tuning("model", [tuning], path)
    assert all(layer.name in capsys.readouterr().out for layer in tuning.layers[:1])


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
def test_forced_kernels_give_the_same_bits() -> None:
    of = model(io="rows")
    layers = Compiled(of).layers
    every = [(number, variant) for number, layer in layers.items() for variant in layer.variants]
    for number, variant in every[::4]:
        compiled = Compiled(of, {number: variant})
        program = compiled.program
        assert compiled.taken(program.layers[number]) == variant
        calls = input_sets([buffer.type for buffer in program.inputs], 4)
        assert verify(program, calls).exact


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
def test_rows_that_are_moved_are_no_layers_time() -> None:
    outcome = measure(SimulatedRunner(), Job(model(io="rows"), code="base"), "")
    assert outcome.problem == ""
    compiled = Compiled(model(io="rows"))
    calls = {layer.key: layer.runs for layer in compiled.layers.values()}
    for record in outcome.records:
        assert record.cycles == pytest.approx(record.estimate, rel=0.5), record.variant
    assert sum(record.cycles * calls[record.layer] for record in outcome.records) < outcome.total
