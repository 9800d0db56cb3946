"""Transforms of int16 by DSP instructions, on simulated cores."""

from __future__ import annotations

import pytest

from microfold.ir.node import Value
from microfold.ir.types import DType, TensorType
from microfold.ops.signal.rfft import SignalIrfft, SignalRfft
from tests.kernels.cores import check_all
from tests.kernels.graphs import one_node_graph
from tests.needs import CROSS_TOOLS

# Stages of radix 4 alone, behind each other radix, and in front of all.
LENGTHS = (8, 16, 24, 32, 40, 64, 128, 120, 480)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_lengths(core: str) -> None:
    def x(numbers: int) -> list[Value]:
        return [Value("x", TensorType(DType.INT16, (2, numbers)))]

    graphs = [one_node_graph(SignalRfft(length), x(length - 1), {}) for length in LENGTHS]
    graphs += [one_node_graph(SignalIrfft(length), x(length + 2), {}) for length in LENGTHS]
    check_all(graphs, core, {"s16_signal_rfft__dsp", "s16_signal_irfft__dsp"})
