"""Importer of `.tflite` files. The resulting graph does not depend on the file format."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from microfold.errors import InputError, ModelFormatError, Problem, TypeRuleError, UnsupportedModelError
from microfold.frontend.bind_symbolic_vars import NO_SHAPES, Shapes, bind_symbolic_vars
from microfold.frontend.bodies import Body
from microfold.frontend.c_array import MAX_SOURCE_BYTES, looks_like_source, model_of_source
from microfold.frontend.complex_numbers import COMPLEX, COMPLEX_NAME
from microfold.frontend.context import OperatorContext
from microfold.frontend.formats import HEAD, describe_folder, is_tflite, recognise
from microfold.frontend.hints import CHANGE, unsupported_operator
from microfold.frontend.importers import BLOCKWISE_INPUTS, SCRATCH_INPUTS, ImportFunction
from microfold.frontend.list_writes import find_list_writes
from microfold.frontend.operators import IMPORTERS
from microfold.frontend.operators.movement.list_write import list_write
from microfold.frontend.raw import RawOperator, RawSubgraph, RawTensor
from microfold.frontend.reader import read_model
from microfold.frontend.schema import operator_names
from microfold.frontend.scope import Allowance, ImportScope, Unsupported, describe
from microfold.frontend.signatures import entry
from microfold.frontend.variables import Variable, Variables
from microfold.ir.domain import constant_faults
from microfold.ir.graph import Graph
from microfold.ir.limits import MADE_BYTES, MADE_FACTOR, MAX_DEPTH
from microfold.ir.node import Node, Value
from microfold.ir.types import TensorType
from microfold.support import files

MAX_FILE_BYTES = 1 << 30

MAX_BODIES = 256  # bodies per model: a small file can call the same subgraphs exponentially often

_WITHOUT_OUTPUT = operator_names("ASSIGN_VARIABLE", "CALL_ONCE")


def load(path: str | Path, shapes: Shapes = NO_SHAPES, signature: str | None = None) -> Graph:
    """Import a model from a file. The graph has the name of the file.

    Args:
        shapes: shapes of inputs with open dimensions, see `bind_symbolic_vars`.
        signature: signature whose subgraph is imported; None: the first subgraph.

    Raises:
        InputError: the file cannot be read, `shapes` do not match, or the file has no such signature.
        ModelFormatError: the file is malformed.
        UnsupportedModelError: the file is well-formed, but has parts that cannot be compiled. All of them
            are listed.
    """
    path = Path(path)
    return import_model(read_file(path), path.stem, path.name, shapes, signature)


def read_file(path: Path) -> bytes:
    """Return the bytes of a model, from a `.tflite` file or from the C array in a source file.

    Raises:
        InputError: the file cannot be read, or is larger than `MAX_FILE_BYTES`.
        ModelFormatError: the file has another format.
    """
    if os.path.isdir(path):
        found = describe_folder(path)
        raise InputError(
            f"cannot read {path}: a model must be a file; it is a folder"
            + (f", {found.advice}" if found else ": pass a file in it")
        )
    with files.open_file(path) as (file, size):
        found = recognise(file, size)
        if found is not None:
            raise ModelFormatError(found.message(path.name))
        file.seek(0)
        head = file.read(HEAD)
        is_source = not is_tflite(head) and looks_like_source(head)
        file.seek(0)
        data = files.read_whole(file, path, size, MAX_SOURCE_BYTES if is_source else MAX_FILE_BYTES)
    return model_of_source(data, path.name) if is_source else data


def import_model(
    data: bytes,
    name: str = "model",
    source: str = "the model",
    shapes: Shapes = NO_SHAPES,
    signature: str | None = None,
) -> Graph:
    """Import a model from bytes; see `load`."""
    return trace_model(data, name, source, shapes, signature).graph


class ImportTrace(Struct, frozen=True):
    """Imported model with the correspondence between tensors and values.

    Attributes:
        values: value of each tensor, by tensor index in the imported subgraph.
    """

    graph: Graph
    values: Mapping[int, Value]


def trace_model(
    data: bytes,
    name: str = "model",
    source: str = "the model",
    shapes: Shapes = NO_SHAPES,
    signature: str | None = None,
) -> ImportTrace:
    """Import a model with the values of its tensors, for a comparison with another implementation."""
    subgraphs = read_model(data, source)
    main = entry(data, source, subgraphs, signature)
    bound = bind_symbolic_vars(subgraphs[main], shapes)
    importer = _Importer((*subgraphs[:main], bound, *subgraphs[main + 1 :]), main, Variables())
    importer.run()
    graph = importer.finish(re.sub(r"\s+", "_", name), source)
    values = {index: importer.scope.in_graph(value) for index, value in importer.scope.values.items()}
    return ImportTrace(graph, values)


class SurveyedOperator(Struct, frozen=True):
    """Operator of a file, supported or not.

    Attributes:
        tensor: name of the first output.
        nodes: nodes of the import; empty if the operator could not be imported.
        inputs, outputs: types, inferred again if possible.
        problem: reason why the operator is not supported; None if it is, or if it depends on another problem.
    """

    name: str
    tensor: str
    nodes: tuple[Node, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    problem: Problem | None


class Survey(Struct, frozen=True):
    """Description of a well-formed file, supported or not."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    operators: tuple[SurveyedOperator, ...]
    problems: tuple[Problem, ...]


