"""What `<model>_helpers.h` computes, held against numpy and the operators of the reference, bit for bit."""

from __future__ import annotations

import itertools
import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file, compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.program import Program
from tests.codegen.builds import STRICT, compiled_models, write_sources
from tests.codegen.graphs import chain, dense_chain, several_outputs
from tests.codegen.helper_library import HelperLibrary, helper_functions, view_graph, wrappers
from tests.codegen.toolchain import run, sections, write
from tests.needs import need_tools

MADE = Path(__file__).resolve().parents[1] / "models" / "made"
QUANTS = [(0.1, 3), (0.0078125, 0), (1 / 255, -1), (3.7e-5, 5), (1.3e4, 0)]
BYTE, FLOAT = ElementType(DType.UINT8), ElementType(DType.FLOAT32)
INTEGERS = [DType.INT8, DType.UINT8, DType.INT16]


def element(dtype: DType, scale: float, zero_point: int) -> ElementType:
    low, high = dtype.range
    return ElementType(dtype, Quant.per_tensor(scale, min(max(zero_point, low), high)))


def view(element: ElementType, shape: tuple[int, ...], output_shape: tuple[int, ...]) -> Program:
    graph = view_graph(TensorType(element.dtype, shape, element.quant), output_shape)
    return compile_graph(graph, target.load("host"))


def awkward_reals(element: ElementType) -> Array:
    """Numbers around every step and every half step, and such as no step is near."""
    assert element.quant is not None
    low, high = element.dtype.range
    halves = np.arange(2 * low - 8, 2 * high + 9) - 2 * element.quant.zero_point
    near = (halves / 2 * element.quant.scale).astype(np.float32)
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45], np.float32)
    bits = np.random.default_rng(1).integers(0, 1 << 32, 4096, np.uint32).view(np.float32)
    less, more = (np.nextafter(near, np.float32(end)) for end in (-np.inf, np.inf))
    return np.concatenate([near, less, more, ends, bits])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("quant", QUANTS)
def test_quantize_is_the_models_own(dtype: DType, quant: tuple[float, int], tmp_path: Path) -> None:
    e = element(dtype, *quant)
    reals = awkward_reals(e)
    library = HelperLibrary(view(e, (len(reals),), (len(reals), 1)), tmp_path)
    found = np.empty(len(reals), dtype.numpy)
    library("input_0_from_floats", found, reals)
    with np.errstate(all="ignore"):
        expected = Quantize(e).reference(Tensor(TensorType(DType.FLOAT32, reals.shape), reals))
    np.testing.assert_array_equal(found, expected)
    assert [library("input_0_quantize", float(x)) for x in reals[:300]] == expected[:300].tolist()


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("quant", QUANTS)
def test_dequantize_is_the_models_own(dtype: DType, quant: tuple[float, int], tmp_path: Path) -> None:
    e = element(dtype, *quant)
    low, high = dtype.range
    values = np.arange(low, high + 1).astype(dtype.numpy)
    library = HelperLibrary(view(e, values.shape, (len(values), 1)), tmp_path)
    found = np.empty(len(values), np.float32)
    library("output_0_to_floats", values, found)
    t = TensorType(dtype, values.shape, e.quant)
    expected = Dequantize().reference(Tensor(t, values))
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
    assert [library("output_0_dequantize", v) for v in values[:300].tolist()] == expected[:300].tolist()


def ranking(scores: Array) -> list[int]:
    """The indices of the scores from the largest to the smallest, of equal ones the first, NaN last."""
    values = scores.tolist()
    return sorted(range(len(values)), key=lambda i: (values[i] != values[i], -values[i], i))


def score_vectors(dtype: DType, length: int) -> list[Array]:
    rng = np.random.default_rng(length)
    if dtype is DType.FLOAT32:
        special = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-45]
        found = [np.array(v) for v in itertools.product(special, repeat=3)] if length == 3 else []
        found += [rng.choice(special, length) for _ in range(50)] + [rng.normal(size=length)]
        return [array.astype(np.float32) for array in found]
    low, high = dtype.range
    ends = [low, low + 1, -1 if low else 1, 0, high - 1, high]
    found = [rng.choice(ends, length) for _ in range(50)]
    found += [rng.integers(low, high, length, endpoint=True), np.full(length, low)]
    return [array.astype(dtype.numpy) for array in found]


@pytest.mark.parametrize("length", [2, 3, 10])
@pytest.mark.parametrize("dtype", [*INTEGERS, DType.INT32, DType.INT64, DType.FLOAT32])
def test_classes(dtype: DType, length: int, tmp_path: Path) -> None:
    library = HelperLibrary(view(ElementType(dtype), (length,), (1, 1, length)), tmp_path)
    for scores in score_vectors(dtype, length):
        expected = ranking(scores)
        assert library("output_0_argmax", scores) == expected[0], scores
        for count in (0, 1, 2, length, length + 3):
            indices = np.full(length + 1, 77, np.uint32)
            assert library("output_0_top", scores, count, indices) == min(count, length)
            assert indices.tolist() == [*expected[:count], *[77] * (length + 1)][: length + 1], scores


