"""Choices of whole programs: measured runs decide, and builds follow them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.cli.common import read_graph
from microfold.errors import ToolError
from microfold.options import Options
from microfold.passes.choices import PassChoice
from microfold.passes.context import PassContext
from microfold.tune.costs import load_plan
from microfold.tune.identity import program_key
from microfold.tune.plans import alternatives, best_plan
from microfold.tune.records import ProgramRecord
from microfold.tune.space import Compiled, Subject
from microfold.tune.tune import Tuning
from tests.cli.test_passes import CNN
from tests.command_line import succeed
from tests.tune.stubs import InlineExecutor, StubRunner, subject
from tests.tune.test_tune import text
from tests.tune.test_tune import tune as tune_all

GRAPH = read_graph(CNN)[0]
M4 = target.load("cortex-m4")
FAST, SLOW = StubRunner(by_rows=100), StubRunner(by_rows=10_000_000)


def tune(path: Path, of: Subject, runner: StubRunner, executor: InlineExecutor | None = None) -> Tuning:
    """With the kernels as estimated."""
    return tune_all(path, of, executor, runner, candidates=1)


def model(**options: object) -> Subject:
    return subject(GRAPH, optimize="speed", **options)


def test_rows_are_taken_if_runs_of_them_are_faster(tmp_path: Path) -> None:
    """Against the estimates, which have whole tensors faster."""
    (choice,) = Compiled(model(), listing=True).choices
    assert choice.estimates["whole"] < choice.estimates["by rows"]
    tuning = tune(tmp_path / "a.db", model(), FAST)
    (found,) = tuning.choices
    assert (found.name, found.before, found.after, found.cycles["by rows"]) == (
        "layers",
        "whole",
        "by rows",
        100,
    )
    assert tuning.total_after == 100 < (tuning.total_before or 0)
    words = ("-t", "cortex-m4", "--optimize", "speed", "--database", tmp_path / "a.db")
    built = json.loads(succeed("build", CNN, *words, "-o", tmp_path / "c", "--json"))
    assert built["measured_choices"] == {"layers": "by rows"}
    assert built["measured_run"] == 100


@pytest.mark.slow
def test_rows_are_not_taken_if_runs_of_them_are_slower(tmp_path: Path) -> None:
    """Against the estimates, which have rows faster where the RAM is limited."""
    of = model(ram=700)
    base = Compiled(of, listing=True)
    assert base.program.stream is not None
    tuning = tune(tmp_path / "a.db", of, SLOW)
    (found,) = tuning.choices
    assert (found.before, found.after, found.cycles["by rows"]) == ("by rows", "whole", 10_000_000)
    assert tuning.total_before == 10_000_000
    assert len(tuning.layers) > 1  # their kernels are tuned, too
    words = ("-t", "cortex-m4", "--optimize", "speed", "--ram", 700, "--database", tmp_path / "a.db")
    built = succeed("build", CNN, *words, "-o", tmp_path / "c")
    assert "decided by measured runs: layers: whole" in built
    assert f"measured whole run: {tuning.total_after:,} cycles" in built
    assert tuning.ram <= 700


@pytest.mark.slow
def test_the_same_in_any_order_and_in_parts(tmp_path: Path) -> None:
    tune(tmp_path / "whole.db", model(), FAST)
    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path / "parts.db", model(), FAST, InlineExecutor(interrupted=1))
    tune(tmp_path / "parts.db", model(), FAST)
    again = InlineExecutor()
    tuning = tune(tmp_path / "parts.db", model(), FAST, again)
    assert (again.done, tuning.total_after) == ([], 100)
    plans = [
        load_plan(tmp_path / name, GRAPH, M4, model().options, PassContext())
        for name in ("whole.db", "parts.db")
    ]
    assert plans[0].trace == plans[1].trace == {"layers": "by rows"}


def test_choices_hold_for_what_was_measured_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    tune(path, model(), FAST)

    def trace(options: Options, graph: object = GRAPH, context: PassContext | None = None) -> object:
        return load_plan(path, graph, M4, options, context or PassContext()).trace  # type: ignore[arg-type]

    options = model().options
    assert trace(options) == {"layers": "by rows"}
    assert trace(replace(options, license="MIT"), replace(GRAPH, name="other")) == {"layers": "by rows"}
    assert trace(replace(options, ram=5000)) == {}
    assert trace(options, context=PassContext(disabled_pass=["fuse_ops"])) == {}
    (weights, array), *_ = GRAPH.constants.items()
    assert trace(options, replace(GRAPH, constants={**GRAPH.constants, weights: array + 1})) == {}
    other = replace(M4, features=M4.features | {"dual_issue", "late_loads"})
    assert program_key(GRAPH, other, options, PassContext()) != program_key(GRAPH, M4, options, PassContext())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runner", "deadly", "reason"),
    [
        (StubRunner(poison="by rows"), "", "the board fails with it, 3 times"),
        (StubRunner(poison="by rows", faults=True), "", "it faults"),
        (StubRunner(), "by rows", "it has died, 3 times"),
    ],
)
def test_what_fails_as_a_whole_is_not_tried_again(
    tmp_path: Path, runner: StubRunner, deadly: str, reason: str
) -> None:
    path, again = tmp_path / "a.db", InlineExecutor()
    tuning = tune(path, model(), runner, InlineExecutor(deadly=deadly))
    assert tuning.left_out == [f"layers: by rows; the kernels as estimated: {reason}"]
    assert tuning.choices[0].after == "whole"
    tuning = tune(path, model(), runner, again)
    assert (again.done, tuning.left_out, len(tuning.failed_before)) == ([], [], 1)


@pytest.mark.slow
def test_boards_that_are_gone_are_no_failures_of_programs(tmp_path: Path) -> None:
    """The last program fails wherever it is tried, since nothing works any more."""
    path, gone = tmp_path / "a.db", tmp_path / "gone"
    runner = StubRunner(poison="by rows", unplugged=gone)
    with pytest.raises(ToolError, match="was measured before, since layers: by rows; the kernels as"):
        tune(path, model(), replace(runner, unplugs=True))
    assert "the board fails" not in text(path)
    gone.unlink()
    tuning = tune(path, model(), replace(runner, poison="", by_rows=100))
    assert tuning.total_after == 100


def test_unlikely_alternatives_are_not_measured() -> None:
    choices = [
        PassChoice("one", {"a": 10.0, "b": 12.0, "c": 50.0}, "a"),
        PassChoice("two", {"a": 10.0, "b": 11.0}, "a"),
        PassChoice("three", {"a": 0.0, "b": 11.0}, "a"),
    ]
    assert alternatives(choices, 8) == [{"two": "b"}, {"one": "b"}]
    assert alternatives(choices, 1) == [{"two": "b"}]


def test_what_is_faster_must_be_worth_it() -> None:
    plain = ProgramRecord("p", "", "0", cycles=1000, ram=1000, flash=1000)

    def taken(options: Options, **changes: int) -> bool:
        other = replace(plain, trace='{"layers": "by rows"}', code="1", **changes)
        return best_plan([plain, other], options).trace != {}

    for level in ("size", "balanced", "speed"):
        assert taken(Options(level), cycles=999)
        assert not taken(Options(level), cycles=1000)
    assert taken(Options("size"), cycles=900, flash=1029)
    assert not taken(Options("size"), cycles=900, flash=1031)
    assert taken(Options("size", ram=2000, flash=2000), cycles=500, ram=1901, flash=1901)
    assert taken(Options(), cycles=900, flash=1299)
    assert not taken(Options(), cycles=900, flash=1301)
    assert taken(Options(), cycles=900, ram=1299)
    assert not taken(Options(), cycles=900, ram=1301)
    assert taken(Options("speed"), cycles=999, ram=9000, flash=9000)
    assert best_plan([replace(plain, trace='{"layers": "by rows"}', cycles=1)], Options()).trace == {}
