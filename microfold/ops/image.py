"""Images in any layout, for operators that are defined for NHWC.

Operators over height and width have an attribute `layout`, for the image that they read and the one that they
produce. Their filters always have the operator's own layout (e.g. OHWI), because kernels pack them at compile
time. Kernels compute in NHWC; `convert_layout` converts a graph to it.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from microfold.ir import layout as layouts
from microfold.ir.op import Op
from microfold.ir.types import Array, Tensor, TensorType


def layout_of(op: Op) -> str | None:
    """Return the layout of an operator; None if it has none."""
    return getattr(op, "layout", None)


def with_layout(op: Op, layout: str) -> Op:
    """Return the same operator for images in another layout."""
    fields: dict[str, Any] = {"layout": layout}
    return replace(op, **fields)


def refuses_layout(op: Op) -> str | None:
    """Return the reason why rules for NHWC do not apply to the operator; None if they do."""
    layout = layout_of(op)
    return None if layout in (None, layouts.NHWC) else f"its layout is {layout}, not {layouts.NHWC}"


def image_axis(op: Op, name: str) -> int:
    """Return the index of an axis of the operator's images, in NHWC by default; not for blocked layouts."""
    return (layout_of(op) or layouts.NHWC).index(name)


def refuses_blocks(op: Op) -> str | None:
    """Return the reason why rules for undivided axes do not apply to the operator; None if they do."""
    layout = layout_of(op)
    blocked = layout is not None and layouts.is_blocked(layout)
    return f"its layout {layout} divides an axis" if blocked else None


def nhwc_type(op: str, x: TensorType, layout: str) -> TensorType:
    """Return the type of an image after conversion to NHWC.

    Raises:
        TypeRuleError: the type is not an image in this layout.
    """
    layouts.check_image(layout, op)
    return _moved(x, layout, layouts.NHWC, op)


def from_nhwc_type(op: str, x: TensorType, layout: str) -> TensorType:
    """Return the type of an NHWC image after conversion to the layout."""
    return _moved(x, layouts.NHWC, layout, op)


def _moved(x: TensorType, source: str, target: str, op: str) -> TensorType:
    if source == target and len(x.shape) == len(layouts.parse(source)):
        return x
    return x.with_shape(layouts.between(source, target, x.shape, op).shape)


def to_nhwc(x: Tensor, layout: str) -> Tensor:
    """Return the image in NHWC."""
    if layout == layouts.NHWC:
        return x
    transform = layouts.between(layout, layouts.NHWC, x.type.shape)
    return Tensor(x.type.with_shape(transform.shape), transform.apply(x.data))


def from_nhwc(data: Array, layout: str) -> Array:
    """Return the elements of an NHWC image in the layout."""
    return data if layout == layouts.NHWC else layouts.between(layouts.NHWC, layout, data.shape).apply(data)
