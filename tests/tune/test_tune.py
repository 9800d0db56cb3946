"""Tuning with boards whose timings are known."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold.cli.common import read_graph
from microfold.compiler import compile_graph
from microfold.errors import InputError, ToolError, UnsupportedModelError
from microfold.frontend.tflite import load
from microfold.ir.text import parse
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.tune.costs import load_costs
from microfold.tune.database import Database
from microfold.tune.measure import Runner
from microfold.tune.space import Compiled, Subject, most_promising, proposals, rounds
from microfold.tune.text import print_tuning
from microfold.tune.tune import Tuner, Tuning
from microfold.workers.dispatch import STRIKES
from microfold.workers.executor import Executor
from tests.cli.test_passes import CNN
from tests.kernels import graphs
from tests.tune.stubs import InlineExecutor, StubRunner, describe, stub_cycles, subject, variants

# Few kernels compute it: tuning builds a program for every one of them.
GRAPH = graphs.conv2d_graph(4, 4, 8, 8, (1, 1))
MODEL = subject(GRAPH, optimize="speed")  # at which the fewest cycles are the best choice


def tune(
    path: Path,
    of: Subject = MODEL,
    executor: Executor | None = None,
    runner: Runner | None = None,
    lanes: Sequence[str] = ("a",),
    *,
    candidates: int = 99,
    retry: bool = False,
    max_trials: int | None = None,
    layers: Sequence[str] = (),
) -> Tuning:
    with Database(path, create=True) as database:
        executor, runner = executor or InlineExecutor(), runner or StubRunner()
        return Tuner(
            executor,
            runner,
            lanes,
            database,
            candidates=candidates,
            max_trials=max_trials,
            layers=layers,
            retry=retry,
        ).tune(of)


def text(path: Path) -> str:
    with Database(path) as database:
        return database.export()


def measured(path: Path) -> list[str]:
    with Database(path) as database:
        return variants(database)


def known_best(of: Subject) -> list[int]:
    """The fewest cycles of each layer that the proposals have, each forced alone."""
    found: list[int] = []
    for number, layer in Compiled(of).layers.items():
        programs = [Compiled(of, {number: variant}).program for variant in proposals(layer, 99)]
        found.append(min(stub_cycles(describe(program.layers[number])) for program in programs))
    return found


def test_the_best_choice_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    tuning = tune(path)
    (layer,) = tuning.layers
    assert layer.variants > 2
    assert [layer.cycles_after] == known_best(MODEL)
    assert tuning.total_after == layer.cycles_after
    assert tuning.total_before == layer.cycles_before > layer.cycles_after
    costs = load_costs(path, MODEL.target, MODEL.options)
    program = compile_graph(parse(MODEL.text), MODEL.target, MODEL.options, costs=costs)
    assert stub_cycles(describe(program.layers[0])) == program.layers[0].measured_cycles == layer.cycles_after
    assert program.measured_on == "stub@1000000/warm"


def test_progress_never_goes_back(tmp_path: Path) -> None:
    """Programs are measured in several steps; each adds to those that there are."""
    seen: list[tuple[int, int]] = []
    with Database(tmp_path / "a.db", create=True) as database:
        tuner = Tuner(
            InlineExecutor(),
            StubRunner(),
            ["a"],
            database,
            progress=lambda done, total: seen.append((done, total)),
        )
        tuning = tuner.tune(MODEL)
    assert seen == sorted(seen) and all(done <= total for done, total in seen)
    assert seen[-1] == (tuning.programs, tuning.programs) and len({total for _, total in seen}) > 1


def test_what_is_known_is_not_measured_again(tmp_path: Path) -> None:
    first, again = InlineExecutor(), InlineExecutor()
    tune(tmp_path / "a.db", executor=first)
    before = text(tmp_path / "a.db")
    tuning = tune(tmp_path / "a.db", executor=again)
    assert len(again.done) == 0 < len(first.done)
    assert text(tmp_path / "a.db") == before
    assert [layer.cycles_after for layer in tuning.layers] == [tuning.total_after] == known_best(MODEL)


def test_an_interrupted_tuning_goes_on(tmp_path: Path) -> None:
    tune(tmp_path / "whole.db")
    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path / "parts.db", executor=InlineExecutor(interrupted=3))
    rest = InlineExecutor()
    tuning = tune(tmp_path / "parts.db", executor=rest)
    assert [layer.cycles_after for layer in tuning.layers] == known_best(MODEL)
    assert measured(tmp_path / "whole.db") == measured(tmp_path / "parts.db")


def test_lost_work_is_repeated(tmp_path: Path) -> None:
    tune(tmp_path / "whole.db")
    tune(tmp_path / "lost.db", executor=InlineExecutor(dying=2))
    assert text(tmp_path / "whole.db") == text(tmp_path / "lost.db")


def test_what_always_dies_is_given_up(tmp_path: Path) -> None:
    tuning = tune(tmp_path / "a.db", executor=InlineExecutor(dying=10_000))
    assert tuning.total_before is None
    assert all("3 times" in reason for reason in tuning.left_out)
    assert not any("by rows" in reason for reason in tuning.left_out)  # there is nothing to compare with


def test_a_board_that_fails_is_left_out(tmp_path: Path) -> None:
    tune(tmp_path / "one.db")
    executor = InlineExecutor(3)
    runner = StubRunner({"b": "hangs"})
    tuning = tune(tmp_path / "three.db", executor=executor, runner=runner, lanes="abc")
    assert dict(tuning.boards_lost) == {"b": "the board hangs"}
    assert executor.done.count("b") <= STRIKES + 1  # and what others can do
    assert text(tmp_path / "one.db") == text(tmp_path / "three.db")
    with pytest.raises(ToolError, match=r"none is left .*; 0 of \d+ programs are"):
        tune(tmp_path / "none.db", runner=runner, lanes="b")


@pytest.mark.slow
def test_a_kernel_that_every_board_fails_with_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That alone, also of programs with several; and another run does not try it again, unless it is to."""
    model = subject(read_graph(CNN)[0])
    runner = StubRunner(poison="s8_conv2d__dsp_compact_packed")
    first = tune(tmp_path / "a.db", model, runner=runner)
    assert first.boards_lost == {}
    assert first.total_after is not None
    assert all(reason.startswith("s8_conv2d__dsp_compact_packed") for reason in first.left_out)
    assert all(reason.endswith("the board fails with it, 3 times") for reason in first.left_out)
    assert len(first.left_out) > 0
    # Without that kernel, another program is the best one, which is measured now.
    second = tune(tmp_path / "a.db", model, runner=runner)
    first = replace(first, total_after=second.total_after)
    executor = InlineExecutor()
    again = tune(tmp_path / "a.db", model, runner=runner, executor=executor)
    assert (executor.done, again.left_out, again.failed_before) == ([], [], first.left_out)
    assert again.total_after == first.total_after
    print_tuning("model", [again], tmp_path / "a.db")
    assert f"{len(first.left_out)} program that failed before; --retry" in capsys.readouterr().out
    retried = tune(tmp_path / "a.db", model, runner=runner, retry=True)
    assert (retried.left_out, retried.failed_before) == (first.left_out, [])
    tune(tmp_path / "all.db", model)
    every = measured(tmp_path / "all.db")
    assert measured(tmp_path / "a.db") == [
        v for v in every if not v.startswith("s8_conv2d__dsp_compact_packed")
    ]


