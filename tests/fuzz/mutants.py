"""Valid models that say something else: other attributes, shapes, scales, zero points, constants.

What compiles is run as C under the sanitizers, compared with the reference, and operator by operator with the
oracle that decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import flatbuffers
import numpy as np

from microfold import target
from microfold.compiler import compile_graph
from microfold.frontend.tflite import trace_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.evaluation import has_loop
from tests.frontend import models
from tests.fuzz.builds import check_program
from tests.fuzz.engine import Case, Fault, Random
from tests.fuzz.files import bases
from tests.fuzz.wheels import Wheels

CALLS = 3
MOST_MACS = 300_000
MOST_ELEMENTS = 1 << 16  # of a value
INTEGERS = (-2147483648, -129, -128, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 127, 128, 255, 2147483647)
REALS = (
    0.0,
    -1.0,
    0.5,
    1.0,
    2.0,
    6.0,
    1e-3,
    1e3,
    1e-10,
    1e10,
    1e-38,
    3e38,
    -3e38,
    math.inf,
    -math.inf,
    math.nan,
)
FACTORS = (0.5, 0.99, 1.01, 2.0, 3.7, 1e-3, 1e3, 1e-8, 1e8)


class Edit(NamedTuple):
    """A change of a field, found by its path in the object tree.

    Attributes:
        path: attribute names and indices.
        how: ``set``, ``scale``, or ``each`` (some bytes, `value` is the seed).
    """

    path: tuple[str | int, ...]
    how: str
    value: float = 0


def schema() -> Any:
    """The object API, which comes with LiteRT's wheel."""
    from ai_edge_litert import schema_py_generated

    return schema_py_generated


@cache
def _data(name: str) -> bytes:
    return (models.MADE / f"{name}.tflite").read_bytes()


@cache
def _bases() -> list[str]:
    """Models of one subgraph with operators, of which an oracle computes all."""
    trees = {name: _tree(name) for name in bases() if (models.GOLDENS / f"{name}.npz").exists()}
    return [name for name, tree in trees.items() if len(tree.subgraphs) == 1 and tree.subgraphs[0].operators]


def _tree(name: str) -> Any:
    return schema().ModelT.InitFromPackedBuf(_data(name))


def pack(model: Any) -> bytes:
    """The file, buffers aligned to 16 bytes."""
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