GREY = "input_0_from_grey8"


def image_program(e: ElementType, channels: int) -> Program:
    return view(e, (1, 16, 16, channels), (16 * 16, channels))


def as_rgb(rgb565: Array) -> Array:
    """Channels of 8 bits, by the usual way: the high bits again below the low ones."""
    wide = rgb565.astype(np.int64)[..., None]
    channels = (wide >> [11, 5, 0]) & [31, 63, 31]
    return ((channels << [3, 2, 3]) | (channels >> [2, 4, 2])).astype(np.uint8)


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8, DType.FLOAT32])
@pytest.mark.parametrize("format", ["grey8", "rgb888", "rgb565"])
def test_images(dtype: DType, format: str, tmp_path: Path) -> None:
    # -1 ... 1
    zero = sum(dtype.range) // 2 if dtype is not DType.FLOAT32 else 0
    e = ElementType(dtype) if dtype is DType.FLOAT32 else element(dtype, 1 / 127.5, zero)
    channels = 1 if format == "grey8" else 3
    program = image_program(e, channels)
    library = HelperLibrary(program, tmp_path)
    # Every value of every channel; of RGB565 every color is in one of the images.
    pixels = np.arange(256 * channels).reshape(16, 16, channels).astype(np.uint8)
    images = [(pixels, pixels)]
    if format == "rgb565":
        images = [(c, as_rgb(c)) for c in np.arange(1 << 16, dtype=np.uint16).reshape(-1, 16, 16)]
    for image, rgb in images:
        found = np.empty(rgb.shape, dtype.numpy)
        if dtype is not DType.FLOAT32:
            library(f"input_0_from_{format}", found, image)
            np.testing.assert_array_equal(found, rgb.astype(np.int64) + dtype.range[0])
        for mean, deviation in ((127.5, 127.5), (0.0, 255.0), (103.939, 57.375)):
            library(f"input_0_from_{format}_normalized", found, image, mean, deviation)
            reals = (rgb.astype(np.float32) - np.float32(mean)) / np.float32(deviation)
            if dtype is not DType.FLOAT32:
                reals = Quantize(e).reference(Tensor(TensorType(DType.FLOAT32, reals.shape), reals))
            np.testing.assert_array_equal(found, reals)
    assert ("input_0_from_grey8" in library.functions) == (format == "grey8" and dtype is not DType.FLOAT32)


def test_the_default_is_every_value_of_the_type() -> None:
    """Said of it: the real values that the darkest and the brightest pixel become."""
    text = emit(image_program(element(DType.INT8, 1 / 128, 0), 3))["net_helpers.h"]
    assert (
        "The pixel values 0 to 255 become -128 to 127, which represent the real values -1 to 0.992188."
        in text
    )


def functions_of(program: Program) -> set[str]:
    return {
        name.removeprefix(f"{program.name}_")
        for name in helper_functions(emit(program)[f"{program.name}_helpers.h"])
    }


@pytest.mark.parametrize(
    ("e", "shape", "output", "some", "none"),
    [
        (element(DType.INT8, 0.1, 0), (1, 4, 4, 3), (48, 1), "input_0_quantize", "output_0_argmax"),
        (element(DType.INT8, 0.1, 0), (2, 4, 4, 3), (1, 96), "output_0_argmax", "input_0_from_rgb888"),
        (element(DType.INT8, 0.1, 0), (1, 3, 4, 4), (3, 16), "input_0_quantize", "input_0_from_rgb888"),
        (element(DType.INT16, 0.1, 0), (1, 4, 4, 1), (16,), "output_0_argmax", "input_0_from_grey8"),
        (BYTE, (1, 4, 4, 1), (1, 16), "input_0_from_grey8", "input_0_quantize"),
        (BYTE, (1, 4, 4, 1), (1, 16), "input_0_from_grey8", "input_0_from_grey8_normalized"),
        (FLOAT, (1, 4, 4, 1), (1, 16), "input_0_from_grey8_normalized", "input_0_quantize"),
        # A spectrogram, whose values no pixel has; the same for a square one, and for floats.
        (element(DType.INT8, 0.58, 83), (1, 49, 10, 1), (490,), "input_0_quantize", GREY),
        (element(DType.INT8, 0.58, 83), (1, 49, 10, 1), (490,), "input_0_quantize", f"{GREY}_normalized"),
        (element(DType.INT8, 0.14, -128), (1, 8, 8, 1), (64,), f"{GREY}_normalized", GREY),
        (FLOAT, (1, 49, 10, 1), (490,), "", f"{GREY}_normalized"),
        # A picture of a camera.
        (element(DType.INT8, 0.0077, -1), (1, 12, 16, 1), (192,), GREY, ""),
        (FLOAT, (1, 2), (1, 1, 2), "output_0_argmax", "output_0_dequantize"),
        (FLOAT, (1, 1), (1,), "", "output_0_argmax"),
        (ElementType(DType.INT32), (1, 5), (5, 1), "", "output_0_argmax"),
    ],
)  # fmt: skip
def test_helpers_are_there_where_they_mean_something(
    e: ElementType, shape: tuple[int, ...], output: tuple[int, ...], some: str, none: str
) -> None:
    found = functions_of(view(e, shape, output))
    assert found >= {some} - {""}
    assert none not in found


