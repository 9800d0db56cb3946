"""Kernels by an objective: limits are kept, refusals are true, and more memory is never slower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph, explain_kernels
from microfold.errors import BudgetError, InputError
from microfold.frontend.tflite import load
from microfold.ir.graph import Graph
from microfold.ir.node import Node, make_node
from microfold.kernels.selection.objective import objective_of
from microfold.lowering.optimised import ImportedModel, optimised
from microfold.lowering.selection_result import MemoryEstimator
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.plan import arena
from microfold.plan.exact import PlacementSolution
from microfold.program import Program
from microfold.reporting.data import build_report
from microfold.reporting.kernels import describe_candidates
from microfold.reporting.terminal.build import print_build
from tests.command_line import refuse, succeed
from tests.frontend.models import MADE
from tests.kernels import graphs
from tests.kernels.cores import assert_exact
from tests.needs import CROSS_TOOLS, need_tools

BALANCED = "cycles=3,flash=1,ram=1"
FASTEST = "cycles=1"
MODELS = ["cnn_int8", "dscnn_bn_int16x8", "preact_bn_f32"]


def graph_of(name: str) -> Graph:
    return load(MADE / f"{name}.tflite")


def build(graph: Graph, core: str, objective: str, **options: object) -> Program:
    return compile_graph(graph, target.load(core), Options(objective=objective, **options))  # type: ignore[arg-type]


def cycles_of(program: Program) -> int:
    assert program.estimated_cycles is not None
    return program.estimated_cycles


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_more_memory_is_never_slower(name: str, core: str) -> None:
    graph = graph_of(name)
    free = build(graph, core, FASTEST)
    kept, slowest = free.state_size, cycles_of(free)
    for part in (0.9, 0.75, 0.6):
        limit = int(part * free.arena.size) + kept
        try:
            program = build(graph, core, FASTEST, ram=limit, rows="never")
        except BudgetError as refusal:
            least = refusal.least("ram")
            assert least is not None and least > limit
            program = build(graph, core, FASTEST, ram=least, rows="never")
            with pytest.raises(BudgetError):
                build(graph, core, FASTEST, ram=least - 8, rows="never")
            limit = least
        assert program.arena.size + program.state_size <= limit
        assert program.kernels_proved
        # Of each layer, cycles are rounded.
        assert cycles_of(program) >= slowest - len(program.layers)
        slowest = cycles_of(program)


def test_flash_counts_constants_and_code() -> None:
    graph = graph_of("cnn_int8")
    free = build(graph, "cortex-m4", FASTEST)
    with pytest.raises(BudgetError, match="constants and code must fit 100 bytes of flash") as refused:
        build(graph, "cortex-m4", FASTEST, flash=100)
    least = refused.value.least("flash")
    assert least is not None
    small = build(graph, "cortex-m4", FASTEST, flash=least)
    assert small.weight_bytes < least
    assert cycles_of(small) >= cycles_of(free)
    with pytest.raises(BudgetError):
        build(graph, "cortex-m4", FASTEST, flash=least - 1)


@pytest.mark.parametrize("objective", [FASTEST, BALANCED, "flash=1", "ram=1,cycles=0.01"])
def test_outputs_are_exact(objective: str) -> None:
    """With copies of functions beside shared ones, too."""
    for name in ("cnn_int8", "preact_bn_int8"):
        assert_exact(build(graph_of(name), "host", objective), 3)


@pytest.mark.slow
def test_simulated() -> None:
    need_tools(*CROSS_TOOLS)
    assert_exact(build(graph_of("preact_bn_int8"), "cortex-m4", BALANCED), 2)


def test_rewrites_of_the_graph_are_judged_by_the_objective() -> None:
    """Fused sums are taken where they are better, and the worse graph is no better than the taken one."""
    core, options = target.load("cortex-m4"), Options(objective=BALANCED)
    for name in ("preact_bn_int8", "preact_bn_f32"):
        graph = graph_of(name)
        arenas = MemoryEstimator(core, options)
        values: list[tuple[float, ...]] = []
        for disabled in ((), ("fuse_residual",)):
            model = optimised(ImportedModel(graph, core, options, PassContext(disabled_pass=disabled)))
            found = arenas.selected(model.graph).exact
            assert arenas.reference is not None
            values.append(objective_of(options).value(found.figures, arenas.reference))
        assert values[0] <= values[1]


def test_refusals_of_the_option() -> None:
    for text in ("cycles", "cycles=-1", "flash=1,flash=1", "speed=1", "cycles=inf", "cycles=0"):
        with pytest.raises(InputError, match="objective"):
            Options(objective=text)


@pytest.mark.parametrize("io", ["arena", "rows"])
def test_kernels_that_are_not_taken_say_so(io: str) -> None:
    options = Options(io=io)
    graph, core = graph_of("cnn_int8"), target.load("cortex-m4")
    chosen = [layer.kernel.name for layer in compile_graph(graph, core, options).layers]
    for explained, kernel in zip(explain_kernels(graph, core, options), chosen, strict=True):
        (first, *others) = describe_candidates(explained.layer, explained.candidates, explained.why_not)
        assert (first["kernel"], first["reason"]) == (kernel, None)
        reasons = [v["reason"] for each in (first, *others) for v in each["variants"]]
        assert reasons[0] is None
        assert all("by the objective" in reason for reason in reasons[1:])


def test_a_limit_that_estimates_kept_and_code_did_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = Options(objective=FASTEST, flash=5000)
    program = compile_graph(graph_of("cnn_int8"), target.load("host"), options)
    report = build_report(program, None)
    for code, over in ((10, False), (9000, True), (None, False)):
        flash = replace(report.flash, code=code, weights=100)
        print_build(program, replace(report, flash=flash), tmp_path)
        said = "9,100 bytes, over the limit of 5,000" in " ".join(capsys.readouterr().out.split())
        assert said == over


def test_a_program_for_other_solvers(tmp_path: Path) -> None:
    file = tmp_path / "choice.lp"
    model = MADE / "cnn_int8.tflite"
    succeed("kernels", model, "-t", "cortex-m4", "--objective", BALANCED, "--ram", "4K", "--dump-model", file)
    assert "layer0_s8_conv2d__dsp_4x2" in file.read_text()
    for path, options, why in (
        (file, ("--io", "rows"), "dump_model requires whole tensors"),
        (tmp_path / "choice.txt", ("--objective", FASTEST), "a .lp or .mps file"),
        (tmp_path / "nowhere" / "choice.lp", ("--objective", FASTEST), "No such file"),
    ):
        assert why in refuse("kernels", model, "-t", "cortex-m4", *options, "--dump-model", path)


def test_a_chain_of_equal_layers_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each output overlaps its input a little further, so that long runs need more than each call."""
    single = graphs.conv2d_graph(9, 11, 6, 6, padding=((1, 1), (1, 1)))
    (layer,) = single.nodes
    nodes: list[Node] = []
    value = single.inputs[0]
    for index in range(20):
        inputs = [value if each in single.inputs else each for each in layer.inputs]
        nodes.append(make_node(layer.op, inputs, [f"result{index}"], layer.epilogue))
        value = nodes[-1].output
    steps: list[int] = []
    solve = arena.solve

    def counted(*arguments: Any) -> PlacementSolution:
        found = solve(*arguments)
        steps.append(found.steps)
        return found

    monkeypatch.setattr(arena, "solve", counted)
    chain = Graph("chain", single.inputs, (value,), tuple(nodes), single.constants)
    compile_graph(chain, target.load("cortex-m7"), Options())
    assert 0 < sum(steps) < 1_500_000
