"""Shapes and places that the model computes: the file's shape of the result decides; places are clamped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tflite

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from microfold.verification import verify
from tests import oracle
from tests.needs import need_modules
from tests.tflite_writer import Array, Writer

IMAGE = np.arange(2 * 4 * 5 * 3, dtype=np.float32).reshape(2, 4, 5, 3)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


def operator(
    name: str,
    result: Sequence[int],
    operands: Sequence[Array | None],
    constants: Sequence[int] = (),
    **more: object,
) -> tuple[bytes, list[Array]]:
    """A file of one operator; operands that are not among `constants` are inputs, given these arrays.

    Args:
        result: the shape that the file has for it.
        more: options.
    """
    w, given = Writer(), list[Array]()
    tensors: list[int] = []
    for index, array in enumerate(operands):
        if array is None:
            tensors.append(-1)
        elif index in constants:
            tensors.append(w.tensor(array.shape, array.dtype.str[1:], data=array))
        else:
            tensors.append(w.input(array.shape, array.dtype.str[1:]))
            given.append(array)
    dtype = operands[{"TRANSPOSE_CONV": 2, "FILL": 1, "ONE_HOT": 2, "SCATTER_ND": 1}.get(name, 0)]
    assert dtype is not None
    w.operator(name, tensors, w.tensor(result, dtype.dtype.str[1:]), **more)  # type: ignore[arg-type]
    return w.pack(), given


CUBE = np.arange(4**3, dtype=np.float32).reshape(4, 4, 4) % 7

CASES: dict[str, tuple[Callable[[], tuple[bytes, list[Array]]], str]] = {
    "reshape": (lambda: operator("RESHAPE", (8, 15), [IMAGE, ints(8, 15)]), "tflm litert"),
    "expand_dims": (lambda: operator("EXPAND_DIMS", (2, 4, 1, 5, 3), [IMAGE, ints(2)]), "litert"),
    "slice": (
        lambda: operator("SLICE", (1, 2, 3, 3), [IMAGE, ints(1, 2, 0, 0), ints(1, 2, 3, 3)], (2,)),
        "tflm litert",
    ),
    "slice_size": (
        lambda: operator("SLICE", (1, 2, 5, 3), [IMAGE, ints(0, 1, 0, 0), ints(1, 2, -1, -1)]),
        "litert",
    ),
    "strided_slice": (
        lambda: operator(
            "STRIDED_SLICE",
            (4, 2, 3),
            [IMAGE, ints(-1, 9, 1), ints(0, 9, 3), ints(1, 1, 1)],
            (3,),
            options="StridedSliceOptions",
            BeginMask=2,
            EndMask=2,
            ShrinkAxisMask=1,
        ),
        "litert",
    ),
    "pad": (
        lambda: operator("PAD", (2, 7, 5, 4), [IMAGE, np.array([[0, 0], [1, 2], [0, 0], [1, 0]], np.int32)]),
        "litert",
    ),
    "padv2": (
        lambda: operator(
            "PADV2",
            (2, 5, 5, 3),
            [IMAGE, np.array([[0, 0], [1, 0], [0, 0], [0, 0]], np.int32), np.float32([7])],
            (1,),
        ),
        "tflm litert",
    ),
    "tile": (lambda: operator("TILE", (2, 8, 5, 9), [IMAGE, ints(1, 2, 1, 3)]), "litert"),
    "fill": (lambda: operator("FILL", (3, 2), [ints(3, 2), np.float32(4.5)]), "litert"),
    "resize_bilinear": (
        lambda: operator(
            "RESIZE_BILINEAR", (2, 8, 9, 3), [IMAGE, ints(8, 9)], options="ResizeBilinearOptions"
        ),
        "litert",
    ),
    "resize_nearest_neighbor": (
        lambda: operator(
            "RESIZE_NEAREST_NEIGHBOR",
            (2, 3, 9, 3),
            [IMAGE, ints(3, 9)],
            options="ResizeNearestNeighborOptions",
        ),
        "litert",
    ),
    "transpose_conv": (
        lambda: operator(
            "TRANSPOSE_CONV",
            (2, 9, 11, 2),
            [ints(2, 9, 11, 2), np.ones((2, 3, 3, 3), np.float32), IMAGE],
            (1,),
            options="TransposeConvOptions",
            Padding=1,
            StrideH=2,
            StrideW=2,
        ),
        "litert",
    ),
    "one_hot": (
        lambda: operator(
            "ONE_HOT",
            (3, 4),
            [ints(1, 3, 0), np.int32(4), np.float32(2), np.float32(-1)],
            options="OneHotOptions",
            Axis=-1,
        ),
        "litert",
    ),
    "transpose": (lambda: operator("TRANSPOSE", (3, 5, 4, 2), [IMAGE, ints(3, 2, 1, 0)]), "litert"),
    "transpose_cube": (lambda: operator("TRANSPOSE", (4, 4, 4), [CUBE, ints(1, 2, 0)]), "litert"),
    "transpose_images": (
        lambda: operator(
            "TRANSPOSE", (1, 4, 2, 4, 4), [np.resize(CUBE, (2, 4, 4, 1, 4)), ints(3, 2, 0, 4, 1)]
        ),
        "litert",
    ),
    "mean": (
        lambda: operator("MEAN", (2, 1, 1, 3), [IMAGE, ints(2, 1)], options="ReducerOptions", KeepDims=True),
        "litert",
    ),
    "reduce_max": (
        lambda: operator("REDUCE_MAX", (2, 5), [IMAGE, ints(1, -1)], options="ReducerOptions"),
        "litert",
    ),
    "scatter_nd": (
        lambda: operator("SCATTER_ND", (4, 3), [ints(2, 0).reshape(2, 1), IMAGE[0, 0, :2], ints(4, 3)]),
        "litert",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_references_give(name: str) -> None:
    """Where what is computed says the same as the file."""
    need_modules("tflite_micro", "ai_edge_litert")
    build, references = CASES[name]
    data, given = build()
    (output,) = oracle.operator_outputs(data)
    graph = import_model(data)
    (ours,) = Interpreter(graph).run(*given)
    for reference in references.split():
        (theirs,) = getattr(oracle, reference)(data, [given], [output])
        assert not oracle.difference(ours, theirs[output]), reference


@pytest.mark.parametrize(
    "name", ["slice", "strided_slice", "pad", "padv2", "transpose_cube", "transpose_images"]
)
def test_their_code(name: str) -> None:
    """Random places, most of them out of range."""
    data, given = CASES[name][0]()
    program = compile_graph(import_model(data), target.load("host"))
    others = verify.input_sets([binding.type for binding in program.inputs], 5)
    found = verify.verify(program, [given, *others])
    assert found.exact, found.differences


def test_operators_of_several_results() -> None:
    need_modules("ai_edge_litert")
    w, x = Writer(), np.float32([[3, 9, 4, 7], [2, 1, 8, 5]])
    value = w.input((2, 4), "f4")
    axis, ids = w.tensor((), "i4", data=np.array(1)), w.tensor((2,), "i4", data=np.array([2, 2]))
    parts = [w.tensor((2, 1), "f4"), w.tensor((2, 3), "f4")]
    w.operator("SPLIT_V", [value, w.input((2,), "i4"), axis], parts, "SplitVOptions", NumSplits=2)
    largest = [w.tensor((2, 3), "f4"), w.tensor((2, 3), "i4")]
    w.operator("TOPK_V2", [value, w.input((), "i4")], largest, "TopKV2Options")
    total = w.tensor((3, 4), "f4")
    w.operator("UNSORTED_SEGMENT_SUM", [value, ids, w.input((), "i4")], total, "UnsortedSegmentSumOptions")
    data, given = w.pack(), [x, ints(1, 3), np.int32(3), np.int32(3)]
    wanted = oracle.operator_outputs(data)
    theirs = oracle.litert(data, [given], wanted)[0]
    for ours, index in zip(Interpreter(import_model(data)).run(*given), wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs[index])


@pytest.mark.parametrize("name", ["ARG_MAX", "ARG_MIN"])
def test_axes_of_extrema(name: str) -> None:
    need_modules("ai_edge_litert")
    w, words = Writer(), name.title().replace("_", "")
    result = w.tensor((2, 5, 3), "i4")
    operands = [w.input(IMAGE.shape, "f4"), w.input((), "i4")]
    w.operator(name, operands, result, f"{words}Options", OutputType=tflite.TensorType.INT32)
    data, given = w.pack(), [np.sin(IMAGE), np.int32(1)]
    (ours,) = Interpreter(import_model(data)).run(*given)
    np.testing.assert_array_equal(ours, oracle.litert(data, [given], [result])[0][result])


def test_places_out_of_range() -> None:
    data, (image, _) = CASES["slice"][0]()
    (result,) = Interpreter(import_model(data)).run(image, ints(9, -1, 1, 5))
    np.testing.assert_array_equal(result, image[1:, :2, 1:4])


def test_an_empty_shape_is_that_of_a_scalar() -> None:
    """A tensor without elements has no buffer either."""
    need_modules("tflite_micro", "ai_edge_litert")
    w = Writer()
    x, y = w.input((1, 1), "f4"), w.tensor((), "f4")
    w.operator("RESHAPE", [x, w.tensor((0,), "i4")], y)
    data, given = w.pack(), np.float32([[3]])
    (result,) = Interpreter(import_model(data)).run(given)
    assert result.shape == () and result == 3
    assert oracle.litert(data, [[given]], [y])[0][y] == 3


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: operator("RESHAPE", (), [IMAGE, ints(8, 15)]), r"in the file, with 2 axes; it is \[\]"),
        (lambda: operator("RESHAPE", (8, 16), [IMAGE, ints(8, 15)]), "elements"),
        (lambda: operator("FILL", (0, 2), [ints(3, 2), np.float32(4.5)]), "in the file, with 2 axes; it is"),
        (lambda: operator("TILE", (2, 9, 5, 3), [IMAGE, ints(1, 2, 1, 1)]), "must be a multiple of"),
        (
            lambda: operator("SLICE", (9, 1, 1, 1), [IMAGE, ints(0, 0, 0, 0), ints(9, 1, 1, 1)]),
            "must fit into",
        ),
        (
            lambda: operator("SLICE", (1, 1, 1, 1), [IMAGE, ints(0, 0, 0, 0), ints(1, 1, 1, 2)], (2,)),
            "its size must equal the shape of its result",
        ),
        (
            lambda: operator(
                "STRIDED_SLICE", (1,), [IMAGE, ints(0), ints(2), ints(2)], (3,), options="StridedSliceOptions"
            ),
            "all strides must be 1",
        ),
        (
            lambda: operator("TRANSPOSE", (3, 5, 4, 4), [IMAGE, ints(3, 2, 1, 0)]),
            "axes of .* in another order",
        ),
        (
            lambda: operator("SUM", (4, 4), [CUBE, ints(0)], options="ReducerOptions"),
            r"determine them; \[4, 4\] can result from \[\(0,\), \(1,\), \(2,\)\]",
        ),
    ],
)
def test_refused(build: Callable[[], tuple[bytes, list[Array]]], reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        import_model(build()[0])
