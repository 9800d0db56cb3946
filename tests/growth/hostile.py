"""Small files that ask for much work, and the time and memory that each may take.

``python -m tests.growth.hostile`` compiles them one after the other, in a process of its own, whose memory is
limited: it fails where it is not enough.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file
from microfold.errors import MicrofoldError
from microfold.ir.limits import MAX_ELEMENTS
from microfold.target import Target
from tests.tflite_writer import Writer, one_operator

# Bytes beyond those that the process has after a first model, and seconds of CPU for each file: several times
# those of an idle machine.
MEMORY, SECONDS = 500 << 20, 6.0


def _chain(name: str, shape: tuple[int, ...], dtype: str, count: int) -> bytes:
    """Operators of two operands in a row, each with a scale of its own."""
    writer = Writer()
    x, y = writer.input(shape, dtype, 0.1), writer.input(shape, dtype, 0.1)
    for number in range(count):
        result = writer.tensor(shape, dtype, 0.1 + 0.01 * number)
        writer.operator(name, [x, y], result, f"{name.title()}Options")
        x = result
    return writer.pack()


def _window(name: str, shape: tuple[int, ...], size: tuple[int, int], dilation: int = 1) -> bytes:
    """A convolution whose padded image is as large as the image."""
    writer = Writer()
    x = writer.input(shape, "i1", 0.1)
    weights = writer.tensor((1, *size, 1), "i1", 0.1, data=np.ones((1, *size, 1), np.int8))
    bias = writer.tensor((1,), "i4", 0.01, data=np.zeros(1, np.int32))
    result = writer.tensor(shape, "i1", 0.2)
    more = {"DepthMultiplier": 1} if name.startswith("DEPTHWISE") else {}
    options = "DepthwiseConv2DOptions" if more else "Conv2DOptions"
    factors = {
        "DilationHFactor": dilation if size[0] > 1 else 1,
        "DilationWFactor": dilation if size[1] > 1 else 1,
    }
    writer.operator(
        name, [x, weights, bias], result, options, StrideH=1, StrideW=1, Padding=0, **factors, **more
    )
    return writer.pack()


def _pool(shape: tuple[int, ...], size: tuple[int, int]) -> bytes:
    writer = Writer()
    x, result = writer.input(shape, "f4"), writer.tensor(shape, "f4")
    height, width = size
    fields = {"FilterHeight": height, "FilterWidth": width, "StrideH": 1, "StrideW": 1, "Padding": 0}
    writer.operator("AVERAGE_POOL_2D", [x], result, "Pool2DOptions", **fields)
    return writer.pack()


def _transposed(stride: int) -> bytes:
    writer = Writer()
    x = writer.input((1, 2, 2, 1), "i1", 0.1)
    weights = writer.tensor((1, 3, 3, 1), "i1", 0.1, data=np.ones((1, 3, 3, 1), np.int8))
    size = stride + 3
    shape = writer.tensor((4,), "i4", data=np.array([1, size, size, 1], np.int32))
    result = writer.tensor((1, size, size, 1), "i1", 0.2)
    fields = {"StrideH": stride, "StrideW": stride, "Padding": 1}
    writer.operator("TRANSPOSE_CONV", [shape, weights, x], result, "TransposeConvOptions", **fields)
    return writer.pack()


def _resized() -> bytes:
    writer = Writer()
    x = writer.input((1, 2, 2, 1), "i1", 0.1)
    size = writer.tensor((2,), "i4", data=np.array([4096, 4096], np.int32))
    result = writer.tensor((1, 4096, 4096, 1), "i1", 0.1)
    writer.operator("RESIZE_NEAREST_NEIGHBOR", [x, size], result, "ResizeNearestNeighborOptions")
    return writer.pack()


def _ranges() -> bytes:
    """Constants that three numbers make."""
    writer = Writer()
    x = writer.input((MAX_ELEMENTS,), "i4")
    for number in range(6):
        ends = (number, MAX_ELEMENTS + number, 1)
        operands = [writer.tensor((), "i4", data=np.array(end, np.int32)) for end in ends]
        made, total = writer.tensor((MAX_ELEMENTS,), "i4"), writer.tensor((MAX_ELEMENTS,), "i4")
        writer.operator("RANGE", operands, made, "RangeOptions")
        writer.operator("ADD", [x, made], total, "AddOptions")
        x = total
    return writer.pack()


def _tiles() -> bytes:
    """Each constant is four times as large as the one before."""
    writer = Writer()
    x = writer.tensor((1,), "f4", data=np.ones(1, np.float32))
    length = 1
    for _ in range(12):
        length *= 4
        result = writer.tensor((length,), "f4")
        writer.operator(
            "TILE", [x, writer.tensor((1,), "i4", data=np.array([4], np.int32))], result, "TileOptions"
        )
        x = result
    writer.operator("ADD", [writer.input((length,), "f4"), x], writer.tensor((length,), "f4"), "AddOptions")
    return writer.pack()


def _parts(count: int) -> bytes:
    writer = Writer()
    x = writer.input((count, 8), "i1", 0.1)
    results = [writer.tensor((8,), "i1", 0.1) for _ in range(count)]
    writer.operator("UNPACK", [x], results, "UnpackOptions", Num=count, Axis=0)
    return writer.pack()


def _softmaxes(count: int) -> bytes:
    """Operators of an image in a row, whose calls all need the same."""
    writer = Writer()
    x = writer.input((1, 9, 11, 6), "f4")
    for number in range(count):
        result = writer.tensor((1, 9, 11, 6), "f4")
        writer.operator("SOFTMAX", [x], result, "SoftmaxOptions", inner=number < count - 1, Beta=1.0)
        x = result
    return writer.pack()


FILES: dict[str, Callable[[], bytes]] = {
    "channels": lambda: _chain("ADD", (MAX_ELEMENTS,), "i2", 4),
    "many sums": lambda: _chain("ADD", (1 << 18,), "i1", 200),
    "many parts": lambda: _parts(512),
    "many softmaxes": lambda: _softmaxes(600),
    "many channels": lambda: _chain("MUL", (1, 1 << 20), "i1", 8),
    "rows": lambda: one_operator("EXP", [(1, MAX_ELEMENTS, 1, 1)], options="ExpOptions"),
    "columns": lambda: one_operator("EXP", [(1, 1, MAX_ELEMENTS, 1)], options="ExpOptions"),
    "conv2d columns": lambda: _window("CONV_2D", (1, 1, 1 << 22, 1), (1, 3)),
    "conv2d rows": lambda: _window("CONV_2D", (1, 1 << 22, 1, 1), (3, 1)),
    "conv2d large window": lambda: _window("CONV_2D", (1, 200, 200, 1), (150, 150)),
    "depthwise rows": lambda: _window("DEPTHWISE_CONV_2D", (1, 1 << 22, 1, 1), (3, 1)),
    "depthwise dilation": lambda: _window("DEPTHWISE_CONV_2D", (1, 1, 1 << 22, 1), (1, 3), 100_000),
    "depthwise large window": lambda: _window("DEPTHWISE_CONV_2D", (1, 200, 200, 1), (150, 150)),
    "pool": lambda: _pool((1, 1, 1 << 22, 1), (1, 1000)),
    "transposed stride": lambda: _transposed(2000),
    "resize": _resized,
    "range": _ranges,
    "tile": _tiles,
}


def _compiled(path: Path, core: Target) -> tuple[str, float]:
    """Return what comes of a file, and seconds of the processor."""
    start = time.process_time()
    try:
        emit(compile_file(path, core))
        result = "compiled"
    except MicrofoldError:
        result = "refused"
    return result, time.process_time() - start


def main() -> int:
    made = Path(__file__).resolve().parents[1] / "models" / "made" / "cnn_int8.tflite"
    m4 = target.load("cortex-m4")
    emit(compile_file(made, m4))  # what is loaded once
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    slow: list[str] = []
    for name, write in FILES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.tflite"
            path.write_bytes(write())
            result, seconds = _compiled(path, m4)
            if seconds > SECONDS:  # a second time tells a busy machine from slow code
                seconds = min(seconds, _compiled(path, m4)[1])
        print(f"{name}: {result}, {seconds:.2f} s", flush=True)
        if seconds > SECONDS:
            slow.append(name)
    if slow:
        print(f"these take longer than {SECONDS} s: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
