"""Operations on the energy of each channel, in portable C."""

from __future__ import annotations

import numpy as np

from microfold.kernels.call import CFunction, Constant, KernelCall
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.signal.filter_bank_log import LN_2, SignalFilterBankLog, correction_table
from microfold.ops.signal.filter_bank_spectral_subtraction import SignalFilterBankSpectralSubtraction
from microfold.ops.signal.filter_bank_square_root import SignalFilterBankSquareRoot
from microfold.ops.signal.pcan import SignalPcan


class _ChannelKernel(Kernel):
    """Base class of kernels that compute one channel after the other.

    Class attributes:
        instructions: instructions per channel, on cores with 64-bit products, and on others.
    """

    instructions: tuple[float, float]

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return tuple(range(len(layer.node.inputs)))

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        # A result has no more bytes than its input, which is read first.
        return 0 if index == 0 else None

    def cost(self, layer: LayerContext) -> float:
        wide, narrow = self.instructions
        return 20 + layer.node.operands[0].type.size * (narrow if layer.target.has("thumb1") else wide)


@register
class SignalFilterBankSquareRootPortable(_ChannelKernel):
    """Square root: eight bits one by one, then eight, then sixteen by 32-bit divisions.

    The kernel has no constants. Let s be the root of a number's upper half, rounded down, and r the
    remainder. The quotient of r, extended by the next bits, and 2 s is the next half of the root, or one
    more; the square decides. Because r <= 2 s, the halved dividend fits 32 bits. The number is scaled so that
    the highest bit of s is set. The remainder of the root decides how to round.
    """

    name = "u64_u32_signal_filter_bank_square_root__c"
    op = SignalFilterBankSquareRoot
    instructions = (130.0, 380.0)
    fields = declare("length")

    def lower(self, layer: LayerContext) -> KernelCall:
        function = CFunction("signal/filter_bank_square_root.c.j2", self.name, (), self.fields)
        return KernelCall(function, {"length": layer.node.operands[0].type.size})


@register
class SignalFilterBankSpectralSubtractionPortable(_ChannelKernel):
    """Spectral subtraction by the reference's steps; numbers of bits are constants in the code.

    The constant `factors` has the factors for channels with even indices, then for the others.
    """

    name = "u32_signal_filter_bank_spectral_subtraction__c"
    op = SignalFilterBankSpectralSubtraction
    instructions = (27.0, 170.0)
    fields = declare(
        Field("factors", "[2][2]: factors of signal and estimate, in even and in odd channels"),
        Field("least", "minimum of the remaining signal", "uint32_t"),
        "length",
    )

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, SignalFilterBankSpectralSubtraction)
        factors = [
            [op.smoothing, op.one_minus_smoothing],
            [op.alternate_smoothing, op.alternate_one_minus_smoothing],
        ]
        spec = (
            ("smoothing_bits", op.smoothing_bits),
            ("subtraction_bits", op.spectral_subtraction_bits),
            ("clamping", op.clamping),
        )
        return KernelCall(
            CFunction("signal/filter_bank_spectral_subtraction.c.j2", self.name, spec, self.fields),
            {
                "factors": Constant("factors", np.array(factors, np.int64).astype(np.uint32)),
                "least": op.min_signal_remaining % (1 << 32),
                "length": layer.node.operands[0].type.size,
            },
        )


@register
class SignalPcanPortable(_ChannelKernel):
    """PCAN by the reference's steps: a gain from the table, a 64-bit product, and a parabola or a line.

    The table is used as it is in the model.
    """

    name = "u32_signal_pcan__c"
    op = SignalPcan
    instructions = (41.0, 110.0)
    fields = declare("length")

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return 0 if index < 2 else None

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, SignalPcan)
        spec = (("snr_shift", op.snr_shift),)
        function = CFunction("signal/pcan.c.j2", self.name, spec, self.fields)
        return KernelCall(function, {"length": layer.node.operands[0].type.size})


@register
class SignalFilterBankLogPortable(_ChannelKernel):
    """Logarithm by the reference's steps: to base 2, interpolated between corrections, then scaled twice.

    The constant `corrections` has the reference's 129 entries, see `correction_table`.
    """

    name = "u32_s16_signal_filter_bank_log__c"
    op = SignalFilterBankLog
    instructions = (41.0, 122.0)
    fields = declare(
        Field("corrections", "log2(x) - (x - 1) at x = 1 + k / 128, in units of 2^-16"),
        Field("output_scale", c_type="uint32_t"),
        "length",
    )

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, SignalFilterBankLog)
        spec = (("correction_bits", op.input_correction_bits), ("ln_2", LN_2))
        return KernelCall(
            CFunction("signal/filter_bank_log.c.j2", self.name, spec, self.fields),
            {
                "corrections": Constant("corrections", correction_table()),
                "output_scale": op.output_scale % (1 << 32),
                "length": layer.node.operands[0].type.size,
            },
        )
