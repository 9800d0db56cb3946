"""Changes to a float model without which ai-edge-quantizer refuses or misreads it.

- It requires a signature. Files of many converters have none.
- It reads one of the two fields for operator codes. Files of older converters fill only the other one, so it
  takes every operator for code 0 (ADD), and writes an invalid file without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from microfold.frontend.raw import malformed_as_error

_KEY = "serving_default"


class FileOperator(Struct, frozen=True):
    """Operator of a file.

    Attributes:
        name: name in the format.
        scope: name by which ai-edge-quantizer selects it: the names of all outputs, each with a semicolon.
    """

    name: str
    scope: str


class Normalised(Struct, frozen=True):
    """A model that ai-edge-quantizer can read.

    Attributes:
        data: bytes of the file.
        signature: key of the signature of the first subgraph.
        inputs: argument of the signature for each input of the subgraph.
        operators: operator that computes a tensor, by the tensor's index in the first subgraph.
        changes: one sentence for each change.
    """

    data: bytes
    signature: str
    inputs: tuple[str, ...]
    operators: Mapping[int, FileOperator]
    changes: tuple[str, ...]


def normalise(data: bytes, source: str) -> Normalised:
    """Return the model with a signature and complete operator codes.

    Args:
        data: a file that microfold has imported.
        source: name of the file in messages.

    Raises:
        ModelFormatError: the file is malformed.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema  # type: ignore[reportMissingImports]

    s: Any = schema
    with malformed_as_error(source):
        model: Any = s.ModelT.InitFromObj(s.Model.GetRootAs(data, 0))
        changes: list[str] = []
        codes = [code for code in model.operatorCodes if code.builtinCode < code.deprecatedBuiltinCode]
        for code in codes:
            code.builtinCode = code.deprecatedBuiltinCode
        if codes:
            changes.append(f"{len(codes)} operator codes were only in the field of older versions")
        graph = model.subgraphs[0]
        signatures = [each for each in model.signatureDefs or () if each.subgraphIndex == 0]
        if not signatures:
            signatures = [_signature(s, graph)]
            model.signatureDefs = [*(model.signatureDefs or ()), *signatures]
            changes.append("a signature was added")
        arguments = {int(each.tensorIndex): _text(each.name) for each in signatures[0].inputs or ()}
        inputs = tuple(arguments[int(index)] for index in graph.inputs)
        names = {code: name for name, code in vars(s.BuiltinOperator).items() if isinstance(code, int)}
        operators = {
            int(tensor): FileOperator(
                names.get(model.operatorCodes[each.opcodeIndex].builtinCode, "?"), _scope(graph, each)
            )
            for each in graph.operators
            for tensor in each.outputs
        }
        if changes:
            builder = flatbuffers.Builder(len(data))
            builder.Finish(model.Pack(builder), b"TFL3")
            data = bytes(builder.Output())
        return Normalised(data, _text(signatures[0].signatureKey), inputs, operators, tuple(changes))


def _signature(schema: Any, graph: Any) -> Any:
    """Return a signature of the first subgraph."""

    def named(prefix: str, indices: Any) -> list[Any]:
        found: list[Any] = []
        for position, index in enumerate(indices):
            entry = schema.TensorMapT()
            entry.name, entry.tensorIndex = f"{prefix}_{position}", int(index)
            found.append(entry)
        return found

    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = _KEY, 0
    signature.inputs, signature.outputs = named("input", graph.inputs), named("output", graph.outputs)
    return signature


def _scope(graph: Any, operator: Any) -> str:
    names = (_text(graph.tensors[int(index)].name) for index in operator.outputs)
    return "".join(f"{name};" for name in names if name)


def _text(name: bytes | str | None) -> str:
    return name.decode("utf-8", errors="replace") if isinstance(name, bytes) else name or ""
