"""Models with IF, WHILE and CALL: every tensor of the generated C against the reference."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file, compile_graph, explain_kernels, layer_names
from microfold.errors import InputError, UnsupportedModelError
from microfold.frontend.tflite import load
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.options import Options
from microfold.passes.kinds import Sequential
from microfold.program import LoopPlan, Program
from microfold.simulate.firmware import Firmware, SimulatedRun
from microfold.transform.simplify.fold_constant import fold_constant
from microfold.transform.subgraphs.if_conversion import if_conversion
from microfold.transform.subgraphs.inline import inline
from microfold.transform.subgraphs.partial_evaluate import PartialEvaluate
from microfold.verification.measure import measure
from microfold.verification.verify import input_sets, verify
from tests import loops
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run, write
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled, sampled_rows

MADE = Path(__file__).resolve().parents[1] / "models" / "made"
FLATTEN = Sequential(
    [inline, PartialEvaluate(), inline, fold_constant, PartialEvaluate(), if_conversion, inline]
)


@pytest.mark.parametrize(
    "name",
    [
        "control_flow/if_int8",
        "control_flow/while_int8",
        "control_flow/while_variable_f32",
        "control_flow/call_f32",
        "lstm_f32",
    ],
)
def test_on_the_host(name: str) -> None:
    graph = FLATTEN(load(MADE / f"{name}.tflite"))
    assert not any(node.op.bodies for node in graph.nodes)
    program = compile_graph(graph, target.load("host"))
    result = verify(program, input_sets([buffer.type for buffer in program.inputs], 6))
    assert result.exact, result.first_difference


def test_a_loop_of_unknown_length_is_refused() -> None:
    graph = load(MADE / "control_flow" / "while_input_f32.tflite")
    with pytest.raises(UnsupportedModelError, match="must have a bound on how often it runs") as error:
        compile_graph(graph, target.load("cortex-m4"))
    assert len(error.value.problems) == 1


# Files of which something stays, with `--max-iterations` where nothing bounds them.
STAY = {
    "if_products_f32": {},
    "while_f32": {},
    "while_int8": {},
    "while_variable_f32": {},
    "while_input_f32": {"max_iterations": 6},
    "while_bounded_f32": {},
    "while_nested_int32": {},
    "while_if_while_int32": {},
    "while_sequence_f32": {},
}
WAYS: dict[str, dict[str, object]] = {
    "arena": {},
    "caller": {"io": "caller", "step": True},
    "blob": {"weights": "blob", "optimize": "speed"},
    "size": {"single_file": True, "optimize": "size"},
}


@pytest.fixture
def no_unrolling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Options, "unroll", 0)


def check(name: str, core: str, way: str) -> Program:
    """Every call of a sequence gives what the reference does."""
    chosen = Options(**{**STAY.get(name, {}), **WAYS[way]})  # type: ignore[arg-type]
    program = compile_file(MADE / "control_flow" / f"{name}.tflite", target.load(core), chosen)
    result = verify(program, input_sets([buffer.type for buffer in program.inputs], 6))
    assert result.exact, result.first_difference
    return program


@pytest.mark.usefixtures("no_unrolling")
@pytest.mark.parametrize(("name", "way"), sampled_rows([*zip(STAY, cycle(WAYS), strict=False)], 2))
def test_what_stays_on_the_host(name: str, way: str) -> None:
    program = check(name, "host", way)
    assert any(layer.control is not None for layer in program.layers)


@pytest.mark.usefixtures("no_unrolling")
@pytest.mark.parametrize("optimize", ["size", "balanced", "speed"])
def test_ram_with_loops_is_a_limit_only(optimize: str) -> None:
    """What fits is the program there is; what does not is refused, with the bytes that would."""
    graph, core = load(MADE / "control_flow" / "while_nested_int32.tflite"), target.load("cortex-m4")
    free = compile_graph(graph, core, Options(optimize=optimize))
    needed = free.arena.size + free.state_size
    fitting = compile_graph(graph, core, Options(optimize=optimize, ram=needed))
    assert fitting.arena.size == free.arena.size
    kernels = [[layer.kernel.name for layer in program.calls] for program in (fitting, free)]
    assert kernels[0] == kernels[1]
    with pytest.raises(InputError, match=f"must fit {needed - 1} bytes of RAM; .* allow {needed}, or"):
        compile_graph(graph, core, Options(optimize=optimize, ram=needed - 1))


@pytest.mark.usefixtures("no_unrolling")
@pytest.mark.slow
@pytest.mark.parametrize("core", sampled(["cortex-m4", "cortex-m0plus", "cortex-m55"]))
@pytest.mark.parametrize(("name", "way"), sampled_rows([*zip(STAY, cycle(WAYS), strict=False)], 3))
def test_what_stays_on_a_core(name: str, way: str, core: str) -> None:
    need_tools(*CROSS_TOOLS)
    check(name, core, way)


@pytest.mark.usefixtures("no_unrolling")
@pytest.mark.exhaustive
@pytest.mark.parametrize("core", ["host", "cortex-m4", "cortex-m0plus", "cortex-m55"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*STAY, "while_long_f32"])
def test_what_stays_in_every_way(name: str, way: str, core: str) -> None:
    check(name, core, way)


@pytest.mark.usefixtures("no_unrolling")
@pytest.mark.slow
@pytest.mark.parametrize("core", ["host", "cortex-m4"])
@pytest.mark.parametrize("optimize", ["size", "balanced", "speed"])
def test_keras_lstm(core: str, optimize: str) -> None:
    """The WHILE form of Keras, as it was exported."""
    program = compile_file(MADE / "lstm_f32.tflite", target.load(core), Options(optimize=optimize))
    assert program.layers[0].kernel.name == "loop__c"
    result = verify(program, input_sets([buffer.type for buffer in program.inputs], 4))
    assert result.exact, result.first_difference


def test_long_loops_stay() -> None:
    """200 runs of 9 nodes are more than `Options.unroll`; the rows that they keep are written in place."""
    program = compile_file(MADE / "control_flow" / "while_long_f32.tflite", target.load("host"))
    (loop,) = program.layers
    assert isinstance(loop.control, LoopPlan)
    assert loop.control.runs == 200
    assert not [move for move in loop.control.body.moves if move.source.type.size > 1]
    rows = 4 * 200 * (4 + 6)
    assert program.arena.size < rows + 200


def test_short_loops_are_written_out() -> None:
    for optimize in ("balanced", "speed"):
        options = Options(optimize=optimize)
        program = compile_file(MADE / "control_flow" / "while_int8.tflite", target.load("cortex-m4"), options)
        assert [layer.kernel.op.name for layer in program.layers] == ["mul", "add"] * 3


def test_for_the_least_flash_the_smaller_form_is_taken() -> None:
    need_tools(*CROSS_TOOLS)
    small = Options(optimize="size")
    path = MADE / "control_flow" / "while_int8.tflite"
    with pytest.MonkeyPatch.context() as patch:
        looped = compile_file(path, target.load("cortex-m4"), small)
        patch.setattr("microfold.lowering.optimised.has_loops", lambda _: False)
        written_out = compile_file(path, target.load("cortex-m4"), small)
    assert looped.layers[0].control is not None
    assert written_out.layers[0].control is None
    sizes = [measure(program) for program in (looped, written_out)]
    assert sizes[0] is not None
    assert sizes[1] is not None
    assert sizes[0].code < sizes[1].code
    assert looped.arena.size <= written_out.arena.size


@pytest.mark.usefixtures("no_unrolling")
@pytest.mark.parametrize("make", [loops.swap, loops.again, loops.bounded, loops.unbounded, loops.branch])
def test_loops_without_runs_and_with_state(make: Callable[[], Graph]) -> None:
    """Calls on one context; the number of runs is that of the inputs, also none and a negative one."""
    graph = make()
    program = compile_graph(graph, target.load("host"), Options(max_iterations=9))
    counts = [np.array(n, np.int32) for n in (0, 3, -5, 1, 4, 9, 1000)]
    types = [buffer.type for buffer in program.inputs]
    calls = [(count,) for count in counts] if types[0].size == 1 and len(types) == 1 else input_sets(types, 5)
    result = verify(program, calls)
    assert result.exact, result.first_difference
    assert result.cut_short == (make is loops.unbounded)


def test_stopped_loops_on_the_host_and_in_the_api() -> None:
    program = compile_graph(loops.unbounded(), target.load("host"), Options(max_iterations=9))
    header = emit(program)["unbounded.h"]
    assert "uint32_t unbounded_stopped_loops(const unbounded_context *context);" in header
    assert "stopped" not in emit(compile_graph(loops.bounded(), target.load("host")))["bounded.h"]
    with pytest.raises(InputError, match=r"max_iterations must be in \[1, 2147483647\]; got 0"):
        Options(max_iterations=0)


@pytest.mark.usefixtures("no_unrolling")
def test_tensors_in_loops_are_where_nothing_else_is() -> None:
    """What is carried, read from outside and computed in a run share no byte while they live."""
    program = check("while_if_while_int32", "host", "arena")
    loops_found = [layer for top in program.layers for layer in top.all_layers if layer.control is not None]
    assert [layer.kernel.name for layer in loops_found] == ["loop__c", "if__c", "loop__c"]
    for layer in loops_found:
        own = range(layer.scratch or 0, (layer.scratch or 0) + layer.call.scratch)
        around = [b for b in (*layer.inputs, *layer.outputs) if b.region == "arena"]
        assert all(b.offset + b.type.nbytes <= own.start or b.offset >= own.stop for b in around)


@pytest.mark.usefixtures("no_unrolling")
@pytest.mark.parametrize("core", ["host", "cortex-m4"])
def test_values_within_loops_are_compared(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are after the last run; a difference is that of the loop, under the value's own name."""
    need_tools(*(CROSS_TOOLS if core != "host" else ()))
    program = compile_graph(loops.again(), target.load(core))
    types = [buffer.type for buffer in program.inputs]
    inner = sum(len(layer.outputs) for layer in program.inner_layers)
    own = sum(len(layer.outputs) for layer in program.layers)
    assert inner >= 3
    assert verify(program, input_sets(types, 2)).tensors == 2 * (inner + own)
    layer = program.inner_layers[1]
    right, simulated = Session.run_layers, Firmware.run

    def wrong(self: Session, *inputs: np.ndarray) -> tuple[object, dict[Value, np.ndarray]]:
        outputs, values = right(self, *inputs)
        return outputs, {**values, layer.outputs[0].value: values[layer.outputs[0].value] + 1}

    def wrong_there(self: Firmware, *arguments: Any, **options: Any) -> tuple[SimulatedRun, ...]:
        runs = simulated(self, *arguments, **options)
        return tuple(replace(run, inner_tensors=_one_more(run.inner_tensors, 1)) for run in runs)

    monkeypatch.setattr(Session, "run_layers", wrong)
    monkeypatch.setattr(Firmware, "run", wrong_there)
    result = verify(program, input_sets(types, 2))
    (difference,) = result.differences
    (loop,) = (each for each in program.layers if each.control is not None)
    assert (difference.layer, difference.name) == (loop.index, layer.label)


