"""Importer of `.tflite` files: nothing TFLite-shaped survives it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from microfold.errors import ModelFormatError, Problem, TypeRuleError, UnsupportedModelError
from microfold.frontend import operators as _operators  # noqa: F401  (registers the importers)
from microfold.frontend.context import IMPORTERS, OperatorContext, Unsupported
from microfold.frontend.reader import RawOperator, RawSubgraph, RawTensor, read_model
from microfold.ir.graph import Graph, Node, Value
from microfold.ir.types import Array, TensorType

MAX_FILE_BYTES = 1 << 30


def load(path: str | Path) -> Graph:
    """Import a model from a file; the graph is named after it.

    Raises:
        ModelFormatError: unreadable or malformed.
        UnsupportedModelError: well-formed, but with parts that cannot be compiled: all of them.
    """
    path = Path(path)
    return import_model(read_file(path), path.stem, source=path.name)


def read_file(path: Path) -> bytes:
    """The bytes of a model file.

    Raises:
        ModelFormatError: it cannot be read or is absurdly large.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ModelFormatError(f"{path.name} is larger than {MAX_FILE_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ModelFormatError(f"cannot read {path}: {error.strerror}") from None


def import_model(data: bytes, name: str = "model", source: str = "the model") -> Graph:
    """Import a model from bytes; see `load`."""
    return trace_model(data, name, source).graph


@dataclass(frozen=True)
class Traced:
    """An imported model and where its tensors went.

    Attributes:
        values: tensor index in the file (main subgraph) to the value that stands for it.
    """

    graph: Graph
    values: Mapping[int, Value]


def trace_model(data: bytes, name: str = "model", source: str = "the model") -> Traced:
    """Import a model and keep the correspondence of tensors: what a comparison with an oracle needs."""
    importer = _Importer(read_model(data, source)[0], source)
    return Traced(importer.run(name), importer.values)


@dataclass(frozen=True)
class Surveyed:
    """One operator of a file, supported or not.

    Attributes:
        nodes: what it was imported as; empty after a problem.
        inputs, outputs: types, inferred anew where that was possible.
    """

    raw: RawOperator
    tensor: str
    nodes: tuple[Node, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    problem: Problem | None


@dataclass(frozen=True)
class Survey:
    """Everything that can be said of a well-formed file."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    operators: tuple[Surveyed, ...]
    problems: tuple[Problem, ...]


def survey(data: bytes, source: str) -> Survey:
    """Look at a model without refusing it.

    Raises:
        ModelFormatError: the file is malformed.
    """
    subgraph = read_model(data, source)[0]
    importer = _Importer(subgraph, source)
    try:
        importer.run("survey")
    except UnsupportedModelError as error:
        problems = error.problems
    else:
        problems = ()
    values = importer.values
    return Survey(
        tuple(values[i] for i in subgraph.inputs),
        tuple(values[i] for i in subgraph.outputs if i in values),
        tuple(importer.surveyed),
        problems,
    )


class _Importer:
    def __init__(self, subgraph: RawSubgraph, source: str):
        self.subgraph = subgraph
        self.source = source
        self.values: dict[int, Value] = {}
        self.constants: dict[Value, Array] = {}
        self.nodes: list[Node] = []
        self.problems: list[Problem] = []
        self.surveyed: list[Surveyed] = []

    def run(self, name: str) -> Graph:
        subgraph = self.subgraph
        for tensor in subgraph.tensors:
            if tensor.data is not None and tensor.dtype is not None:
                value = Value(tensor.name, TensorType(tensor.dtype, tensor.shape, tensor.quant))
                self.values[tensor.index] = value
                self.constants[value] = tensor.data
        # A graph input that is backed by a constant cannot be set: it is a constant.
        inputs = [i for i in dict.fromkeys(subgraph.inputs) if i not in self.values]
        for index in inputs:
            self.values[index] = self.placeholder(subgraph.tensors[index], "the model's input")
        for operator in subgraph.operators:
            self.operator(operator)
        for index in subgraph.outputs:
            if index not in self.values:
                self.problems.append(Problem(f"output {subgraph.tensors[index].name!r}", "no operator computes it"))
        if not subgraph.outputs:
            self.problems.append(Problem("the model", "it has no outputs"))
        if self.problems:
            raise UnsupportedModelError(self.source, self.problems)
        graph = Graph(
            name=re.sub(r"\s+", "_", name),
            inputs=tuple(self.values[i] for i in inputs),
            outputs=tuple(self.values[i] for i in subgraph.outputs),
            nodes=tuple(self.nodes),
            constants=self.constants,
        )
        return graph.with_nodes(graph.nodes)

    def placeholder(self, tensor: RawTensor, where: str) -> Value:
        """A value typed as the file declares it; an unknown (-1) dimension is taken as 1."""
        if tensor.dtype is None:
            self.problems.append(
                Problem(f"{where} {tensor.name!r}", f"element type {tensor.type_name} is not supported")
            )
        dtype = tensor.dtype or next(t.dtype for t in self.subgraph.tensors if t.dtype is not None)
        assert dtype is not None
        shape = tuple(1 if extent == -1 else extent for extent in tensor.shape)
        return Value(tensor.name, TensorType(dtype, shape, tensor.quant))

    def operator(self, raw: RawOperator) -> None:
        tensors = self.subgraph.tensors
        nodes, problems = len(self.nodes), len(self.problems)
        where = f"operator {raw.index} ({raw.name})"
        if raw.outputs:
            where += f" {tensors[raw.outputs[0]].name!r}"
        undefined = [tensors[i].name for i in raw.inputs if i >= 0 and i not in self.values]
        if undefined:
            self.problems.append(Problem(where, f"it reads {undefined}, which nothing has computed yet"))
        elif raw.name not in IMPORTERS:
            self.problems.append(Problem(where, "this operator is not supported"))
        else:
            context = OperatorContext(raw, tensors, self.values, self.constants, self.nodes)
            try:
                IMPORTERS[raw.name](context)
            except Unsupported as error:
                self.problems.append(Problem(where, error.reason, error.hint))
            except TypeRuleError as error:
                self.problems.append(Problem(where, str(error)))
        # After a problem the declared types stand in, so that later problems are found as well.
        for index in raw.outputs:
            if index not in self.values:
                tensor = tensors[index]
                dtype = tensor.dtype or self.values[min(self.values)].type.dtype
                shape = tuple(max(extent, 1) for extent in tensor.shape)
                self.values[index] = Value(tensor.name, TensorType(dtype, shape, tensor.quant))
        self.surveyed.append(
            Surveyed(
                raw,
                tensors[raw.outputs[0]].name if raw.outputs else "",
                tuple(self.nodes[nodes:]),
                tuple(self.values[i].type for i in raw.inputs if i in self.values),
                tuple(self.values[i].type for i in raw.outputs),
                self.problems[-1] if len(self.problems) > problems else None,
            )
        )
