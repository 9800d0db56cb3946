"""Edges and blocks of programs."""

from __future__ import annotations

from pathlib import Path

from microfold import target
from microfold.compiler import compile_file, compile_graph
from microfold.program import Program
from microfold.reporting.structure import blocks, edges
from tests.codegen.graphs import accumulator, two_inputs

MADE = Path(__file__).resolve().parents[1] / "models" / "made"


def test_edges_go_through_what_needs_no_code() -> None:
    program = compile_file(MADE / "cnn_int8.tflite", target.load("host"))
    assert [node.op.name for node in program.graph.nodes] == [
        "conv2d", "max_pool2d", "conv2d", "reshape", "fully_connected", "softmax"
    ]  # fmt: skip
    assert _drawn(program) == [
        "input 0 -> layer 0: 64",
        "layer 0 -> layer 1: 512",
        "layer 1 -> layer 2: 128",
        "layer 2 -> layer 3: 64",
        "layer 3 -> layer 4: 10",
        "layer 4 -> output 0: 10",
    ]


def test_edges_of_states() -> None:
    drawn = _drawn(compile_graph(accumulator(), target.load("host")))
    assert any(edge.startswith("state 0 -> layer") for edge in drawn)
    assert any("-> state 0" in edge for edge in drawn)


def _drawn(program: Program) -> list[str]:
    return [
        f"{e.source.kind} {e.source.index} -> {e.reader.kind} {e.reader.index}: {e.bytes}"
        for e in edges(program)
    ]


def test_blocks_fill_the_arena() -> None:
    program = compile_file(MADE / "cnn_int8.tflite", target.load("cortex-m4"))
    found = blocks(program)
    assert max(block.end for block in found) == program.arena.size
    assert all(0 <= b.first_layer <= b.last_layer < len(program.layers) for b in found)
    assert [block.name for block in found if block.kind == "scratch"] == [
        f"scratch of call {layer.index}" for layer in program.layers if layer.call.scratch
    ]
    assert [block.name for block in found if block.kind == "input"] == [
        value.name for value in program.graph.inputs
    ]


def test_a_block_that_nothing_reads() -> None:
    """It is an input."""
    found = {block.name: block for block in blocks(compile_graph(two_inputs(), target.load("host")))}
    unread = found["unread"]
    assert (unread.kind, unread.first_layer, unread.last_layer) == ("input", 0, 0)
