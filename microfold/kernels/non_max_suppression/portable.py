"""Non-maximum suppression in portable C."""

from __future__ import annotations

from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.non_max_suppression import NonMaxSuppression

_CANDIDATE = 12  # bytes: a score, an index, a count


@register
class NonMaxSuppressionPortable(Kernel):
    """Non-maximum suppression with the reference's heap, whose steps decide the order of equal scores.

    Scratch: the heap, with a candidate for each box. The kernel has no constants; it reads the thresholds
    from its inputs.
    """

    name = "f32_non_max_suppression__c"
    op = NonMaxSuppression
    code = 700
    fields = declare(
        Field("boxes", "[boxes][4]: two opposite corners, y and x"),
        Field("size", "rows of the results"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return tuple(range(len(layer.node.operands)))

    def cost(self, layer: LayerContext) -> float:
        op, boxes = layer.node.op, layer.node.operands[0].type.shape[0]
        assert isinstance(op, NonMaxSuppression)
        # Each box is compared with a few chosen ones until one of them suppresses it. Fitted to random boxes.
        slower = 1.0 if layer.target.has("fpu") else 14.0
        return slower * boxes * (25.0 * boxes.bit_length() + 20.0 * min(op.size, 8))

    def lower(self, layer: LayerContext) -> KernelCall:
        op, boxes = layer.node.op, layer.node.operands[0].type.shape[0]
        assert isinstance(op, NonMaxSuppression)
        parameters: dict[str, Parameter] = {"boxes": boxes, "size": op.size}
        spec = (("soft", op.soft),)
        function = CFunction("non_max_suppression/portable.c.j2", self.name, spec, self.fields)
        return KernelCall(function, parameters, scratch=_CANDIDATE * boxes)
