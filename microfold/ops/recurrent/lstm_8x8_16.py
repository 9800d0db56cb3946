"""Long short-term memory over a sequence, with LiteRT's integer arithmetic."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import require_per_tensor
from microfold.ops.recurrent import sequence
from microfold.ops.recurrent.cell_8x8_16 import (
    Cell8x8To16,
    CellParameters,
    Gate,
    GateParameters,
    cell_parameters,
    gate_parameters,
    row_scales,
)


@register
class Lstm8x8To16(Op, frozen=True):
    """`Lstm` of int8 with all optional parts of a cell, as in LiteRT's `LstmStepInteger8x8_16`.

    The source is tensorflow/lite/kernels/lstm_eval.cc. The int8 `Lstm` is TFLM's. The two differ in the
    rounding of gates, in logistic and tanh (`fixed_point_16`), and in the scale of the results.

    Operands, with G gates (i,) f, g and o of U units each, and P = 1 or N: ``x [N, T, I]``, or [T, N, I] if
    `time_major`; ``input_weights [G * U, I]`` and ``recurrent_weights [G * U, H]``, int8 with one scale per
    gate; ``bias [G * U]``, int32; ``hidden [N, H]``, int8; ``cell [N, U]``, int16 with a power of two as its
    scale; ``peephole [P, G - 1, U]`` and ``norm [G, U]``, int16 with one scale per gate; ``projection [H,
    U]``, int8, and ``projection_bias [H]``, int32.

    Attributes:
        gates: scales of the gates' values before layer normalisation, int16 along axis 0; 2^-12 without it.
        units: element type of the results of the units, which are hidden if there is no projection.
        rounded_up: number of units, from the first on, whose products with a peephole round ties up; the
            products of other units round them away from zero.
    """

    name: ClassVar[str] = "lstm_8x8_16"

    time_major: bool
    cell_clip: float
    projection_clip: float
    gates: ElementType
    units: ElementType
    rounded_up: int
    out: ElementType

    def infer(
        self,
        x: TensorType,
        input_weights: TensorType,
        recurrent_weights: TensorType,
        bias: TensorType,
        hidden: TensorType,
        cell: TensorType,
        peephole: TensorType | None = None,
        projection: TensorType | None = None,
        projection_bias: TensorType | None = None,
        norm: TensorType | None = None,
    ) -> tuple[TensorType, TensorType, TensorType]:
        layout = sequence.check_input(self.name, x, self.time_major)
        outputs, units = sequence.check_states(self.name, layout, hidden, cell)
        count = bias.size // max(units, 1)
        rows = count * units
        int8, int16, int32 = DType.INT8, DType.INT16, DType.INT32
        looking = {(p, count - 1, units) for p in (1, layout.batch)}
        rules = (
            ("the input", x, int8, {x.shape}),
            ("input weights", input_weights, int8, {(rows, layout.inputs)}),
            ("recurrent weights", recurrent_weights, int8, {(rows, outputs)}),
            ("bias", bias, int32, {(rows,)}),
            ("hidden", hidden, int8, {hidden.shape}),
            ("cell", cell, int16, {cell.shape}),
            ("peephole", peephole, int16, looking),
            ("projection", projection, int8, {(outputs, units)}),
            ("projection_bias", projection_bias, int32, {(outputs,)}),
            ("norm", norm, int16, {(count, units)}),
        )
        require(count in (3, 4), f"{self.name}: it must have 3 or 4 gates; bias is {bias}, cell {cell}")
        for what, type, dtype, shapes in rules:
            require(
                type is None or (type.dtype is dtype and type.shape in shapes),
                f"{self.name}: {what} must be {dtype.value} "
                f"{' or '.join(str(list(s)) for s in sorted(shapes))}; it is {type}",
            )
        require(
            projection is not None or (outputs == units and projection_bias is None),
            f"{self.name}: without a projection, hidden must have {units} elements; it is {hidden}",
        )
        require_per_tensor(self.name, input=x, hidden=hidden, cell=cell, units=self.units, output=self.out)
        parts = (
            ("input weights", input_weights, 0),
            ("recurrent weights", recurrent_weights, 0),
            ("peephole", peephole, 1),
            ("norm", norm, 0),
            ("projection", projection, None),
        )
        for what, type, axis in parts:
            require(
                type is None
                or (
                    type.quant is not None
                    and type.quant.axis in (None, axis)
                    and not any(type.quant.zero_points)
                ),
                f"{self.name}: {what} must have zero point 0, and one scale"
                f"{'' if axis is None else ' for each gate'}; it is {type}",
            )
        assert cell.quant is not None and input_weights.quant is not None
        require(
            self.gates.dtype is int16
            and self.gates.quant is not None
            and len(self.gates.quant.scales) == count,
            f"{self.name}: gates must be int16 with {count} scales; they are {self.gates}",
        )
        sequence.check_clips(self.name, self.cell_clip, self.projection_clip)
        require(
            0 <= self.rounded_up <= units,
            f"{self.name}: rounded_up must be in [0, {units}]; it is {self.rounded_up}",
        )
        for weights in (input_weights, recurrent_weights):
            self._check_gate_scales(weights, count)
        # Raises an error if the scales have no multipliers.
        self.cell_parameters(hidden, cell, projection)
        self.gate_parameters(x, input_weights, recurrent_weights, hidden, cell, peephole, norm)
        return TensorType(self.out.dtype, layout.shape(outputs), self.out.quant), hidden, cell

    def _check_gate_scales(self, weights: TensorType, count: int) -> None:
        assert weights.quant is not None
        if weights.quant.axis is None:
            return
        scales = np.array(weights.quant.scales).reshape(count, -1)
        require(
            bool((scales == scales[:, :1]).all()),
            f"{self.name}: weights must have one scale for each of {count} gates; they are {weights}",
        )

    def cell_parameters(
        self, hidden: TensorType, cell: TensorType, projection: TensorType | None
    ) -> CellParameters:
        """Return the constants of the arithmetic after the gates."""
        clips = self.cell_clip, self.projection_clip
        return cell_parameters(cell, hidden, self.units, self.out, projection, clips)

    def gate_parameters(
        self,
        x: TensorType,
        input_weights: TensorType,
        recurrent_weights: TensorType,
        hidden: TensorType,
        cell: TensorType,
        peephole: TensorType | None,
        norm: TensorType | None,
    ) -> dict[str, GateParameters]:
        """Return the constants of each gate by name."""
        assert self.gates.quant is not None and x.quant is not None and hidden.quant is not None
        scales = self.gates.quant.scales
        count = len(scales)
        names = "ifgo"[4 - count :]
        first, second = (row_scales(w.quant, count) for w in (input_weights, recurrent_weights))
        exponent = self.cell_parameters(hidden, cell, None).exponent
        looking = dict(
            zip(
                names.replace("g", ""),
                row_scales(peephole.quant, count - 1) if peephole is not None else (),
                strict=False,
            )
        )
        norms = row_scales(norm.quant, count) if norm is not None else (None,) * count
        return {
            name: gate_parameters(
                scales[k],
                (first[k], x.quant.scale),
                (second[k], hidden.quant.scale),
                (looking[name], exponent) if name in looking else None,
                norms[k],
            )
            for k, name in enumerate(names)
        }

    def reference(
        self,
        x: Tensor,
        input_weights: Tensor,
        recurrent_weights: Tensor,
        bias: Tensor,
        hidden: Tensor,
        cell: Tensor,
        peephole: Tensor | None = None,
        projection: Tensor | None = None,
        projection_bias: Tensor | None = None,
        norm: Tensor | None = None,
    ) -> tuple[Array, ...]:
        parameters = self.gate_parameters(
            x.type,
            input_weights.type,
            recurrent_weights.type,
            hidden.type,
            cell.type,
            peephole.type if peephole is not None else None,
            norm.type if norm is not None else None,
        )
        units = cell.type.shape[1]
        looking = [name for name in parameters if name != "g"]
        gates = {
            name: Gate(
                input_weights.data[k * units : (k + 1) * units].astype(np.float64),
                recurrent_weights.data[k * units : (k + 1) * units].astype(np.float64),
                bias.data[k * units : (k + 1) * units].astype(np.int64),
                peephole.data[:, looking.index(name)].astype(np.int64)
                if peephole is not None and name in looking
                else None,
                self.rounded_up,
                norm.data[k].astype(np.int64) if norm is not None else None,
                known,
            )
            for k, (name, known) in enumerate(parameters.items())
        }
        projected = None
        if projection is not None:
            added = 0 if projection_bias is None else projection_bias.data.astype(np.int64)
            projected = (projection.data.astype(np.float64), np.asarray(added))
        known = self.cell_parameters(
            hidden.type, cell.type, projection.type if projection is not None else None
        )
        step = Cell8x8To16(gates, x.type, hidden.type, self.units, projected, known).step
        steps = sequence.steps_first(x.data, self.time_major)
        return sequence.run(step, steps, (hidden.data, cell.data), self.time_major)

    def macs(
        self,
        x: TensorType,
        input_weights: TensorType,
        recurrent_weights: TensorType,
        _bias: TensorType,
        _hidden: TensorType,
        _cell: TensorType,
        _peephole: TensorType | None = None,
        projection: TensorType | None = None,
        *_: TensorType | None,
    ) -> int:
        return sequence.products(x, input_weights, recurrent_weights, projection)
