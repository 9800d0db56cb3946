"""The named references, run call by call with every tensor kept.

`tflm` is TensorFlow Lite for Microcontrollers, `litert` LiteRT's reference kernels. Which of them decides is
written in the documentation of the reference; `decide` applies it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tflite
from numpy.typing import NDArray

Array = NDArray[np.generic]
Tensors = dict[int, Array]  # tensor index in the file to its content after a call

ARENA_BYTES = 64 << 20


class OracleError(Exception):
    """The oracle cannot run the model."""


@dataclass(frozen=True)
class Signature:
    """A graph input or output as the file declares it."""

    index: int
    shape: tuple[int, ...]
    dtype: np.dtype


_NUMPY = {
    tflite.TensorType.FLOAT32: "float32",
    tflite.TensorType.FLOAT16: "float16",
    tflite.TensorType.INT32: "int32",
    tflite.TensorType.UINT8: "uint8",
    tflite.TensorType.INT64: "int64",
    tflite.TensorType.BOOL: "bool",
    tflite.TensorType.INT16: "int16",
    tflite.TensorType.INT8: "int8",
}


def available(package: str) -> bool:
    """Whether a wheel can be imported; on CI it must be."""
    try:
        __import__(package)
    except ImportError:
        if os.environ.get("CI") == "true":
            raise
        return False
    return True


def operator_outputs(data: bytes) -> list[int]:
    """Tensors of the main subgraph that operators write, in order."""
    graph = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)
    result: list[int] = []
    for i in range(graph.OperatorsLength()):
        operator = graph.Operators(i)
        result += [int(operator.Outputs(j)) for j in range(operator.OutputsLength())]
    return result


def random_inputs(types: Sequence[tuple[tuple[int, ...], np.dtype]], seed: int) -> list[Array]:
    """Inputs over the whole range of their types; floats are standard normal, some of them large."""
    rng = np.random.default_rng(seed)
    inputs: list[Array] = []
    for shape, dtype in types:
        if dtype.kind == "f":
            inputs.append((rng.standard_normal(shape) * 10.0 ** rng.integers(-1, 2)).astype(dtype))
        elif dtype.kind == "b":
            inputs.append(rng.integers(0, 2, shape).astype(bool))
        else:
            info = np.iinfo(dtype)
            low, high = (info.min, info.max) if dtype.itemsize <= 2 else (-100, 100)
            # Half of the calls stay near the middle: a saturated network tells little.
            if seed % 2:
                spread = (high - low) // 8
                low, high = (low + high) // 2 - spread, (low + high) // 2 + spread
            inputs.append(rng.integers(low, high + 1, shape).astype(dtype))
    return inputs


def tflm(data: bytes, calls: Sequence[Sequence[Array]], wanted: Sequence[int]) -> list[Tensors]:
    """TensorFlow Lite for Microcontrollers: the wanted tensors after each call."""
    from tflite_micro import runtime

    try:
        interpreter = runtime.Interpreter.from_bytes(
            data,
            arena_size=max(ARENA_BYTES, 2 * len(data)),
            intrepreter_config=runtime.InterpreterConfig.kPreserveAllTensors,
        )
        results: list[Tensors] = []
        for inputs in calls:
            for index, array in enumerate(inputs):
                interpreter.set_input(array, index)
            interpreter.invoke()
            results.append({i: np.array(interpreter.GetTensor(i, 0)["tensor_data"]) for i in wanted})
    except (RuntimeError, ValueError) as error:
        raise OracleError(f"tflite-micro: {error}") from None
    return results


def litert(
    data: bytes, calls: Sequence[Sequence[Array]], wanted: Sequence[int], reference: bool = True
) -> list[Tensors]:
    """LiteRT's reference kernels (or its default ones, without delegates): the wanted tensors after each call."""
    from ai_edge_litert import interpreter as module

    kinds = module.OpResolverType
    try:
        interpreter = module.Interpreter(
            model_content=data,
            experimental_op_resolver_type=kinds.BUILTIN_REF
            if reference
            else kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )
        interpreter.allocate_tensors()
        positions = [detail["index"] for detail in interpreter.get_input_details()]
        results: list[Tensors] = []
        for inputs in calls:
            for index, array in zip(positions, inputs, strict=True):
                interpreter.set_tensor(index, array)
            interpreter.invoke()
            results.append({i: np.array(interpreter.get_tensor(i)) for i in wanted})
    except (RuntimeError, ValueError) as error:
        raise OracleError(f"LiteRT: {error}") from None
    return results
