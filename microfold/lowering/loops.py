"""Whether loops are written out: where flash counts, the smaller form is taken."""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.kernels.selection.shared_functions import FIELD_BYTES
from microfold.ops.control.control_flow import While
from microfold.program import Layer, Program

# Bytes of Thumb code, on average: a call, each of its arguments, a loop, a copy.
_CALL = 6
_ARGUMENT = 4
_LOOP = 16
_MOVE = 12
# Bytes of flash that are worth a byte of RAM.
_FLASH_FOR_RAM = 4


def has_loops(graph: Graph) -> bool:
    """Whether the model, as imported, repeats something."""
    return any(isinstance(node.op, While) for node in graph.nodes) or any(
        has_loops(body) for body in graph.subgraphs.values()
    )


def estimated_size(program: Program) -> int:
    """Bytes of flash, and of RAM by what these are worth; compared only between forms of one model."""
    functions = {layer.call.function: layer.kernel.code for layer in program.calls}
    layers = [each for layer in program.layers for each in layer.all_layers]
    flash = program.weight_bytes + sum(functions.values()) + sum(map(_statement, layers))
    return flash + _FLASH_FOR_RAM * program.arena.size


def _statement(layer: Layer) -> int:
    """Bytes of the statement that runs a layer, and of its description."""
    if layer.control is not None:
        return _LOOP + _MOVE * len(layer.control.moves)
    arguments = len(layer.inputs) + len(layer.outputs) + (layer.scratch is not None)
    return _CALL + _ARGUMENT * (arguments + 1) + FIELD_BYTES * len(layer.call.parameters)
