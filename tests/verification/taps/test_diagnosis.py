"""What a device wrote is compared with the reference: who is to blame is found, and nobody who is not."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.codegen.tensor_trace import Role, schedule
from microfold.compiler import compile_file, compile_graph
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.text import parse
from microfold.options import Options
from microfold.program import Program
from microfold.verification.tensor_trace.diagnosis import Diagnosis, RunResult, context_offset
from microfold.verification.tensor_trace.dump import Dump
from microfold.verification.tensor_trace.records import RecordParser
from microfold.verification.verify import input_sets
from tests import loops
from tests.codegen import graphs
from tests.counts import MODELS
from tests.taps_device import encode, records, tapped
from tests.transform.requested.sliding.nets import WindowNets

RUNS = 3
SCALAR = """graph @scalar(%x: {dtype}[]{more}) -> (%y) {{
  %y: {dtype}[]{more} = maximum(%x, %x)
}}
"""
CHECKSUMS = "_TAP_CHECKSUMS=1"


def program_of(make: Callable[[], Graph], **options: object) -> Program:
    return tapped(compile_graph(make(), target.load("host"), Options(**options)))  # type: ignore[arg-type]


@cache
def digits() -> Program:
    return tapped(compile_file(MODELS["digits"], target.load("host")))


def calls(program: Program, runs: int = RUNS) -> list[tuple[object, ...]]:
    """Inputs that are not all the same."""
    return list(input_sets([buffer.type for buffer in program.inputs], runs + 3)[3:])


def device(program: Program, *flags: str, **patches: tuple[str, str]) -> bytes:
    """What a device writes of some runs.

    Args:
        flags: macros of the device, without ``-D`` and the model's name.
        patches: by the suffixes of generated files without their last dot.
    """
    macro = program.name.upper()
    defines = [f"-D{macro}{flag}" if flag.startswith("_") else f"-D{flag}" for flag in flags]
    named = {f"{program.name}_{suffix}.c": patch for suffix, patch in patches.items()}
    with TemporaryDirectory() as folder:
        return records(Path(folder), program, calls(program), *defines, patches=named)


@cache
def digits_dump(*flags: str) -> bytes:
    return device(digits(), *flags)


def results(program: Program, data: bytes, whole: bytes | None = None) -> list[RunResult]:
    """What is found in some bytes.

    Args:
        whole: bytes that surely name the build.
    """
    dump = Dump(data)
    (build,) = Dump(whole or data).builds
    diagnosis = Diagnosis(program)
    return [diagnosis.check(run) for run in dump.runs(program, build)]


Key = tuple[Role, int, int]


def flip(program: Program, after: Key, changed: Key, byte: int) -> list[str]:
    """Flags that change a byte of a tensor behind a record of the first run."""
    taps = {tap.key: (number, tap.buffer.offset) for number, tap in enumerate(schedule(program), 2)}
    return [f"FLIP_AFTER={taps[after][0]}", f"FLIP_BYTE={taps[changed][1] + byte}"]


def written(layer: int) -> Key:
    return Role.LAYER_OUTPUT, layer, 0


def assert_equal(program: Program, found: Sequence[RunResult]) -> None:
    compared = sum(tap.role is not Role.MODEL_INPUT for tap in schedule(program))
    for number, result in enumerate(found):
        assert (result.run.number, result.run.ended) == (number, True)
        assert (list(result.faults), list(result.missing), dict(result.unchecked)) == ([], [], {})
        assert result.tensors == compared


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (graphs.chain, {}),
        (graphs.several_outputs, {"io": "caller", "step": True}),
        (graphs.several_outputs, {"weights": "blob"}),
        (graphs.two_inputs, {"io": "caller"}),
        (graphs.accumulator, {"step": True, "single_file": True}),
        (graphs.swapped_states, {"weights": "blob", "io": "caller"}),
        (graphs.constant_operand, {}),
        (loops.bounded, {"weights": "blob"}),
        (loops.branch, {"io": "caller", "step": True}),
        (WindowNets(3).draw, {"sliding": 1}),
    ],
    ids=lambda value: getattr(value, "__name__", None) or "-".join(map(str, value.values())),
)
def test_what_is_right_is_equal(make: Callable[[], Graph], options: dict[str, object]) -> None:
    program = program_of(make, **options)
    found = results(program, device(program))
    assert len(found) == RUNS
    assert_equal(program, found)


def test_the_device_writes_what_the_c_computes_here() -> None:
    """The third opinion besides device and reference."""
    session = Session(digits())
    found = results(digits(), digits_dump())
    assert_equal(digits(), found)
    for call, result in zip(calls(digits()), found, strict=True):
        _, values = session.run_layers(*call)
        for tap in schedule(digits()):
            if tap.role is Role.LAYER_OUTPUT:
                assert result.run.records[tap.key].payload == values[tap.buffer.value].tobytes()


def test_layers_that_overwrite_what_they_read_are_among_them() -> None:
    """Inputs must be taken before the layer runs, outputs before the next one does."""

    def extent(buffer: object) -> range:
        return range(buffer.offset, buffer.offset + buffer.type.nbytes)  # type: ignore[attr-defined]

    overlapping = [
        layer.name
        for layer in digits().layers
        for read in layer.inputs
        if read.region == "arena" and set(extent(read)) & set(extent(layer.outputs[0]))
    ]
    assert overlapping


@pytest.mark.parametrize("flags", [(), (CHECKSUMS,)], ids=["tensors", "checksums"])
def test_memory_that_is_overwritten_between_layers(flags: tuple[str, ...]) -> None:
    """What layer 0 wrote waits for layer 3; a byte of it changes behind layer 2."""
    program = digits()
    data = device(program, *flip(program, written(2), written(0), 5), *flags)
    first, *others = results(program, data)
    (fault,) = first.faults
    assert (fault.kind, fault.role, fault.layer, fault.written_by) == ("memory", Role.LAYER_INPUT, 3, 0)
    assert fault.tensor is program.layers[0].outputs[0].value
    buffer = program.layers[0].outputs[0]
    assert not any(result.faults or result.unchecked for result in others)
    if flags:
        assert fault.elements is None and context_offset(program, fault) == buffer.offset
        assert first.unchecked == dict.fromkeys(range(3, 10), "its inputs are not known")
        return
    assert fault.elements is not None
    assert (fault.elements.count, fault.elements.first) == (1, (0, 0, 0, 5))
    assert abs(fault.elements.actual - fault.elements.expected) == 16 == fault.elements.largest
    assert context_offset(program, fault) == buffer.offset + 5
    assert not first.unchecked


@pytest.mark.parametrize("hook", ["BEGIN", "DONE"])
@pytest.mark.parametrize("step", [False, True], ids=["run", "step"])
def test_a_hook_that_spoils_memory_is_not_laid_to_the_kernel(hook: str, step: bool) -> None:
    """Another task writes where the input of layer 2 lies, while a hook gives the core away."""
    program = program_of(graphs.chain, step=step)
    read = program.layers[2].inputs[0]
    # Just before layer 2, or just after layer 1. In the second run only, where nothing else is wrong.
    spoil = f"((uint8_t *)(context))[{read.offset}] ^= ((context)->tap.runs == 1u && (layer) == "
    spoil += "2u) << 4" if hook == "BEGIN" else "1u) << 4"
    found = results(program, device(program, f"_LAYER_{hook}(context, layer)=({spoil})"))
    faults = [(fault.kind, fault.layer, fault.written_by) for result in found for fault in result.faults]
    assert faults == [("memory", 2, 1)] and found[1].faults


def test_who_wrote_last_where_memory_was_overwritten() -> None:
    """Layer 3 wrote its result over that of layer 2."""
    program = digits()
    assert program.layers[3].outputs[0].offset == program.layers[2].outputs[0].offset
    (fault,) = results(program, device(program, *flip(program, written(3), written(3), 7)))[0].faults
    assert (fault.kind, fault.layer, fault.written_by) == ("memory", 4, 3)


@pytest.mark.parametrize("flags", [(), (CHECKSUMS,)], ids=["tensors", "checksums"])
def test_a_wrong_kernel(flags: tuple[str, ...]) -> None:
    """Its weights are others; what follows computes right on what it is given."""
    program = program_of(graphs.chain)
    data = device(program, *flags, weights=wrong_weight(program, 1))
    for result in results(program, data):
        kinds = [(fault.kind, fault.layer, fault.written_by) for fault in result.faults]
        assert kinds == [("kernel", 1, 1)]
        assert (result.faults[0].elements is None) == bool(flags)
        assert result.unchecked == ({2: "its inputs are not known"} if flags else {})


def test_what_cannot_be_told_for_lack_of_a_record() -> None:
    """The wrong layer's own output is lost: what the next one reads is wrong, whoever has done it."""
    program = program_of(graphs.chain)
    parser = RecordParser()
    data = device(program, weights=wrong_weight(program, 1))
    found = [*parser.feed(data), *parser.finish()]
    kept = b"".join(encode(record) for record in found if record.key != written(1))
    for result in results(program, kept):
        (fault,) = result.faults
        assert (fault.kind, fault.layer, fault.written_by) == ("either", 2, 1)
        assert result.unchecked == {1: "its record is missing"}


