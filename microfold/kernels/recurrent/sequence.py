"""Struct fields of layers that read sequences, and their values."""

from __future__ import annotations

from microfold.ir.types import TensorType
from microfold.kernels.call import Parameter
from microfold.kernels.fields import Field, declare
from microfold.ops.recurrent.sequence import layout_of

SEQUENCE_FIELDS = declare(
    "batch",
    "steps",
    "inputs",
    Field("input_step", "elements from one step to the next"),
    Field("input_row", "elements from one sequence of the batch to the next"),
    "output_step",
    "output_row",
)


def sequence_parameters(x: TensorType, out: TensorType, time_major: bool) -> dict[str, Parameter]:
    """Return the values of `SEQUENCE_FIELDS`."""
    layout = layout_of(x, time_major)
    input_step, input_row = layout.strides(x.shape[2])
    output_step, output_row = layout.strides(out.shape[2])
    return {
        "batch": layout.batch,
        "steps": layout.steps,
        "inputs": layout.inputs,
        "input_step": input_step,
        "input_row": input_row,
        "output_step": output_step,
        "output_row": output_row,
    }
