"""What a program is made of, as data: the edges of its graph, and the blocks of its arena."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from microfold.ir.node import Value
from microfold.plan.liveness import Storage
from microfold.program import Program

Report = dict[str, Any]


def edges(program: Program) -> list[Report]:
    """Who reads what: results of layers, inputs and states, once for every layer or output that reads them.

    What needs no code, such as a reshape, is not a layer: edges go through it.
    """
    found: dict[tuple[Any, ...], Report] = {}
    ends = [
        *((("layer", layer.index), value) for layer in program.layers for value in layer.node.operands),
        *((("output", i), value) for i, value in enumerate(program.graph.outputs)),
        *((("state", i), state.next) for i, state in enumerate(program.graph.state)),
    ]
    sources = _Sources(program)
    for (reader, index), value in ends:
        for kind, number, source in sources.of(value):
            edge = {
                "from": {"kind": kind, "index": number},
                "to": {"kind": reader, "index": index},
                "tensor": source.name,
                "bytes": source.type.nbytes,
            }
            found.setdefault((kind, number, reader, index, source), edge)
    return list(found.values())


class _Sources:
    """Where values come from, through all that needs no code."""

    def __init__(self, program: Program):
        graph = program.graph
        self._producers = graph.producers()
        self._known: dict[Value, tuple[str, int]] = {}
        for index, value in enumerate(graph.inputs):
            self._known[value] = ("input", index)
        for index, state in enumerate(graph.state):
            self._known[state.value] = ("state", index)
        for layer in program.layers:
            self._known |= dict.fromkeys(layer.node.outputs, ("layer", layer.index))

    def of(self, value: Value) -> Iterator[tuple[str, int, Value]]:
        """Kind, index and value of each source; constants are none."""
        pending = [value]
        while pending:
            last = pending.pop()
            if last in self._known:
                yield (*self._known[last], last)
            elif last in self._producers:
                pending += reversed(self._producers[last].operands)


def blocks(program: Program) -> list[Report]:
    """The blocks of the arena: bytes that one or more values share, or a call's scratch, in order of time.

    Blocks may overlap where a kernel allows its result to lie over an input that ends there.
    """
    stream = program.stream
    # In a stream, a block lives during calls of layers that run again and again.
    placed = [
        (*(stream.layers_of(block) if stream is not None else (block.first, block.last)), block, offset)
        for block, offset in program.arena.offsets.items()
    ]
    scratch = {(layer.index, layer.scratch) for layer in program.layers if layer.scratch is not None}
    fetched = {(layer.index, layer.fetched) for layer in program.layers if layer.fetched is not None}
    return [
        {
            "name": block.label,
            "kind": "constants" if (last, offset) in fetched else _kind(block, (first, offset) in scratch),
            "offset": offset,
            "bytes": block.size,
            # Inputs are there before the first layer, and only then if nothing reads them; outputs behind
            # the last one.
            "first_layer": max(first, 0),
            "last_layer": max(min(last, len(program.layers) - 1), 0),
        }
        for first, last, block, offset in sorted(placed, key=lambda item: (*item[:2], item[3]))
    ]


def _kind(block: Storage, is_scratch: bool) -> str:
    if block.first < 0:
        return "input"
    # Nothing else begins where a call's scratch does while the call runs.
    return "scratch" if is_scratch else "result"
