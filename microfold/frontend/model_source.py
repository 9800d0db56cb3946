"""Reader of models from paths, bytes, file objects and graphs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct

from microfold.errors import InputError
from microfold.frontend import text_form, tflite
from microfold.frontend.bind_symbolic_vars import parse_shapes
from microfold.frontend.labels import NO_LABELS, Labels, labels_of_model
from microfold.ir.graph import Graph
from microfold.support.files import read_file


class BinaryFile(Protocol):
    """File object that is open for reading bytes."""

    def read(self) -> bytes: ...


ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview[int] | BinaryFile | Graph"
# Name of a model without a file name.
UNNAMED = "model"


class SourceModel(Struct, frozen=True):
    """Imported model.

    Attributes:
        file: name of its file, without folders.
        data: content of its file; None for a graph.
    """

    graph: Graph
    file: str = ""
    data: bytes | None = None

    @property
    def labels(self) -> Labels:
        """Class names in the metadata of the file."""
        return NO_LABELS if self.data is None else labels_of_model(self.data)


def load_model(
    source: ModelSource, signature: str | None = None, input_shapes: Sequence[str] = ()
) -> SourceModel:
    """Return the imported model.

    Args:
        source: path of a `.tflite` file, of a C array of one, or of a graph in text form (`.mf`); the content
            of a `.tflite` file as bytes; a file object that is open for reading bytes; or an imported graph.
        signature: signature of a `.tflite` file whose subgraph is imported; None: the first subgraph.
        input_shapes: shapes of inputs with open dimensions, each ``NAME=1,49,10,1``.

    Raises:
        MicrofoldError: the model cannot be read, is malformed, or has parts that cannot be compiled.
    """
    if isinstance(source, Graph):
        _check_unused("an imported graph", signature, input_shapes)
        return SourceModel(source)
    path, data = read_source(source)
    if path.suffix == text_form.SUFFIX:
        _check_unused("a graph in text form", signature, input_shapes)
        return SourceModel(text_form.parse_graph(data, str(path)), path.name, data)
    shapes = parse_shapes(input_shapes)
    graph = tflite.import_model(data, path.stem, path.name, shapes, signature)
    return SourceModel(graph, path.name, data)


def _check_unused(kind: str, signature: str | None, input_shapes: Sequence[str]) -> None:
    for option, given in (("signature", signature is not None), ("input_shapes", input_shapes)):
        if given:
            raise InputError(f"{option} requires a .tflite file; the model is {kind}: remove the option")


def read_source(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview[int] | BinaryFile,
) -> tuple[Path, bytes]:
    """Return the path of a model, or the name in its place, and its content.

    Raises:
        InputError: it cannot be read, or is not a model.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return path, read_file(path) if path.suffix == text_form.SUFFIX else tflite.read_file(path)
    if isinstance(source, bytes | bytearray | memoryview):
        return Path(UNNAMED), bytes(source)
    read = getattr(source, "read", None)
    if read is None:
        raise InputError(
            "a model must be a path, bytes, a file object that is open for reading bytes, or a graph; "
            f"got {type(source).__name__}"
        )
    data: object = read()
    if not isinstance(data, bytes):
        raise InputError(
            f"a file object of a model must give bytes; it gives {type(data).__name__}: open the file with "
            "mode 'rb'"
        )
    name: object = getattr(source, "name", "")  # a number for files that were opened by their descriptor
    return Path(name if isinstance(name, str) and name else UNNAMED), data
