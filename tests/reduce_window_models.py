"""Files with a STABLEHLO_REDUCE_WINDOW, drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import flatbuffers
import numpy as np

from tests.tflite_writer import Array, Writer

FUNCTIONS = ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM")


def _longs(builder: flatbuffers.Builder, numbers: list[int]) -> int:
    return builder.CreateNumpyVector(np.array(numbers, np.int64))


def draw_reduce_window(function: str, dtype: str, seed: int) -> tuple[bytes, list[Array]]:
    """A model of one such operator, whose body is the function, and the input of a call."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    shape = rng.integers(2, 7, rank)
    window = [int(rng.integers(1, min(n, 3) + 1)) for n in shape]
    strides, dilations = (rng.integers(1, 3, rank).tolist() for _ in range(2))
    base = rng.integers(1, 3, rank).tolist() if rng.random() < 0.3 else [1] * rank
    padding = rng.integers(0, 3, (rank, 2)) * int(rng.integers(2))
    wide = (shape - 1) * base + 1 + padding.sum(axis=1)
    reach = (np.array(window) - 1) * dilations + 1
    padding[:, 1] += np.maximum(reach - wide, 0)
    wide = np.maximum(wide, reach)
    result = tuple(((wide - reach) // strides + 1).tolist())
    x = (rng.standard_normal(tuple(shape)) * 20).astype("i4" if dtype != "f4" else dtype).astype(dtype)
    start = np.array({"MULTIPLY": 1, "MAXIMUM": -50, "MINIMUM": 50}.get(function, 0), dtype)
    return _model(
        function, x, start, result, (window, strides, base, dilations, padding.reshape(-1).tolist())
    )


def draw_pool(seed: int) -> tuple[bytes, list[Array]]:
    """A maximum of images' windows that starts at minus infinity."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1, *rng.integers(4, 9, 2), 3)).astype(np.float32)
    window, strides = (rng.integers(low, 4, 2).tolist() for low in (2, 1))
    padding = rng.integers(0, 2, (2, 2))
    wide = np.array(x.shape[1:3]) + padding.sum(axis=1)
    rows, columns = ((wide - window) // strides + 1).tolist()
    lists = [[1, *pair, 1] for pair in (window, strides, [1, 1], [1, 1])]
    edges = [0, 0, *padding.reshape(-1).tolist(), 0, 0]
    start = np.array(-np.inf, np.float32)
    return _model("MAXIMUM", x, start, (1, rows, columns, 3), (*lists, edges))


def _model(
    function: str, x: Array, start: Array, result: tuple[int, ...], lists: Sequence[list[int]]
) -> tuple[bytes, list[Array]]:
    """`lists`: window, strides, dilations of elements and of windows, padding."""
    dtype = x.dtype.str[1:]
    writer = Writer()
    operands = [writer.input(x.shape, dtype), writer.tensor((), dtype, data=start)]
    fields = ("WindowDimensions", "WindowStrides", "BaseDilations", "WindowDilations", "Padding")
    vectors = {name: _longs(writer.builder, numbers) for name, numbers in zip(fields, lists, strict=True)}
    kind = "StablehloReduceWindowOptions"
    output = writer.tensor(result, dtype)
    writer.operator("STABLEHLO_REDUCE_WINDOW", operands, output, kind, BodySubgraphIndex=1, **vectors)
    writer.end_subgraph()
    body = [writer.input((), dtype) for _ in range(2)]
    writer.operator(f"STABLEHLO_{function}", body, writer.tensor((), dtype))
    return writer.pack(), [x]