class Mutants:
    """One to three changes of the fields of a model's operators and tensors."""

    suffix = ".tflite"
    seconds = 60

    def __init__(self) -> None:
        self.wheels = Wheels()

    def draw(self, rng: Random) -> Case:
        name = _bases()[int(rng.integers(len(_bases())))]
        model = _tree(name)
        return Case(name, tuple(self._edit(rng, model) for _ in range(int(rng.choice([1, 1, 1, 2, 3])))))

    def _edit(self, rng: Random, model: Any) -> Edit:
        graph = model.subgraphs[0]
        kind = str(
            rng.choice(["options", "options", "quantization", "quantization", "shape", "data", "wiring"])
        )
        if kind == "options":
            edit = self._options(rng, graph)
            if edit is not None:
                return edit
        if kind == "wiring":
            operator = int(rng.integers(len(graph.operators)))
            inputs = graph.operators[operator].inputs
            if inputs is not None and len(inputs):
                slot = int(rng.integers(len(inputs)))
                chosen = int(rng.integers(-1, len(graph.tensors)))
                return Edit(("subgraphs", 0, "operators", operator, "inputs", slot), "set", chosen)
        tensor = int(rng.integers(len(graph.tensors)))
        path: tuple[str | int, ...] = ("subgraphs", 0, "tensors", tensor)
        found = graph.tensors[tensor]
        quantization = found.quantization
        if kind == "quantization" and quantization is not None and quantization.scale is not None:
            if rng.random() < 0.6:
                how, value = ("scale", FACTORS) if rng.random() < 0.8 else ("set", REALS)
                return Edit((*path, "quantization", "scale"), how, float(rng.choice(value)))
            return Edit((*path, "quantization", "zeroPoint"), "set", int(rng.integers(-130, 130)))
        if kind == "data" and model.buffers[found.buffer].data is not None:
            return Edit(("buffers", found.buffer, "data"), "each", int(rng.integers(1 << 30)))
        if found.shape is not None and len(found.shape):
            axis = int(rng.integers(len(found.shape)))
            return Edit((*path, "shape", axis), "set", int(rng.choice([1, 2, 3, 4, 5, 7, 8, 9, 13])))
        return Edit((*path, "type"), "set", int(rng.integers(0, 18)))

    def _options(self, rng: Random, graph: Any) -> Edit | None:
        operator = int(rng.integers(len(graph.operators)))
        options = graph.operators[operator].builtinOptions
        names = sorted(vars(options)) if options is not None else []
        names = [name for name in names if isinstance(getattr(options, name), bool | int | float)]
        if not names:
            return None
        name = names[int(rng.integers(len(names)))]
        old = getattr(options, name)
        path = ("subgraphs", 0, "operators", operator, "builtinOptions", name)
        if isinstance(old, bool):
            return Edit(path, "set", int(not old))
        if isinstance(old, float):
            return Edit(path, "set", float(rng.choice(REALS)))
        near = rng.random() < 0.7
        return Edit(path, "set", int(rng.integers(0, 6)) if near else int(rng.choice(INTEGERS)))

    def payload(self, case: Case) -> bytes:
        model = _tree(case.base)
        for edit in case.edits:
            _apply(model, edit)
        try:
            return pack(model)
        except Exception:  # a number that its field cannot hold
            return _data(case.base)

    def check(self, payload: bytes) -> str:
        with np.errstate(all="ignore"):
            traced = trace_model(payload)
            graph = traced.graph
            small = sum(node.macs() for node in graph.nodes) <= MOST_MACS and all(
                value.type.size <= MOST_ELEMENTS for node in graph.nodes for value in node.outputs
            )
            if not small or has_loop(graph):
                return "imported"
            program = compile_graph(graph, target.load("host"), name="mutant")
            calls = [oracle.inputs_of(traced, seed) for seed in range(CALLS)]
            check_program(program, calls, Interpreter(graph))
        name, faults = self.wheels.judge(payload, calls)
        if faults and name:
            text = "\n".join(faults[:5])
            op = faults[0].partition(" of ")[2].split("(")[0].strip()
            raise Fault(f"reference against {name}: {op}\n{text}")
        return f"compared with {name}" if name else "compared with no wheel"


def _apply(model: Any, edit: Edit) -> None:
    *way, last = edit.path
    if isinstance(last, int):
        # Arrays of the file itself cannot be written.
        *way, name = way
        owner, last = _at(model, way), str(name)
        value: Any = np.array(getattr(owner, last))
        value[edit.path[-1]] = edit.value
        setattr(owner, last, value)
        return
    owner = _at(model, way)
    old = getattr(owner, last)
    if edit.how == "scale":
        value = np.asarray(old, np.float32) * np.float32(edit.value)
    elif edit.how == "each":
        rng = np.random.default_rng(int(edit.value))
        value = np.array(old, np.uint8)
        for index in rng.integers(value.size, size=int(rng.integers(1, 5))) if value.size else ():
            value[index] = rng.integers(256)
    elif last in ("scale", "zeroPoint"):
        kind = np.float32 if last == "scale" else np.int64
        value = np.full(len(old) if old is not None else 1, edit.value, kind)
    elif isinstance(old, bool | float):
        value = type(old)(edit.value)
    else:
        value = int(edit.value)
    setattr(owner, last, value)


def _at(model: Any, way: Sequence[str | int]) -> Any:
    """What a path leads to."""
    for step in way:
        model = model[step] if isinstance(step, int) else getattr(model, step)
    return model
