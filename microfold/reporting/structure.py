"""Structure of a program for its report: the edges of its graph, and the blocks of its arena."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from microfold.ir.node import Value
from microfold.plan.liveness import Storage
from microfold.program import Program
from microfold.reporting.schema import ReportedBlock, ReportedEdge, ReportedEnd

BlockKind = Literal["input", "result", "scratch", "constants"]
EndKind = Literal["input", "layer", "state", "output"]


def edges(program: Program) -> tuple[ReportedEdge, ...]:
    """Return the edges from results of layers, inputs and states to every layer or output that reads them.

    An operation without code, such as a reshape, is not a layer: edges pass through it.
    """
    found: dict[tuple[Any, ...], ReportedEdge] = {}
    ends: list[tuple[tuple[EndKind, int], Value]] = [
        *((("layer", layer.index), value) for layer in program.layers for value in layer.node.operands),
        *((("output", i), value) for i, value in enumerate(program.graph.outputs)),
        *((("state", i), state.next) for i, state in enumerate(program.graph.state)),
    ]
    sources = _Sources(program)
    for (reader, index), value in ends:
        for kind, number, source in sources.of(value):
            edge = ReportedEdge(
                ReportedEnd(kind, number), ReportedEnd(reader, index), source.name, source.type.nbytes
            )
            found.setdefault((kind, number, reader, index, source), edge)
    return tuple(found.values())


class _Sources:
    """Sources of values, traced through operations without code."""

    def __init__(self, program: Program):
        graph = program.graph
        self._producers = graph.producers()
        self._known: dict[Value, tuple[EndKind, int]] = {}
        for index, value in enumerate(graph.inputs):
            self._known[value] = ("input", index)
        for index, state in enumerate(graph.state):
            self._known[state.value] = ("state", index)
        for layer in program.layers:
            self._known |= dict.fromkeys(layer.node.outputs, ("layer", layer.index))

    def of(self, value: Value) -> Iterator[tuple[EndKind, int, Value]]:
        """Yield kind, index and value of each source; constants are not sources."""
        pending = [value]
        while pending:
            last = pending.pop()
            if last in self._known:
                yield (*self._known[last], last)
            elif last in self._producers:
                pending += reversed(self._producers[last].operands)


def blocks(program: Program) -> tuple[ReportedBlock, ...]:
    """Return the blocks of the arena in order of time: bytes of one or more values, or scratch of a call.

    Blocks overlap if a kernel writes its result in place, over an input that is not read again.
    """
    stream = program.stream
    # Streamed layers are called several times: convert the calls of a block to layers.
    placed = [
        (*(stream.layers_of(block) if stream is not None else (block.first, block.last)), block, offset)
        for block, offset in program.arena.offsets.items()
    ]
    scratch = {(layer.index, layer.scratch) for layer in program.layers if layer.scratch is not None}
    fetched = {(layer.index, layer.fetched) for layer in program.layers if layer.fetched is not None}
    return tuple(
        ReportedBlock(
            name=block.label,
            kind="constants" if (last, offset) in fetched else _kind(block, (first, offset) in scratch),
            offset=offset,
            bytes=block.size,
            # Inputs are alive before the first layer (only there, if no layer reads them), outputs after the
            # last layer.
            first_layer=max(first, 0),
            last_layer=max(min(last, len(program.layers) - 1), 0),
        )
        for first, last, block, offset in sorted(placed, key=lambda item: (*item[:2], item[3]))
    )


def _kind(block: Storage, is_scratch: bool) -> BlockKind:
    if block.first < 0:
        return "input"
    # While a call runs, no other block starts at the offset of its scratch.
    return "scratch" if is_scratch else "result"
