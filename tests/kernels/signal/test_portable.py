"""Signal operators in portable C against their references."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, TensorType
from microfold.ops.signal.complex_numbers import ComplexAbs, ComplexFft
from microfold.ops.signal.energy import SignalEnergy
from microfold.ops.signal.fft_auto_scale import SignalFftAutoScale
from microfold.ops.signal.filter_bank import SignalFilterBank
from microfold.ops.signal.filter_bank_log import SignalFilterBankLog
from microfold.ops.signal.filter_bank_spectral_subtraction import SignalFilterBankSpectralSubtraction
from microfold.ops.signal.filter_bank_square_root import SignalFilterBankSquareRoot
from microfold.ops.signal.frames import SignalFrames
from microfold.ops.signal.overlap_add import SignalOverlapAdd
from microfold.ops.signal.pcan import SignalPcan
from microfold.ops.signal.rfft import SignalIrfft, SignalRfft
from microfold.ops.signal.window import SignalWindow
from microfold.verification import verify
from tests.kernels.cores import check_choice
from tests.kernels.portable import CORES, check_all
from tests.needs import CROSS_TOOLS
from tests.signal_models import gains, hann, subtraction, triangles

I16, I32, U32, U64, F32 = DType.INT16, DType.INT32, DType.UINT32, DType.UINT64, DType.FLOAT32
CHANNELS, NUMBERS = 7, 33
Operand = tuple[DType, tuple[int, ...]] | Array


def graph(op: Op, *operands: Operand) -> Graph:
    """The operator on inputs of these types; arrays are constants."""
    inputs: list[Value] = []
    constants: dict[Value, Array] = {}
    for index, operand in enumerate(operands):
        if isinstance(operand, tuple):
            inputs.append(Value(f"x{index}", TensorType(*operand)))
        else:
            constant = Value(f"c{index}", TensorType(DType(operand.dtype.name), operand.shape))
            constants[constant] = operand
            inputs.append(constant)
    results = op.infer_all([value.type for value in inputs])
    node = make_node(op, inputs, [f"y{index}" for index in range(len(results))])
    given = tuple(value for value in inputs if value not in constants)
    return Graph("net", given, node.outputs, (node,), constants)


def bank(negative: bool, scale: int = 1) -> Graph:
    weights, unweights, *bands = triangles(CHANNELS, NUMBERS)
    factors = [-weights if negative else weights * scale, unweights]
    return graph(SignalFilterBank(CHANNELS), (U32, (NUMBERS,)), *factors, *bands)


def reduction(clamping: bool, bits: int) -> Graph:
    options = subtraction(CHANNELS, clamping) | {"spectral_subtraction_bits": bits}
    del options["num_channels"]
    op = SignalFilterBankSpectralSubtraction(**options)
    return graph(op, (U32, (CHANNELS,)), (U32, (CHANNELS,)))


def cases() -> Iterator[tuple[str, Graph]]:
    samples = (I16, (2, 24))
    for shift in (11, 12, 15, 31):
        yield f"window {shift}", graph(SignalWindow(shift), samples, hann(12))
    yield "computed window", graph(SignalWindow(14), samples, (I16, (12,)))
    yield "auto scale", graph(SignalFftAutoScale(), (I16, (19,)))
    yield "energy", graph(SignalEnergy(3, 11), (I16, (26,)))
    yield "all energies", graph(SignalEnergy(0, 13), (I16, (26,)))
    yield "bank", bank(negative=False)
    yield "heavy bank", bank(negative=False, scale=7)
    yield "negative bank", bank(negative=True)
    yield "roots", graph(SignalFilterBankSquareRoot(), (U64, (9,)), np.array(3, np.int32))
    yield "subtraction", reduction(clamping=False, bits=14)
    yield "clamped subtraction", reduction(clamping=True, bits=33)
    for shift in (6, 40):
        operands = (U32, (CHANNELS,)), (U32, (CHANNELS,)), gains()
        yield f"gain {shift}", graph(SignalPcan(shift), *operands)
    yield "magnitudes", graph(ComplexAbs(), (F32, (3, 5, 2)))
    for bits, scale in ((3, 64), (0, -1600)):
        yield f"log {bits}", graph(SignalFilterBankLog(bits, scale), (U32, (CHANNELS,)))
    for kept, size, step, new in ((4, 6, 2, 2), (4, 6, 2, 6), (9, 5, 5, 5), (3, 3, 8, 16), (6, 4, 3, 3)):
        name = f"frames {kept} {size} {step} {new}"
        yield name, graph(SignalFrames(size, step), (I16, (2, new)), (I16, (2, kept)))
    for dtype in (I16, F32):
        for step in (2, 5, 6):
            operands = (dtype, (2, 3, 7)), (dtype, (2, 7 - step))
            yield f"overlap {dtype} {step}", graph(SignalOverlapAdd(step), *operands)


LENGTHS = {I16: (4, 8, 32, 60, 64, 90, 150), I32: (6, 32, 150), F32: (10, 24, 64)}


def transforms() -> Iterator[tuple[str, Graph]]:
    for dtype, lengths in LENGTHS.items():
        for length in lengths:
            for samples in (length, length - 3):
                name = f"rfft {dtype} {length} {samples}"
                yield name, graph(SignalRfft(length), (dtype, (2, samples)))
            yield f"irfft {dtype} {length}", graph(SignalIrfft(length), (dtype, (2, length + 2)))
    for points in (2, 8, 15, 16, 24):
        yield f"complex {F32} {points}", graph(ComplexFft(), (F32, (2, points, 2)))


@pytest.mark.parametrize("part", range(3))
def test_operators(part: int) -> None:
    check_all(dict(list(cases())[part::3]), runs=8)


def test_transforms() -> None:
    """Each type, and each radix first and later; all lengths are run on cores."""
    names = ("INT16 8", "INT16 60", "INT16 150", "INT32 6", "FLOAT32 24", "FLOAT32 16")
    check_all({name: graph for name, graph in transforms() if any(f"{n} " in f"{name} " for n in names)})


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", CORES)
def test_on_cores(core: str) -> None:
    check_all(dict(cases()) | dict(list(transforms())[::2]), core, runs=4)


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
def test_bands_where_products_have_32_bits() -> None:
    """By halves of energies, unless the weights of a band are too heavy, or negative."""
    banks = {
        "halves": bank(negative=False),
        "long": bank(negative=False, scale=7),
        "negative": bank(negative=True),
    }
    for products, one in banks.items():
        check_choice({"bank": one}, "cortex-m0plus", "u32_u64_signal_filter_bank__c", products=products)


def numbers(count: int) -> Array:
    """Of any count of bits; beside squares, and half way to the next one."""
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, 1 << 64, count, np.uint64) >> rng.integers(0, 64, count, np.uint64)
    roots = rng.integers(0, 1 << 32, count, np.uint64) >> rng.integers(0, 32, count, np.uint64)
    squares = roots * roots + rng.integers(0, 3, count, np.uint64) - np.uint64(1)
    edges = [0, 1, 2, 3, (1 << 32) - 1, 1 << 32, (1 << 64) - 1, 0xFFFF**2, 0xFFFFFFFF**2]
    return np.concatenate([drawn, squares, squares + roots, np.array(edges, np.uint64)])


def test_numbers_of_any_size() -> None:
    """Roots, gains and logarithms, which tell counts of bits apart."""
    wide = numbers(3000)
    narrow = (wide & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    every = [
        (graph(SignalFilterBankSquareRoot(), (U64, wide.shape), np.array(1, np.int32)), [wide]),
        (graph(SignalPcan(6), (U32, wide.shape), (U32, wide.shape), gains()), [narrow[::-1], narrow]),
        (graph(SignalFilterBankLog(0, 1600), (U32, wide.shape)), [narrow]),
    ]
    for one, arrays in every:
        result = verify.verify(compile_graph(one, target.load("host")), [arrays])
        assert result.exact, result.differences


def test_the_lowest_sample() -> None:
    """Behind it, the search for the largest magnitude begins anew."""
    one = graph(SignalFftAutoScale(), (I16, (12,)))
    rng = np.random.default_rng(0)
    calls = [[rng.choice(np.array([-32768, -9, -1, 0, 5, 300], np.int16), 12)] for _ in range(200)]
    result = verify.verify(compile_graph(one, target.load("host")), calls)
    assert result.exact, result.differences


def test_magnitudes_whose_squares_leave_float32() -> None:
    parts = np.array([[3e-38, 4e-38], [3e-20, 4e-20], [0, -5], [0, 0], [3e30, -4e30]], np.float32)
    program = compile_graph(graph(ComplexAbs(), (F32, parts.shape)), target.load("host"))
    (result,) = Session(program).run(parts)
    np.testing.assert_allclose(result, [5e-38, 5e-20, 5, 0, 5e30], rtol=1e-6)