def test_names(tmp_path: Path) -> None:
    name = 'a"\\??/é\n%s'
    program = compile_graph(dense_chain("net", name, ["net/one", "net/two/Relu;x"]), target.load("host"))
    library = HelperLibrary(program, tmp_path)
    assert [library("layer_name", i) for i in range(3)] == [b"one", b"two", b""]
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "net.h"\n'
        "int main(void) { return fputs(NET_INPUT_0_NAME, stdout) < 0; }\n"
    )
    run(["cc", *STRICT, "-trigraphs", tmp_path / "main.c", "-o", tmp_path / "main"])
    assert run([tmp_path / "main"]) == name


def test_a_model_without_layers_has_no_names() -> None:
    x = Value("x", TensorType(DType.FLOAT32, (1, 2)))
    assert functions_of(compile_graph(Graph("net", (x,), (), (), {}), target.load("host"))) == set()


COMPILERS = {
    "gcc": ("gcc", *STRICT),
    "clang": ("clang", *STRICT),
    "arm": ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", *STRICT),
    "c++": ("g++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"),
}


@cache
def programs() -> list[Program]:
    graphs = [chain("chain"), several_outputs()]
    found = [compile_graph(graph, target.load("host")) for graph in graphs]
    found += [
        image_program(ElementType(dtype), n) for dtype in DType if dtype is not DType.INT4 for n in (1, 3)
    ]
    return found + [compile_file(MADE / f"{n}.tflite", target.load("host")) for n in ("cnn_int8", "cnn_f32")]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_compiler_warns(compiler: str, tmp_path: Path) -> None:
    """Not of what is called, nor of what is not, nor under warnings that firmware turns on besides."""
    command = COMPILERS[compiler]
    need_tools(command[0])
    suffix = "cpp" if compiler == "c++" else "c"
    for index, program in enumerate(programs()):
        folder = tmp_path / str(index)
        files = emit(program)
        write(folder, files)
        include = f'#include "{program.name}_helpers.h"\n'
        used = include + wrappers(files[f"{program.name}_helpers.h"])
        for name, text in (("unused", 2 * include), ("used", used)):
            path = folder / f"{name}.{suffix}"
            path.write_text(text)
            more = ("-Wfloat-equal", "-Wmissing-prototypes") if compiler != "c++" else ("-Wfloat-equal",)
            run([*command, *more, "-c", path, "-o", os.devnull])


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_what_is_not_called_costs_nothing(compiler: str, level: str, tmp_path: Path) -> None:
    need_tools(compiler)
    write_sources(compile_file(MADE / "cnn_int8.tflite", target.load("host")), tmp_path)
    sizes: list[dict[str, int]] = []
    for name, include in (("without", ""), ("with", '#include "cnn_int8_helpers.h"\n')):
        path = tmp_path / f"{name}.c"
        path.write_text(f'#include "cnn_int8.h"\n{include}cnn_int8_context network;\n')
        run([compiler, *STRICT, level, "-c", path, "-o", path.with_suffix(".o")])
        sizes.append(sections(path.with_suffix(".o")))
    assert sizes[0] == sizes[1]


def test_helpers_call_no_library(tmp_path: Path) -> None:
    """Nor the compiler's own, on a core without a floating-point unit but for the arithmetic of floats."""
    need_tools("arm-none-eabi-gcc", "nm")
    program = compile_graph(chain(), target.load("cortex-m4"))
    HelperLibrary(program, tmp_path)
    command = ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
    run([*command, "-O2", "-c", tmp_path / "wrappers.c", "-o", tmp_path / "wrappers.o"])
    assert run(["nm", "-u", tmp_path / "wrappers.o"]) == ""


def test_all_bundled_models(tmp_path: Path) -> None:
    need_tools("cc")
    paths = sorted(MADE.rglob("*.tflite"))
    for index, program in enumerate(compiled_models(paths[::40])):
        HelperLibrary(program, tmp_path / str(index))
