"""Reader of graphs in their text form (`.mf` files)."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO

from microfold.errors import InputError
from microfold.frontend.formats import GRAPH_TEXT, TFLITE, is_tflite, recognise
from microfold.ir.domain import admit
from microfold.ir.graph import Graph
from microfold.ir.text import parse

SUFFIX = ".mf"


def parse_graph(data: bytes, source: str) -> Graph:
    """Return the graph in the bytes of a file.

    Args:
        source: path or name of the file, for messages.

    Raises:
        MicrofoldError: the text is not well-formed, or its graph cannot be compiled.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = TFLITE if is_tflite(data) else recognise(BytesIO(data), len(data))
        if found is not None and found is not GRAPH_TEXT:
            raise InputError(f"a .mf file must be a graph in text form; {source} is {found.advice}") from None
        raise InputError(
            f"{source} is not UTF-8 text: byte {error.start} is {error.object[error.start]}; "
            "pass the output of `microfold ir`, or a .tflite file"
        ) from None
    import_module("microfold.ops")  # registers the operators
    graph = parse(text, source=source)
    admit(graph)
    return graph
