"""Images in any layout, for operators whose meaning is written for NHWC.

Operators over height and width have an attribute `layout`: that of the image they read and of the one they
give. Their filters stay as each operator says (OHWI …) in every layout, because kernels pack them at compile
time. Kernels compute NHWC; `convert_layout` brings a graph there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from microfold.ir import layout as layouts
from microfold.ir.op import Op
from microfold.ir.types import Array, Tensor, TensorType


def layout_of(op: Op) -> str | None:
    """The layout of an operator that has one."""
    return getattr(op, "layout", None)


def with_layout(op: Op, layout: str) -> Op:
    """The same operator over images in another layout."""
    fields: dict[str, Any] = {"layout": layout}
    return replace(op, **fields)


def refuses_layout(op: Op) -> str | None:
    """Why what is written for NHWC does not fit the operator; None if it does."""
    layout = layout_of(op)
    return None if layout in (None, layouts.NHWC) else f"its layout is {layout}, not {layouts.NHWC}"


def image_axis(op: Op, name: str) -> int:
    """Where an axis of the operator's images stands; without a layout, as in NHWC. Not for blocked ones."""
    return (layout_of(op) or layouts.NHWC).index(name)


def refuses_blocks(op: Op) -> str | None:
    """Why what is written for whole axes does not fit the operator; None if it does."""
    layout = layout_of(op)
    blocked = layout is not None and layouts.is_blocked(layout)
    return f"its layout {layout} divides an axis" if blocked else None


def nhwc_type(op: str, x: TensorType, layout: str) -> TensorType:
    """The type that an image has in NHWC.

    Raises:
        TypeRuleError: it is no image in the layout.
    """
    layouts.check_image(layout, op)
    return _moved(x, layout, layouts.NHWC, op)


def from_nhwc_type(op: str, x: TensorType, layout: str) -> TensorType:
    """The type that an NHWC image has in the layout."""
    return _moved(x, layouts.NHWC, layout, op)


def _moved(x: TensorType, source: str, target: str, op: str) -> TensorType:
    if source == target and len(x.shape) == len(layouts.parse(source)):
        return x
    return x.with_shape(layouts.between(source, target, x.shape, op).shape)


def to_nhwc(x: Tensor, layout: str) -> Tensor:
    """The image in NHWC."""
    if layout == layouts.NHWC:
        return x
    transform = layouts.between(layout, layouts.NHWC, x.type.shape)
    return Tensor(x.type.with_shape(transform.shape), transform.apply(x.data))


def from_nhwc(data: Array, layout: str) -> Array:
    """The elements of an NHWC image in the layout."""
    return data if layout == layouts.NHWC else layouts.between(layouts.NHWC, layout, data.shape).apply(data)
