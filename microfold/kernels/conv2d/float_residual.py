"""float32 convolution that adds another tensor, the residual, to its output.

    conv2d(%x, %w, %b) | add(%residual) | clip()

The residual may share the memory of the output, because each of its elements is read just before the output
element is written. If the planner gives them different addresses, the call first copies the residual.
"""

from __future__ import annotations

from msgspec.structs import replace

from microfold.ir.node import Node
from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.conv2d.f32_block import (
    Conv2DFloatFpu,
    Conv2DFloatFpuHalf,
    Conv2DFloatMve,
    Conv2DFloatMveHalf,
)
from microfold.kernels.conv2d.portable import conv_types
from microfold.kernels.conv2d.residual import find_sum
from microfold.kernels.conv2d.shared_conv_kernel import ByConvolution, register_by
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.float32_block import CHANNELS
from microfold.ops.convolution.conv2d import Conv2D


class _FloatResidualConvolution(ByConvolution, frozen=True):
    """Base class of kernels that add the residual to blocks of sums before they clamp and store them."""

    op = Conv2D
    own_fields = declare(Field("residual_bytes", "size of the added tensor"))

    def convolved(self, layer: LayerContext) -> LayerContext:
        """Return the layer without the addition, but with its clips, which apply to the stored values."""

        def find() -> LayerContext:
            node = layer.node
            clips = tuple(step for step in node.epilogue if not step.operands)
            return replace(layer, node=Node(node.op, node.inputs, node.outputs, clips))

        return layer.remembered(_FloatResidualConvolution, find)

    def is_for(self, node: Node) -> bool:
        return node.output.type.dtype is DType.FLOAT32 and any(step.operands for step in node.epilogue)

    def supports(self, layer: LayerContext) -> str | None:
        where = find_sum(layer.node)
        if isinstance(where, str):
            return where
        if where > 0:
            return "it clamps sums after the addition of the residual, not before"
        if layer.array(self._residual(layer)) is not None:
            return "the residual must be computed, not constant"
        return self.convolution.supports(self.convolved(layer))

    def terms(self, layer: LayerContext) -> Terms:
        out = conv_types(layer)[2]
        return Terms(added=out.size // out.shape[3] * -(-out.shape[3] // CHANNELS))

    def default_coefficient(self, term: str) -> float:
        # The loads and additions of 4 elements.
        return 2.0 if "mve_fp" in self.features else 8.0

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return 0, self._residual(layer)

    def in_place(self, layer: LayerContext, index: int) -> bool:
        # The call may first copy the residual into the output, which would overwrite an input in its place.
        return index == self._residual(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        inner = self._variant.lower(self.convolved(layer))
        spec = (*inner.function.spec, ("with_residual", True))
        fields = (*inner.function.fields, *self.own_fields)
        parameters: dict[str, Parameter] = {
            **inner.parameters,
            "residual_bytes": layer.node.output.type.nbytes,
        }
        function = CFunction(inner.function.template, self.name, spec, fields)
        return KernelCall(function, parameters, inner.scratch)

    def _residual(self, layer: LayerContext) -> int:
        """Return the index of the node's argument that is the residual."""
        return len(layer.node.inputs)


register_by(
    _FloatResidualConvolution,
    "float32 convolution with a residual",
    {
        "f32_conv2d__fpu_4x4_residual": Conv2DFloatFpu,
        "f32_f16w_conv2d__fpu_4x4_residual": Conv2DFloatFpuHalf,
        "f32_conv2d__mve_4x4_residual": Conv2DFloatMve,
        "f32_f16w_conv2d__mve_4x4_residual": Conv2DFloatMveHalf,
    },
)
