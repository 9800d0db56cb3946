"""Reader of graphs in their text form (`.mf` files)."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from pathlib import Path

from microfold.errors import InputError
from microfold.frontend.formats import GRAPH_TEXT, TFLITE, is_tflite, recognise
from microfold.ir.domain import admit
from microfold.ir.graph import Graph
from microfold.ir.text import parse
from microfold.support.files import read_file

SUFFIX = ".mf"


def read_graph(path: Path) -> tuple[Graph, bytes]:
    """Return the graph in a file, and the bytes of the file.

    Raises:
        MicrofoldError: the file cannot be read, is not well-formed, or its graph cannot be compiled.
    """
    data = read_file(path)
    return parse_graph(data, str(path)), data


def parse_graph(data: bytes, source: str) -> Graph:
    """Return the graph in the bytes of a file; see `read_graph`.

    Args:
        source: path or name of the file, for messages.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = TFLITE if is_tflite(data) else recognise(BytesIO(data), len(data))
        if found not in (None, GRAPH_TEXT):
            raise InputError(
                f"a .mf file must be a graph in text form; {source} is {found.name}: {found.remedy} "
                f"(docs/{found.page})"
            ) from None
        raise InputError(
            f"{source} is not UTF-8 text: byte {error.start} is {error.object[error.start]}; "
            "pass the output of `microfold ir`, or a .tflite file"
        ) from None
    import_module("microfold.ops")  # registers the operators
    graph = parse(text, source=source)
    admit(graph)
    return graph
