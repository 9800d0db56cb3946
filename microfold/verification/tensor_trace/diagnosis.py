"""Diagnosis of a device's run: finds the first wrong layer, and separates kernel faults from memory faults.

Every tensor is checked twice:

1. The result of a layer must equal the reference's result for the same input bytes. Otherwise the kernel or
   its constants are wrong, or memory was overwritten while the layer ran.
2. The bytes that a layer reads must equal the bytes that were written there. Otherwise they were overwritten
   in between.

Consequences of a fault satisfy both rules, so only the fault itself is reported. Without faults, all tensors
equal the reference for the device's inputs.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.codegen.tensor_trace import Role, TracedTensor, layer_begin, layer_done, run_begin, run_end
from microfold.errors import NoReferenceError
from microfold.ir.in_place import updated_states
from microfold.ir.interpret import functions
from microfold.ir.node import Node, Value
from microfold.ir.op import Function
from microfold.ir.types import Array, Tensor
from microfold.plan.overlap import align
from microfold.program import Buffer, Layer, Program
from microfold.verification.tensor_trace.dump import RecordedRun, missing
from microfold.verification.tensor_trace.records import TraceRecord
from microfold.verification.verify import FLOAT_TOLERANCE, gaps, half_tolerance, reads_halves


class Elements(Struct, frozen=True):
    """Difference between two arrays.

    Attributes:
        count, size: number of differing elements, and of all elements.
        first: index of the first differing element.
        actual, expected: values of this element.
        largest: largest absolute difference; None if it is infinite or NaN.
    """

    count: int
    size: int
    first: tuple[int, ...]
    actual: float
    expected: float
    largest: float | None


class Fault(Struct, frozen=True):
    """Fault in a run.

    Attributes:
        kind: ``kernel``: the layer computed a wrong result. ``memory``: a tensor was overwritten before the
            layer or the end of the run read it. ``either``: a tensor differs from the reference, but the
            record of the written tensor is missing.
        layer: index of the layer; None: the start or the end of the run.
        written_by: index of the layer that wrote an overwritten tensor; None for inputs and states.
        elements: differing elements; None if only checksums are known.
        buffer: location of the tensor.
    """

    kind: str
    role: Role
    layer: int | None
    tensor: Value
    written_by: int | None
    elements: Elements | None
    buffer: Buffer


class RunResult(Struct, frozen=True):
    """Result of checking a run.

    Attributes:
        tensors: number of compared tensors.
        missing: taps without a record.
        faults: faults, in chronological order.
        unchecked: reason for each layer whose results could not be compared.
    """

    run: RecordedRun
    tensors: int
    missing: Sequence[TracedTensor]
    faults: Sequence[Fault]
    unchecked: Mapping[int, str]


class _Content(Struct, frozen=True):
    """Content of a value, as far as it is known.

    Attributes:
        data: elements; None if only the checksum is known.
        certain: whether the device has sent the content. Otherwise it was computed from content that the
            device has sent.
    """

    data: Array | None
    crc: int
    certain: bool = True

    @staticmethod
    def of(data: Array, certain: bool = True) -> _Content:
        return _Content(data, zlib.crc32(np.ascontiguousarray(data).tobytes()), certain)


_States = dict[Value, _Content]


class Diagnosis:
    """Comparison of the runs of a dump with the reference, in order.

    Args:
        program: program of the build.
    """

    def __init__(self, program: Program):
        self.program = program
        self._functions = functions(program.graph)
        self._constants = {v: _Content.of(a) for v, a in program.graph.constants.items()}
        # Number of the last run, the states at its start, and the states after it.
        self._last: tuple[int, _States, _States] | None = None

    def check(self, run: RecordedRun) -> RunResult:
        """Compare one run; runs must be given in the order of the dump."""
        check = _RunCheck(self.program, run, self._functions, self._constants)
        before = check.begin(self._states_before(run.number))
        check.layers()
        self._last = (run.number, before, check.end())
        return RunResult(run, check.tensors, missing(self.program, run), check.faults, check.unchecked)

    def _states_before(self, number: int) -> _States:
        """Return the expected states at the start of a run, without unknown ones."""
        if number == 0:
            return {state.value: _Content.of(state.initial) for state in self.program.graph.state}
        if self._last is None:
            return {}
        last, begin, end = self._last
        if number == last:
            # A run that was not completed has changed only the states updated in place.
            moved = set(updated_states(self.program.graph).values())
            return {value: content for value, content in begin.items() if value not in moved}
        return end if number == last + 1 else {}


class _RunCheck:
    """Check of one run. The methods must be called in the order of their definition."""

    def __init__(
        self,
        program: Program,
        run: RecordedRun,
        bodies: Mapping[str, Function],
        constants: Mapping[Value, _Content],
    ):
        self.program = program
        self.tensors = 0
        self.faults: list[Fault] = []
        self.unchecked: dict[int, str] = {}
        self._run = run
        self._bodies = bodies
        # Known contents of the memory.
        self._contents = dict(constants)

    def begin(self, states: _States) -> _States:
        """Read the inputs, compare the states, and return the states."""
        self._contents |= states
        for tap in run_begin(self.program):
            record = self._record(tap)
            if tap.role is Role.STATE:
                self._arrive(tap.buffer, record, tap.role, None)
            elif record is not None:
                self._contents[tap.buffer.value] = _content(record, tap.buffer)
        values = [state.value for state in self.program.graph.state]
        return {value: self._contents[value] for value in values if value in self._contents}

    def layers(self) -> None:
        """Compare the inputs and results of every layer."""
        layer_of = {layer.node: layer for layer in self.program.layers}
        for node in self.program.graph.nodes:
            if node in layer_of:
                self._check_layer(layer_of[node])
            elif (results := self._evaluate(node)) is not None:
                certain = all(self._contents[value].certain for value in node.operands)
                for value, result in zip(node.outputs, results, strict=True):
                    self._contents[value] = _Content.of(result.data, certain)

    def end(self) -> _States:
        """Compare the outputs, and return the states for the next run."""
        for tap in run_end(self.program):
            self._arrive(tap.buffer, self._record(tap), tap.role, None)
        states = self.program.graph.state
        return {s.value: self._contents[s.next] for s in states if s.next in self._contents}

    def _record(self, tap: TracedTensor) -> TraceRecord | None:
        return self._run.records.get(tap.key)

    def _check_layer(self, layer: Layer) -> None:
        read = {_place(tap.buffer): self._record(tap) for tap in layer_begin(layer)}
        seen: set[tuple[str, int, int]] = set()
        for buffer in layer.inputs:
            if buffer.region != "constant":
                place = _place(buffer)
                self._arrive(buffer, read[place], Role.LAYER_INPUT, layer.index, again=place in seen)
                seen.add(place)
        try:
            results = self._evaluate(layer.node)
            why = "" if results else "its inputs are not known"
        except NoReferenceError:
            results, why = None, "it has no reference"
        if why:
            self.unchecked[layer.index] = why
        for position, tap in enumerate(layer_done(layer)):
            expected = results[position].data if results is not None else None
            self._check_output(layer, tap, self._record(tap), expected)

    def _evaluate(self, node: Node) -> tuple[Tensor, ...] | None:
        """Return the reference's results for the node's operands; None if they are unknown."""
        operands: dict[Value, Tensor] = {}
        for value in node.operands:
            content = self._contents.get(value)
            if content is None or content.data is None:
                return None
            operands[value] = Tensor(value.type, content.data)
        return node.evaluate(operands, self._bodies)

    def _check_output(
        self, layer: Layer, tap: TracedTensor, record: TraceRecord | None, expected: Array | None
    ) -> None:
        value = tap.buffer.value
        self._contents.pop(value, None)
        if expected is not None:
            self._contents[value] = _Content.of(expected, certain=False)
        if record is None:
            self.unchecked.setdefault(layer.index, "its record is missing")
            return
        given = _content(record, tap.buffer)
        elements = None
        wrong = False
        if expected is not None and given.data is not None:
            elements = _compare(given.data, expected, *self._tolerance(layer.node))
            wrong = elements is not None
        elif expected is not None and given.crc != self._contents[value].crc:
            if value.type.dtype.is_float:
                self.unchecked.setdefault(
                    layer.index, "checksums of floats differ even for rounding errors: send the tensors"
                )
            else:
                wrong = True
        elif expected is not None:
            given = _Content.of(expected)
        self.tensors += expected is not None and layer.index not in self.unchecked
        self._contents[value] = given
        if wrong:
            buffer = tap.buffer
            self.faults.append(Fault("kernel", tap.role, layer.index, value, layer.index, elements, buffer))

    def _tolerance(self, node: Node) -> tuple[float, float | None]:
        if not reads_halves(node, self.program.graph):
            return FLOAT_TOLERANCE, None
        read = {v: content.data for v in node.operands if (content := self._contents[v]).data is not None}
        return half_tolerance(node, read)

    def _arrive(
        self,
        buffer: Buffer,
        record: TraceRecord | None,
        role: Role,
        layer: int | None,
        *,
        again: bool = False,
    ) -> None:
        """Compare the bytes that are read with the bytes that were written, and continue with the former.

        Args:
            again: whether the record was already compared, for another value in the same place.
        """
        value, left = buffer.value, self._contents.get(buffer.value)
        if record is None:
            return
        given = _content(record, buffer)
        if left is None:
            self._contents[value] = given
            return
        changed = left.crc != given.crc
        elements = None
        if changed and left.data is not None and given.data is not None:
            if left.certain or not value.type.dtype.is_float:
                elements = _changed(given.data, left.data)
            else:  # computed by the reference, whose rounding differs
                elements = _compare(given.data, left.data, FLOAT_TOLERANCE, None)
                changed = elements is not None
        elif changed and not left.certain and value.type.dtype.is_float:
            changed = False
            given = replace(given, certain=False)
        if not changed and given.data is None and left.crc == given.crc:
            given = replace(given, data=left.data)
        self._contents[value] = given
        if again:
            return
        self.tensors += 1
        if changed:
            writer = writer_of(self.program, buffer, elements, layer)
            kind = "memory" if left.certain else "either"
            self.faults.append(Fault(kind, role, layer, value, writer, elements, buffer))


def _place(buffer: Buffer) -> tuple[str, int, int]:
    return buffer.region, buffer.offset, buffer.type.nbytes


def _content(record: TraceRecord, buffer: Buffer) -> _Content:
    if record.payload is None:
        return _Content(None, record.crc)
    data = np.frombuffer(record.payload, buffer.type.dtype.numpy).reshape(buffer.type.shape)
    return _Content(data, record.crc)


def _compare(actual: Array, expected: Array, tolerance: float, scale: float | None) -> Elements | None:
    bad, gap = gaps(actual, expected, tolerance, scale)
    return _elements(actual, expected, bad, gap) if bad.any() else None


def _changed(actual: Array, before: Array) -> Elements | None:
    one, other = (
        np.frombuffer(array.tobytes(), np.uint8).reshape(array.size, -1) for array in (actual, before)
    )
    bad = (one != other).any(axis=1).reshape(actual.shape)
    if not bad.any():
        return None
    _, gap = gaps(actual, before)
    return _elements(actual, before, bad, gap)


def _elements(actual: Array, expected: Array, bad: Array, gap: Array) -> Elements:
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    largest = float(gap[bad].max())
    return Elements(
        count=int(bad.sum()),
        size=bad.size,
        first=first,
        actual=actual[first].item(),
        expected=expected[first].item(),
        largest=largest if np.isfinite(largest) else None,
    )


def writer_of(program: Program, buffer: Buffer, elements: Elements | None, reader: int | None) -> int | None:
    """Return the layer that last wrote the first wrong element, by the memory plan; None if no layer did.

    Args:
        reader: index of the layer that read it; None for the end of the run.
    """
    place = _offset(buffer, elements)
    for layer in reversed(program.layers[:reader]):
        for written in layer.outputs:
            size = written.type.nbytes if written.region in _CONTEXT else 1
            if written.region == buffer.region and 0 <= place - written.offset < size:
                return layer.index
    return None


def context_offset(program: Program, fault: Fault) -> int | None:
    """Return the offset of the first wrong element in the context, in bytes; None if it is elsewhere."""
    if fault.buffer.region not in _CONTEXT:
        return None
    base = max(align(program.arena.size), 8) if fault.buffer.region == "state" else 0
    return base + _offset(fault.buffer, fault.elements)


# Regions with offsets in bytes. In other regions, offsets are buffer indices.
_CONTEXT = ("arena", "state")


def _offset(buffer: Buffer, elements: Elements | None) -> int:
    if elements is None or not elements.first or buffer.region not in _CONTEXT:
        return buffer.offset
    index = int(np.ravel_multi_index(elements.first, buffer.type.shape))
    return buffer.offset + index * buffer.type.dtype.itemsize