def survey(data: bytes, source: str, signature: str | None = None) -> Survey:
    """Describe a model, even if it cannot be compiled.

    Args:
        signature: see `load`.

    Raises:
        InputError: the file has no such signature.
        ModelFormatError: the file is malformed.
    """
    subgraphs = read_model(data, source)
    importer = _Importer(subgraphs, entry(data, source, subgraphs, signature), Variables())
    importer.run()
    try:
        importer.finish("survey", source)
    except UnsupportedModelError as error:
        problems = error.problems
    else:
        problems = ()
    subgraph, scope = importer.subgraph, importer.scope
    values = {index: scope.in_graph(value) for index, value in scope.values.items()}
    return Survey(
        tuple(values[i] for i in subgraph.inputs if i in values),
        tuple(values[i] for i in subgraph.outputs if i in values),
        tuple(importer.surveyed),
        problems,
    )


def _allowance(subgraphs: Sequence[RawSubgraph]) -> Allowance:
    data = (tensor.data for subgraph in subgraphs for tensor in subgraph.tensors)
    given = sum(array.nbytes for array in data if array is not None)
    return Allowance(MADE_BYTES + MADE_FACTOR * given)


class _Importer:
    """Importer of one subgraph.

    Args:
        outer: importer of the subgraph that runs this one.
        is_initializer: whether CALL_ONCE initialises variables with this subgraph.
    """

    def __init__(
        self,
        subgraphs: Sequence[RawSubgraph],
        index: int,
        variables: Variables,
        outer: _Importer | None = None,
        *,
        is_initializer: bool = False,
    ):
        self.subgraphs = subgraphs
        self.index = index
        self.subgraph = subgraphs[index]
        self.problems: list[Problem] = outer.problems if outer is not None else []
        self.running: tuple[int, ...] = (*(outer.running if outer is not None else ()), index)
        self.bodies: list[int] = outer.bodies if outer is not None else []
        self.prefix = f"subgraph {index}, " if outer is not None else ""
        self.allowance: Allowance = outer.allowance if outer is not None else _allowance(subgraphs)
        self.scope = ImportScope(
            self.subgraph.tensors,
            variables,
            self.allowance,
            is_initializer=is_initializer,
            initialize=self.initialize,
            enter=self.enter,
        )
        self.inputs: list[int] = []
        self.surveyed: list[SurveyedOperator] = []

    def run(self, arguments: Sequence[Value | Variable] | None = None) -> None:
        """Import all operators. If an operator cannot be imported, it is added to the problems.

        Args:
            arguments: arguments of the subgraph; variables are stand-ins in its own scope.
        """
        scope = self.scope
        for tensor in self.subgraph.tensors:
            if tensor.data is not None and tensor.dtype is not None:
                value = Value(tensor.name, TensorType(tensor.dtype, tensor.shape, tensor.quant))
                scope.values[tensor.index] = value
                scope.constants[value] = tensor.data
        for index, count in Counter(self.subgraph.inputs).items():
            if count > 1:
                where = f"{self.prefix}input {self.subgraph.tensors[index].name!r}"
                self.problems.append(
                    Problem(
                        where, f"a tensor may be listed as an input only once; it is listed {count} times"
                    )
                )
        # A graph input with a buffer cannot be set, so it is a constant.
        self.inputs = [i for i in dict.fromkeys(self.subgraph.inputs) if i not in scope.values]
        if arguments is not None:
            self.accept(arguments)
        for index in self.inputs if arguments is None else ():
            self.declare(self.subgraph.tensors[index], f"input {self.subgraph.tensors[index].name!r}")
        writes = {write.operator.index: write for write in find_list_writes(self.subgraph)}
        parts = {index for write in writes.values() for index in write.parts}
        for operator in self.subgraph.operators:
            nodes, problems = len(scope.nodes), len(self.problems)
            if operator.index in writes:
                self.operator(writes[operator.index].operator, list_write)
            elif operator.index not in parts:
                self.operator(operator, IMPORTERS.get(operator.name))
            self.surveyed.append(self.describe(operator, nodes, problems))

    def describe(self, raw: RawOperator, nodes: int, problems: int) -> SurveyedOperator:
        """Return the survey entry of an operator: its nodes and problems are those after these counts."""
        scope = self.scope

        def types(tensors: Sequence[int]) -> tuple[TensorType, ...]:
            return tuple(scope.in_graph(scope.values[i]).type for i in tensors if i in scope.values)

        return SurveyedOperator(
            raw.name,
            self.subgraph.tensors[raw.outputs[0]].name if raw.outputs else "",
            tuple(scope.nodes[nodes:]),
            types(raw.inputs),
            types(raw.outputs),
            self.problems[problems] if len(self.problems) > problems else None,
        )

    def finish(self, name: str, source: str) -> Graph:
        """Return the graph.

        Raises:
            UnsupportedModelError: the model has problems.
        """
        scope, subgraph = self.scope, self.subgraph
        for index in subgraph.outputs:
            if index not in scope.values and index not in scope.unknown:
                where = f"output {subgraph.tensors[index].name!r}"
                self.problems.append(Problem(where, "no operator, input or constant defines it"))
        for variable in scope.variables.unassigned():
            where, reason = f"variable {variable.name!r}", "it is read, but never initialised or assigned"
            self.problems.append(Problem(where, reason, "export the model with its variables frozen"))
        if not subgraph.outputs:
            self.problems.append(Problem("the model", "it has no outputs"))
        if self.problems:
            # A subgraph that several operators run is imported, and rejected, several times.
            raise UnsupportedModelError(source, list(dict.fromkeys(self.problems)))
        graph = Graph(
            name=name,
            inputs=tuple(scope.in_graph(scope.values[i]) for i in self.inputs),
            outputs=tuple(scope.in_graph(scope.values[i]) for i in subgraph.outputs),
            nodes=tuple(scope.nodes),
            constants=scope.constants,
            state=scope.variables.states(),
            subgraphs=scope.subgraphs,
        )
        graph = graph.with_nodes(graph.nodes)
        faults = [
            Problem(f"constant {value.name!r}", fault, CHANGE) for value, fault in constant_faults(graph)
        ]
        if faults:
            raise UnsupportedModelError(source, list(dict.fromkeys(faults)))
        return graph

    def declare(self, tensor: RawTensor, where: str) -> None:
        """Create a value for a tensor, of the type in the file, or a problem if the type is not supported."""
        try:
            self.scope.declare(tensor.index)
        except Unsupported as error:
            self.problems.append(Problem(self.prefix + where, error.reason, error.hint or CHANGE))
            self.scope.unknown.add(tensor.index)

    def accept(self, arguments: Sequence[Value | Variable]) -> None:
        """Bind the inputs to arguments.

        Raises:
            Unsupported: the arguments do not match the inputs.
        """
        inputs = self.subgraph.inputs
        if len(inputs) != len(arguments) or self.inputs != list(inputs):
            raise Unsupported(
                f"subgraph {self.index} must have {len(arguments)} distinct inputs; it has {len(self.inputs)}"
            )
        for index, argument in zip(inputs, arguments, strict=True):
            if isinstance(argument, Variable):
                self.scope.variables.handles[index] = argument
                continue
            element, name = self.scope.declared_element(index), self.subgraph.tensors[index].name
            if element != argument.type.element:
                raise Unsupported(
                    f"input {name!r} of subgraph {self.index} is {element.dtype.value}, "
                    f"{describe(element.quant)}; it gets {argument.type}, {describe(argument.type.quant)}"
                )
            self.scope.values[index] = Value(name, argument.type)
        self.inputs = [i for i in inputs if i in self.scope.values]

    def operator(self, raw: RawOperator, function: ImportFunction | None) -> None:
        """Import one operator. `function` is None for an unsupported operator."""
        scope, tensors = self.scope, self.subgraph.tensors
        where = f"{self.prefix}operator {raw.index} ({raw.name})"
        if raw.outputs:
            where += f" {tensors[raw.outputs[0]].name!r}"
        if not scope.unknown.isdisjoint(raw.inputs):
            scope.unknown.update(i for i in raw.outputs if i not in scope.values)
            return  # it depends on a problem reported before
        try:
            if function is None:
                raise unsupported_operator(raw.name)
            self.check_operands(raw)
            context = OperatorContext(raw, scope)
            function(context)
            context.check_complete()
        except Unsupported as error:
            self.problems.append(Problem(where, error.reason, error.hint or CHANGE))
        except TypeRuleError as error:
            self.problems.append(Problem(where, str(error), CHANGE))
        # After a problem, results have the types in the file, so that later problems are also found.
        for index in raw.outputs:
            if index not in scope.values and index not in scope.variables.handles:
                try:
                    scope.declare(index)
                except Unsupported:
                    scope.unknown.add(index)

    def check_operands(self, raw: RawOperator) -> None:
        scope, tensors = self.scope, self.subgraph.tensors
        if raw.name not in COMPLEX:
            for index in (*raw.inputs, *raw.outputs):
                if index >= 0 and tensors[index].type_name == COMPLEX_NAME:
                    raise Unsupported(
                        f"{tensors[index].name!r} is complex; operators with complex support: "
                        f"{', '.join(sorted(COMPLEX))}",
                        "use the real or imaginary part, or the magnitude, before it",
                    )
        for position, index in enumerate(raw.inputs):
            if index < 0 or index in scope.values or index in scope.variables.handles:
                continue
            if position in SCRATCH_INPUTS.get(raw.name, ()):
                continue
            tensor = tensors[index]
            if tensor.is_variable:
                scope.declare_in_place(index)
            elif tensor.dtype is not None and 0 in tensor.shape and not tensor.shape_fault:
                # A tensor without elements has no buffer, and no operator needs to compute it.
                value = Value(tensor.name, TensorType(tensor.dtype, tensor.shape, tensor.quant))
                scope.values[index] = value
                scope.constants[value] = np.zeros(tensor.shape, tensor.dtype.numpy)
            elif tensor.dtype is None and tensor.type_name != "RESOURCE":
                raise Unsupported(
                    f"input {tensor.name!r} has element type {tensor.type_name}, which is not supported",
                    "use int8, int16, int32 or float32",
                )
            else:
                raise Unsupported(f"it reads {tensor.name!r}, which no earlier operator has computed")
        for kind, indices in (("input", raw.inputs), ("output", raw.outputs)):
            for position, tensor in ((i, tensors[index]) for i, index in enumerate(indices) if index >= 0):
                if tensor.shape_fault:
                    raise Unsupported(f"{kind} {tensor.name!r}: {tensor.shape_fault}")
                # For computed tensors, the type rule infers the type.
                in_blocks = tensor.blocks is not None and position in BLOCKWISE_INPUTS.get(raw.name, ())
                if tensor.quant_fault and kind == "input" and tensor.data is not None and not in_blocks:
                    raise Unsupported(f"{kind} {tensor.name!r}: {tensor.quant_fault}", "quantise again")
        if not raw.outputs and raw.name not in _WITHOUT_OUTPUT:
            raise Unsupported("it has no outputs")
        for position, index in enumerate(raw.outputs):
            if index in scope.values or index in raw.outputs[:position]:
                raise Unsupported(f"it writes {tensors[index].name!r}, which already has a value")

    def initialize(self, index: int) -> None:
        """Run an initialiser subgraph, which assigns constants to variables as their initial values."""
        if self.scope.is_initializer or not 0 <= index < len(self.subgraphs) or index in self.running:
            raise Unsupported(f"CALL_ONCE cannot run subgraph {index}")
        outer = self.scope.variables
        inner = Variables(by_key=outer.by_key)
        initializer = _Importer(self.subgraphs, index, inner, self, is_initializer=True)
        initializer.run()
        if initializer.scope.nodes:
            raise Unsupported(
                f"subgraph {index} computes the initial value of a variable; it must only assign constants"
            )

    def enter(self, index: int, operands: Sequence[Value | Variable]) -> Body:
        """Import a subgraph that an operator runs.

        Raises:
            Unsupported: the subgraph has problems, which are reported, or cannot be run here.
        """
        if not 0 <= index < len(self.subgraphs) or index in self.running:
            raise Unsupported(f"it cannot run subgraph {index} of {len(self.subgraphs)} here")
        if len(self.running) > MAX_DEPTH:
            raise Unsupported(f"calls of subgraphs must not be nested more than {MAX_DEPTH} deep")
        self.bodies.append(index)
        if len(self.bodies) > MAX_BODIES:
            raise Unsupported(f"operators must not run more than {MAX_BODIES} subgraphs in total")
        before = len(self.problems)
        inner = self.scope.variables.inner()
        importer = _Importer(self.subgraphs, index, inner.variables, self)
        importer.run([inner.stand_in(x) if isinstance(x, Variable) else x for x in operands])
        if importer.scope.variables.in_place:
            raise Unsupported(f"subgraph {index} has its own state", "keep it in resource variables")
        scope = importer.scope
        outputs = [
            inner.outer_of(scope.variables.handles[i])
            if i in scope.variables.handles
            else scope.values.get(i)
            for i in importer.subgraph.outputs
        ]
        if len(self.problems) > before or None in outputs or not scope.complex.keys().isdisjoint(outputs):
            raise Unsupported(f"subgraph {index} cannot be imported")
        results = tuple(x for x in outputs if x is not None)
        graph = Graph(
            name=re.sub(r"\s+", "_", importer.subgraph.name) or f"subgraph_{index}",
            inputs=tuple(scope.values[i] for i in importer.inputs),
            outputs=tuple(x for x in results if isinstance(x, Value)),
            nodes=tuple(scope.nodes),
            constants=scope.constants,
            subgraphs=scope.subgraphs,
        )
        return Body(graph, results, inner.touched())
