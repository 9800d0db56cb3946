"""Programs and their C files, for tests that compile them by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from microfold import compiler, target
from microfold.codegen.emit import emit
from microfold.errors import MicrofoldError
from microfold.ir.graph import Graph
from microfold.ops.elementwise.add import Add
from microfold.program import Program
from tests import loops
from tests.kernels import graphs
from tests.kernels.random_networks import merge

WARNINGS = (
    *("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wcast-align", "-Wcast-qual"),
    *("-Wstrict-prototypes", "-Wundef", "-Wdouble-promotion", "-Werror"),
)
STRICT = ("-std=c99", *WARNINGS)


def sample_graphs() -> dict[str, Graph]:
    """Graphs that between them take every path of the product-sum kernels, and of control flow."""
    same = ((1, 1), (1, 1))
    return {
        "conv_odd": graphs.conv2d_graph(
            5, 7, 3, 5, padding=((1, 1), (0, 1)), activation=graphs.RELU6, batch=2
        ),
        "conv_dilated": graphs.conv2d_graph(9, 8, 4, 2, dilations=(2, 3), padding=((2, 2), (3, 3))),
        "conv_large_padding": graphs.conv2d_graph(
            3, 3, 2, 3, (5, 5), padding=((4, 4), (4, 4)), strides=(2, 3)
        ),
        "conv_pointwise": graphs.conv2d_graph(3, 3, 6, 7, (1, 1), saturated=True, bias=False),
        "depthwise": graphs.depthwise_conv2d_graph(6, 7, 5, padding=same, activation=graphs.RELU),
        "depthwise_stride": graphs.depthwise_conv2d_graph(9, 9, 3, strides=(2, 2), multiplier=2, batch=2),
        "depthwise_column": graphs.depthwise_conv2d_graph(20, 1, 4, (7, 1)),
        "depthwise_wide": graphs.depthwise_conv2d_graph(3, 20, 4, (1, 9), dilations=(1, 2), saturated=True),
        "fully_connected": graphs.fully_connected_graph(13, 7, batch=3),
        "fully_connected_one": graphs.fully_connected_graph(16, 1, per_channel=True, saturated=True),
        "int4": merge(
            [
                graphs.fully_connected_graph(603, 11, largest=7, saturated=True),
                graphs.fully_connected_graph(64, 20, largest=7),
                graphs.conv2d_graph(5, 5, 6, 21, dilations=(1, 2), largest=7, saturated=True),
                graphs.conv2d_graph(3, 3, 30, 25, (1, 1), largest=7),
            ]
        ),
        "branch": loops.branch(),
        "bounded_loop": loops.bounded(),
        "add": graphs.one_node_graph(
            Add(graphs.int8_element()),
            [graphs.int8_input("a", (2, 3, 4)), graphs.int8_input("b", (3, 1), 0.02, -128)],
            {},
        ),
    }


def compile_sample(name: str, graph: Graph, target_name: str = "host") -> Program:
    return compiler.compile_graph(graph, target.load(target_name), name=name)


def compiled_models(paths: Sequence[Path], target_name: str = "host") -> Iterator[Program]:
    """Those of the models that compile; others are the frontend's or the kernels' business."""
    for path in paths:
        try:
            yield compiler.compile_file(path, target.load(target_name), name=f"model_{path.stem}")
        except MicrofoldError:
            continue


def write_sources(program: Program, folder: Path) -> list[str]:
    """Writes the C files; names of those to compile."""
    files = emit(program)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(name for name in files if name.endswith(".c"))