def _one_more(tensors: tuple[tuple[np.ndarray, ...], ...], layer: int) -> tuple[tuple[np.ndarray, ...], ...]:
    """The same, and one more in what a layer wrote; nothing of an image that did not watch."""
    return tuple(tuple(t + 1 for t in each) if index == layer else each for index, each in enumerate(tensors))


@pytest.mark.usefixtures("no_unrolling")
def test_of_each_run_what_it_computed_is_compared() -> None:
    """On a core as on the host: a branch that a run did not take left nothing."""
    need_tools(*CROSS_TOOLS)
    host, core = (compile_graph(loops.branch(), target.load(name)) for name in ("host", "cortex-m4"))
    sets = input_sets([buffer.type for buffer in host.inputs], 5)
    here, there = verify(host, sets), verify(core, sets)
    assert here.exact
    assert there.exact
    every = sum(len(layer.outputs) for layer in (*core.layers, *core.inner_layers))
    assert here.tensors == there.tensors < len(sets) * every


def test_the_hook_of_inner_layers(tmp_path: Path) -> None:
    """It is called once for each time that an inner layer runs."""
    need_tools("cc")
    program = compile_graph(loops.bounded(), target.load("host"))
    count = len(program.inner_layers)
    main = """
#include <stdio.h>
#include "bounded.h"
extern int counts[BOUNDED_INNER_COUNT];
int counts[BOUNDED_INNER_COUNT];
static bounded_context network;
int main(void)
{
    bounded_init(&network);
    *bounded_input_0(&network) = 3;
    bounded_run(&network);
    for (int i = 0; i < BOUNDED_INNER_COUNT; i++) {
        printf("%d ", counts[i]);
    }
    return 0;
}
"""
    hooks = "extern int counts[];\n#define BOUNDED_INNER_DONE(context, layer) (counts[layer]++)\n"
    sources = write(tmp_path, emit(program) | {"main.c": main, "hooks.h": hooks})
    run(["cc", *STRICT, '-DBOUNDED_HOOKS="hooks.h"', *sources, "-o", tmp_path / "bounded"])
    found = [int(number) for number in run([tmp_path / "bounded"]).split()]
    assert found == [4, *[3] * (count - 1)]  # the condition, then what it lets run


@pytest.mark.usefixtures("no_unrolling")
def test_selection_and_placement_reach_into_loops() -> None:
    """A limit of flash is that of all layers; a section is given by the name of an inner layer."""
    path, core = MADE / "lstm_f32.tflite", target.load("cortex-m4")
    fast = compile_file(path, core, Options(objective="cycles=1"))
    small = compile_file(path, core, Options(objective="cycles=1", flash=fast.flash - 1))
    assert small.flash < fast.flash
    assert small.estimated_instructions is not None
    assert fast.estimated_instructions is not None
    assert small.estimated_instructions > fast.estimated_instructions
    inner = next(layer for layer in fast.inner_layers if layer.macs)
    explained = explain_kernels(load(path), core, Options(objective="cycles=1"))
    assert inner.name in layer_names(explained)
    placed = emit(compile_file(path, core, Options(place=(f"{inner.name}=.tcm",))))
    assert '".tcm"' in placed["lstm_f32_weights.c"]
    (loop, *_) = fast.layers
    with pytest.raises(InputError, match="a placement names an unknown layer"):
        compile_file(path, core, Options(place=(f"{loop.name}=.tcm",)))