def test_what_boards_fail_with_is_not_in_builds(tmp_path: Path) -> None:
    """Not even what estimates choose; and where nothing else computes a layer, that is said."""
    estimated = compile_graph(GRAPH, MODEL.target, MODEL.options).layers[0].kernel.name
    path = tmp_path / "a.db"
    tuning = tune(path, runner=StubRunner(poison=f"{estimated} ", faults=True))
    assert tuning.total_before is None and tuning.total_after is not None
    costs = load_costs(path, MODEL.target, MODEL.options)
    (layer,) = compile_graph(parse(MODEL.text), MODEL.target, MODEL.options, costs=costs).layers
    assert layer.kernel.name != estimated and layer.measured_cycles == tuning.total_after
    (refused,) = (each for each in layer.candidates if each.kernel.name == estimated)
    assert refused.reason is not None
    assert re.fullmatch(r"it failed on stub@1000000/warm \(.*: it faults\); .* --retry.*", refused.reason)
    nothing = MeasuredCosts({}, "stub", _Everything("it hangs"))
    with pytest.raises(UnsupportedModelError, match=r"it failed on stub .it hangs"):
        compile_graph(GRAPH, MODEL.target, MODEL.options, costs=nothing)


class _Everything(dict[tuple[str, str], str]):
    """One reason for all kernels."""

    def __init__(self, reason: str):
        super().__init__({("", ""): reason})
        self._reason = reason

    def get(self, key: object, default: object = None) -> str:  # type: ignore[override]
        del key, default
        return self._reason


def test_levels_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    def tuning(level: str, total: int | None) -> Tuning:
        return Tuning(level, "stub", [], total, total, ram=700, flash=3000, estimate=123_456)

    found = [tuning("size", 400), tuning("balanced", 300), tuning("speed", 300)]
    print_tuning("model", found, Path("a.db"))
    assert "the least time: --optimize balanced and speed, 300 cycles" in capsys.readouterr().out
    print_tuning("model", [found[0], tuning("speed", None)], Path("a.db"))
    out = capsys.readouterr().out
    assert "the least time of the levels that were measured: --optimize size, 400 cycles" in out
    assert re.search(r"speed +123,456 +estimated +3,000 +700", out)
    print_tuning("model", found[:1], Path("a.db"))
    assert "least time" not in capsys.readouterr().out


