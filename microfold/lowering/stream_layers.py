"""Layers and buffers of a program that streams some of its layers."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.codegen.names import Namer
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.kernels.call import KernelCall
from microfold.lowering.callers import Callers
from microfold.lowering.schedule import Places, claim_name, model_places
from microfold.lowering.streamed import Streamed
from microfold.lowering.streaming_partitions import streamed_inputs
from microfold.options import Options
from microfold.program import Buffer, Layer


def stream_places(graph: Graph, options: Options) -> Places:
    """Return region and offset of values outside of the arena."""
    pushed = streamed_inputs(graph, options)
    handed_in = {value: ("input", index) for index, value in enumerate(graph.inputs) if value in pushed}
    return {**model_places(graph, options), **handed_in}


def stream_layers(found: Streamed, calls: Sequence[KernelCall], places: Places) -> tuple[Layer, ...]:
    """Return the layers of the program, in the order in which they first run.

    Args:
        calls: calls of all layers.
        places: region and offset of values outside of the arena.
    """
    planner, memory = found.planner, found.memory
    namer = Namer()
    layers: list[Layer] = []
    locate, callers = _Locator(found, places), Callers(calls)
    for index, (ranking, candidate, call) in enumerate(zip(found.rankings, found.chosen, calls, strict=True)):
        band = planner.planned[index].band
        layer, kernel = ranking.layer, candidate.kernel
        # Reports describe the whole layer.
        whole = band.node.layer if band is not None else layer
        node = whole.node
        scratch = memory.scratch.get(index)
        timed = layer.target.cycle_model is not None
        measured = candidate.measured
        layers.append(
            Layer(
                index=index,
                name=claim_name(namer, whole, None if band is not None else kernel),
                node=node,
                kernel=kernel,
                call=call,
                work=(node,) if band is not None else kernel.work(layer),
                macs=sum(each.macs() for each in kernel.work(layer)) * ranking.runs,
                estimated_instructions=round(callers.instructions(kernel, layer, call) * ranking.runs),
                estimated_cycles=round(callers.cycles(kernel, layer, call) * ranking.runs) if timed else None,
                inputs=tuple(
                    locate(value)
                    for i in kernel.data_inputs(layer)
                    if (value := node.arguments[i]) is not None
                ),
                outputs=tuple(locate(value) for value in node.outputs),
                scratch=memory.arena.offsets[scratch] if scratch is not None else None,
                candidates=tuple(ranking.candidates),
                measured_cycles=measured * ranking.runs if measured is not None else None,
                rows=_rows(found, index) if band is not None else None,
            )
        )
    return tuple(layers)


def stream_buffers(found: Streamed, values: Sequence[Value], places: Places) -> tuple[Buffer, ...]:
    """Return the buffers of values after streaming."""
    locate = _Locator(found, places)
    return tuple(locate(value) for value in values)


class _Locator:
    """Locator of the buffer of every value; for a streamed value, its window."""

    def __init__(self, found: Streamed, places: Places):
        graph: Graph = found.planner.graph
        self.found = found
        self.special = dict.fromkeys(graph.constants, ("constant", 0)) | dict(places)
        self.windows = found.memory.windows

    def __call__(self, value: Value) -> Buffer:
        planner, memory = self.found.planner, self.found.memory
        place = planner.place(value)
        if place.root in self.special:
            region, offset = self.special[place.root]
            return Buffer(value, region, offset + place.offset if region == "state" else offset)
        block = planner.block_of(place.root)
        if block is None:
            return Buffer(value, "arena", self.windows[place.root])
        return Buffer(value, "arena", memory.arena.offsets[block] + place.offset)


def _rows(found: Streamed, index: int) -> tuple[int, ...]:
    """Return the rows that the calls of a band's layer write, in order."""
    planned = found.planner.planned[index]
    band = planned.band
    assert band is not None
    windows, _, _ = found.planner.streams[planned.region]
    own = set(band.events)
    events = enumerate(windows.events[band.node])
    parts = (band.node.written(part) for part, event in events if event in own)
    return tuple(row for part in parts for row in range(*part))