def wrong_weight(program: Program, layer: int) -> tuple[str, str]:
    """A patch of the first number among a layer's constants."""
    text = emit(program)[f"{program.name}_weights.c"]
    name = f"__{program.layers[layer].name}_"
    head, row = re.findall(rf"(.*{name}.*= {{)\n(.*)", text)[0]
    number = row.strip(" {").split(",")[0]
    return f"{head}\n{row}", f"{head}\n{row.replace(number, str(int(number) // 2 + 40), 1)}"


def test_inputs_and_outputs_that_are_overwritten() -> None:
    program = program_of(graphs.several_outputs)
    given = (Role.MODEL_INPUT, 0, 0)
    data = device(program, *flip(program, given, given, 1))
    (fault,) = results(program, data)[0].faults[:1]
    assert (fault.kind, fault.layer, fault.written_by) == ("memory", 0, None)
    data = device(program, *flip(program, written(len(program.layers) - 1), written(0), 2))
    fault = results(program, data)[0].faults[0]
    assert (fault.kind, fault.role, fault.layer, fault.written_by) == ("memory", Role.MODEL_OUTPUT, None, 0)


@pytest.mark.parametrize("flags", [(), (CHECKSUMS,)], ids=["tensors", "checksums"])
def test_a_state_that_is_overwritten_between_runs(flags: tuple[str, ...]) -> None:
    program = program_of(graphs.accumulator)
    state = program.state[0].buffer
    begin = -(-program.arena.size // 8) * 8
    behind = len(list(schedule(program))) + 2
    changed = [f"FLIP_AFTER={behind}", f"FLIP_BYTE={begin + state.offset + 2}"]
    first, second, third = results(program, device(program, *changed, *flags))
    assert not first.faults and not third.faults
    (fault,) = second.faults
    assert (fault.kind, fault.role, fault.layer, fault.tensor) == ("memory", Role.STATE, None, state.value)
    assert context_offset(program, fault) == begin + state.offset
    if flags:
        assert second.unchecked


def cut_into_runs(data: bytes) -> list[bytes]:
    """The bytes of each run: no byte of a tensor looks like a record's first ones."""
    starts, at = [], data.find(b"MFTP\x01\x00")
    while at >= 0:
        starts.append(at)
        at = data.find(b"MFTP\x01\x00", at + 1)
    return [data[begin:end] for begin, end in zip(starts, [*starts[1:], len(data)], strict=True)]


@pytest.mark.parametrize("flags", [(), (CHECKSUMS,)], ids=["tensors", "checksums"])
def test_runs_that_are_given_up_lost_or_begin_anew(flags: tuple[str, ...]) -> None:
    program = program_of(graphs.accumulator)
    zero, one, two = cut_into_runs(device(program, *flags))
    given_up = results(program, zero + one[: len(one) // 2] + one + two)
    assert [result.run.number for result in given_up] == [0, 1, 1, 2]
    assert [result.run.ended for result in given_up] == [True, False, True, True]
    assert not any(result.faults or result.unchecked for result in (given_up[0], *given_up[2:]))
    again = results(program, zero + one + zero + one)  # a reset between them
    assert not any(result.faults or result.unchecked for result in again)
    first, last = results(program, zero + two)
    assert not first.faults and not last.faults
    # The device tells its states; their checksums do not.
    assert bool(last.unchecked) == bool(flags)
    (alone,) = results(program, two)
    assert not alone.faults and bool(alone.unchecked) == bool(flags)


def test_nothing_that_is_lost_makes_a_fault() -> None:
    """Records are damaged, cut, missing, and among other output."""
    for seed in range(10):
        rng = random.Random(seed)
        data = bytearray(digits_dump(*rng.choice(((), (CHECKSUMS,)))))
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data))
            what = rng.randrange(4)
            if what == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif what == 1:
                del data[at : at + rng.randrange(1, 3000)]
            elif what == 2:
                data[at:at] = b"[00:00:12] tick\r\n"
            else:
                data[at:at] = rng.randbytes(rng.randrange(100))
        for result in results(digits(), bytes(data), digits_dump()):
            assert not result.faults, seed
            complete = not result.missing
            assert not complete or not result.unchecked, seed


def test_floats_may_differ_in_their_last_bits() -> None:
    """As tensors they are compared with a tolerance; checksums of them say nothing."""
    program = program_of(graphs.constant_operand)
    # The clock is read before the kernel, when its field is 0, and after it: that rounds otherwise.
    byte = f"context->arena.bytes[{program.layers[0].outputs[0].offset}]"
    change = f"_TAP_TICKS()=(context->tap.ticks==0u?1u:({byte}^=1,1u))"
    for flags in ((), (CHECKSUMS,)):
        data = device(program, *flags, change)
        for result in results(program, data):
            assert not result.faults
            assert bool(result.unchecked) == bool(flags)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_tensor_of_one_element(dtype: str) -> None:
    """It has no axes: the first wrong element is at no index. And one layer reads it twice."""
    graph = parse(SCALAR.format(dtype=dtype, more=" q(0.5, 1)" if dtype == "int8" else ""))
    program = tapped(compile_graph(graph, target.load("host")))
    data = device(program, *flip(program, (Role.MODEL_INPUT, 0, 0), (Role.MODEL_INPUT, 0, 0), 0))
    first, *others = results(program, data)
    (fault,) = first.faults
    assert fault.elements is not None and fault.elements.first == ()
    assert [result.tensors for result in others] == [3, 3]
    assert context_offset(program, fault) == program.inputs[0].offset