def test_budgets_hold_throughout(tmp_path: Path) -> None:
    """Variants that do not fit are neither measured nor chosen; the best of those that do is found."""
    budget = compile_graph(GRAPH, MODEL.target, subject(GRAPH, optimize="size").options).arena.size
    of = subject(GRAPH, optimize="speed", ram=budget)
    tuning = tune(tmp_path / "a.db", of)
    assert tuning.ram <= budget
    (layer,) = Compiled(of).layers.values()
    sizes = {v: Compiled(of, {0: v}).program.arena.size for v in proposals(layer, 99)}
    assert min(sizes.values()) <= budget < max(sizes.values())
    with Database(tmp_path / "a.db") as database:
        (setting,) = database.settings()
        # The same layer by rows has other kinds.
        known = [each.variant for each in database.records(setting) if each.layer == layer.key]
    assert {*known} == {variant for variant, size in sizes.items() if size <= budget}
    too_large = {v: f"arena and state need {n} bytes of RAM; the limit is {budget}" for v, n in sizes.items()}
    assert {f"{v}: {too_large[v]}" for v, size in sizes.items() if size > budget} <= {*tuning.left_out}
    assert all("bytes of RAM; the limit is" in reason for reason in tuning.left_out)


def test_the_most_promising_come_first() -> None:
    layers = Compiled(subject(load(CNN))).layers
    wanted = most_promising(layers, set(), 99)
    times = {layer.key: layer.estimate(layer.chosen) for layer in layers.values()}
    first = [key for key, _ in wanted[: len(times)]]
    assert first == sorted(times, key=times.__getitem__, reverse=True)
    chosen = {(layer.key, layer.chosen) for layer in layers.values()}
    assert {*wanted[: len(times)]} == chosen
    assert most_promising(layers, chosen, 99) == wanted[len(times) :]


def test_a_budget_of_trials(tmp_path: Path) -> None:
    """The variants that estimates and measurements choose are measured anyway; others cost a trial each."""
    (layer,) = Compiled(MODEL).layers.values()
    others = [variant for variant in proposals(layer, 99) if variant != layer.chosen]
    tune(tmp_path / "a.db", max_trials=1)
    few = measured(tmp_path / "a.db")
    assert {layer.chosen, others[0]} <= {*few}
    # What is known costs nothing: tuning goes on.
    tune(tmp_path / "a.db", max_trials=len(others))
    assert len(few) < len(measured(tmp_path / "a.db")) >= len(others) + 1


def test_only_some_layers(tmp_path: Path) -> None:
    of = subject(load(CNN))
    compiled = Compiled(of)
    tune(tmp_path / "a.db", of, layers=("softmax", "2"), candidates=2)
    with Database(tmp_path / "a.db") as database:
        (setting,) = database.settings()
        known = [(each.layer, each.variant) for each in database.records(setting)]
    tuned = {compiled.named["softmax"].key, compiled.named["conv2d_1_2"].key}
    others = [(layer.key, layer.chosen) for layer in compiled.layers.values() if layer.key not in tuned]
    assert {pair for pair in known if pair[0] not in tuned} >= {*others}
    assert len(known) > len(compiled.layers)
    with pytest.raises(InputError, match="unknown layer or operator 'nope'; layers: conv2d_1, "):
        tune(tmp_path / "b.db", of, layers=("nope",))


def test_layers_of_one_kind_share_their_rounds() -> None:
    """Two equal layers: half as many programs."""
    layers = Compiled(MODEL).layers
    twice = dict(enumerate([*layers.values(), *layers.values()]))
    alone, shared = rounds(layers, set(), 99), rounds(twice, set(), 99)
    assert len(shared) == (len(alone) + 1) // 2
    assert sorted(itertools.chain(*[each.values() for each in shared])) == sorted(
        itertools.chain(*[each.values() for each in alone])
    )


def test_layers_are_given_variants_that_they_have() -> None:
    """Of two layers of one kind, one lacks all but the first variant: its constants do not allow them."""
    (layer,) = Compiled(MODEL).layers.values()
    fewer = replace(layer, variants=dict([*layer.variants.items()][:1]))
    found = rounds({0: layer, 1: fewer}, set(), 99)
    assert {each[1] for each in found if 1 in each} <= fewer.variants.keys()
    assert sorted(itertools.chain(*[each.values() for each in found])) == sorted(proposals(layer, 99))
