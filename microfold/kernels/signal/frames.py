"""Frames of samples, and samples from overlapping frames, in portable C."""

from __future__ import annotations

import math

from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.signal.frames import SignalFrames
from microfold.ops.signal.overlap_add import SignalOverlapAdd


@register
class SignalFramesPortable(Kernel):
    """Framing: each frame, and the kept samples, are copies of previously kept samples and of new ones.

    The kernel has no constants.
    """

    name = "s16_signal_frames__c"
    op = SignalFrames
    fields = declare(
        "rows",
        Field("samples", "new samples of a row"),
        Field("kept", "samples of a row that are kept between calls"),
        Field("size", "samples of a frame"),
        Field("step", "step from one frame to the next"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1)

    def cost(self, layer: LayerContext) -> float:
        op, (x, kept) = layer.node.op, (value.type.shape[-1] for value in layer.node.operands)
        assert isinstance(op, SignalFrames)
        # A span that reaches beyond the previously kept samples is copied from two places.
        spans = [(start, start + op.frame_size) for start in range(0, x, op.frame_step)] + [(x, x + kept)]
        copies = sum(1 + (start < kept < end) for start, end in spans)
        size = sum(value.type.nbytes for value in layer.node.outputs)
        rows = layer.node.operands[0].type.size // x
        return 20 + rows * copies * 30.0 + size * (0.8 if layer.target.has("thumb1") else 0.5)

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, SignalFrames)
        x, kept = (value.type for value in layer.node.operands)
        return KernelCall(
            CFunction("signal/frames.c.j2", self.name, (), self.fields),
            {
                "rows": x.size // x.shape[-1],
                "samples": x.shape[-1],
                "kept": kept.shape[-1],
                "size": op.frame_size,
                "step": op.frame_step,
            },
        )


@register
class SignalOverlapAddPortable(Kernel):
    """Overlap-add, frame by frame: samples plus previous sums become output, or sums for the next frame.

    The kernel has no constants. Sums move to the front sample by sample, so that they may be in place.
    """

    name = "signal_overlap_add__c"
    op = SignalOverlapAdd
    fields = declare(
        "rows",
        Field("frames", "frames of a row"),
        Field("size", "samples of a frame"),
        Field("step", "step from one frame to the next"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1)

    def cost(self, layer: LayerContext) -> float:
        x = layer.node.operands[0].type
        per_sample = 12.0 if not x.dtype.is_float else 14.0 if layer.target.has("fpu") else 55.0
        return 40 + per_sample * x.size

    def lower(self, layer: LayerContext) -> KernelCall:
        op, x = layer.node.op, layer.node.operands[0].type
        assert isinstance(op, SignalOverlapAdd)
        spec = (("type", C_TYPES[x.dtype]),)
        return KernelCall(
            CFunction("signal/overlap_add.c.j2", self.name, spec, self.fields),
            {
                "rows": math.prod(x.shape[:-2]),
                "frames": x.shape[-2],
                "size": x.shape[-1],
                "step": op.frame_step,
            },
        )
