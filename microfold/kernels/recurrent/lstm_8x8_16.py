"""LSTM cells of int8 with all optional parts, as LiteRT computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from microfold.arithmetic.fixed_point_16 import EXP_OF_POWERS
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import Array, DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.recurrent.gates import GateMatrix, plan_int8
from microfold.kernels.recurrent.lstm import step_count, unit_count
from microfold.kernels.recurrent.sequence import SEQUENCE_FIELDS, sequence_parameters
from microfold.kernels.requantize import mul_hi
from microfold.ops.recurrent.cell_8x8_16 import GATE_BITS, NORM_SHIFT, CellParameters, GateParameters
from microfold.ops.recurrent.lstm_8x8_16 import Lstm8x8To16

PEEPHOLE, PROJECTION, PROJECTION_BIAS, NORM = 6, 7, 8, 9  # operands


class Lstm8x8To16Kernel(Kernel):
    """LSTM with optional peephole, layer normalisation and projection: sums of gates, then cell and hidden.

    Matrix rows are ordered by unit. A block has the gates of `together` units; one call of the multiply
    function computes the sums of a block. This function also computes the projection. The kernel reads hidden
    of the previous step from the output, and updates `next_cell` in place. Layer normalisation needs a gate
    of all units at once, so that the scratch stores the gates. A projection needs the results of all units,
    which the scratch also stores. Sums are requantised by one record for each gate and matrix; `plan_int8`
    proves the form. All other steps are the reference's, except saturations that none of the 2^15 inputs
    needs (`fixed_point_16`).
    """

    op = Lstm8x8To16
    code = 2000
    template: ClassVar[str] = "recurrent/lstm_8x8_16.c.j2"
    products: ClassVar[str]
    fields = declare(
        "input_weights",
        Field("input_starts", "[units][gates]: initial sums of the gates"),
        Field("input_channels", "[gates]"),
        "hidden_weights",
        Field("hidden_starts", "[units][gates]"),
        Field("hidden_channels", "[gates]"),
        Field("peephole", "[units][gates except g]"),
        Field("peephole_row", "elements from one sequence of the batch to the next"),
        Field("peephole_scales", "[gates except g]"),
        Field("rounded_up", "number of units whose peephole products round ties up"),
        Field("norm", "[gates][units]"),
        Field("biases", "[gates][units], biases of layer normalisation"),
        Field("norm_scales", "[gates]"),
        Field("variance_guards", "[gates]: replacements of variances below 1"),
        Field("inverse_units", "2^20 / units"),
        Field("units_scale", "scale from products of gates to the results of the units"),
        "projection",
        Field("projection_starts", "[outputs]"),
        "projection_scale",
        "output_minimum",
        "output_maximum",
        "units",
        "outputs",
        *SEQUENCE_FIELDS,
        Field("cell_limit", "limit of the cell's magnitude"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        constants = (1, 2, 3, PEEPHOLE, PROJECTION, PROJECTION_BIAS, NORM)
        if any(layer.present(i) and layer.array(i) is None for i in constants):
            return "weights and biases must be constant"
        if layer.node.epilogue:
            return f"it cannot fuse {layer.node.epilogue[0].op.name}"
        if any(matrix.overflows for matrix in self.all_matrices(layer)):
            return "accumulators might overflow"
        return None

    def all_matrices(self, layer: LayerContext) -> list[GateMatrix]:
        """Return the matrices of the gates, and the projection if there is one."""
        projection = self.projection(layer)
        return [*self.matrices(layer), *([projection] if projection is not None else [])]

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 4, 5)

    def together(self, count: int) -> int:
        """Return the number of units in a block, for cells with `count` gates."""
        raise NotImplementedError

    def choice(self, layer: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        """Return the compile-time choices of the sums of products."""
        return ()

    def packed(self, layer: LayerContext, rows: Array, starts: Array) -> tuple[Array, Array]:
        """Return packed int8 weights [blocks, rows, inputs], and initial sums [blocks, rows]."""
        raise NotImplementedError

    def arranged(self, matrix: GateMatrix) -> tuple[Array, Array]:
        """Return weights [blocks, rows, inputs] and initial sums [blocks, rows]."""
        count = matrix.weights.shape[1]
        rows = count * self.together(count)
        weights, starts = (
            product_sum.pad_channels(part, self.together(count)).reshape(-1, rows, *part.shape[2:])
            for part in (matrix.weights, matrix.biases)
        )
        return weights, starts

    def requantization(self, matrices: Sequence[GateMatrix]) -> tuple[str, list[Array]]:
        """Return one form of requantisation for matrices of gates, and their records."""
        return plan_int8(matrices)

    def projection_requantization(self, matrix: GateMatrix, zero_point: int, low: int) -> tuple[str, Array]:
        """Return the form of requantisation for a projection, and its record."""
        assert matrix.multipliers is not None
        extremes = np.array([matrix.low.min()]), np.array([matrix.high.max()])
        plan = mul_hi.plan_requantization(
            np.zeros(1, np.int64), extremes, *matrix.multipliers, zero_point, low
        )
        return plan.form.value, plan.records

    def projection_rows(self, count: int) -> int:
        """Return the number of projection outputs that one call computes, in a cell with `count` gates."""
        return count * self.together(count)

    def peephole(self, array: Array) -> Array:
        """Return the peephole [sequences, gates except g, units] in reading order."""
        return array.swapaxes(1, 2)

    def gates(self, layer: LayerContext) -> dict[str, GateParameters]:
        op, types = layer.node.op, [v.type if v is not None else None for v in layer.node.inputs]
        types += [None] * (NORM + 1 - len(types))
        x, weights, recurrent, _, hidden, cell = types[:6]
        assert isinstance(op, Lstm8x8To16) and x is not None and hidden is not None
        assert weights is not None and recurrent is not None and cell is not None
        return op.gate_parameters(x, weights, recurrent, hidden, cell, types[PEEPHOLE], types[NORM])

    def cell(self, layer: LayerContext) -> CellParameters:
        op, inputs = layer.node.op, layer.node.inputs
        projection = inputs[PROJECTION] if layer.present(PROJECTION) else None
        assert isinstance(op, Lstm8x8To16)
        hidden, cell = (value.type for value in layer.node.outputs[1:])
        return op.cell_parameters(hidden, cell, projection.type if projection is not None else None)

    def matrices(self, layer: LayerContext) -> tuple[GateMatrix, GateMatrix]:
        """Return the weights of the input and of hidden."""
        gates = list(self.gates(layer).values())
        bias = None if layer.present(NORM) else layer.array(3)
        found: list[GateMatrix] = []
        for source, weights, added, multipliers in (
            (0, 1, bias, [gate.input for gate in gates]),
            (4, 2, None, [gate.recurrent for gate in gates]),
        ):
            x, array = layer.node.inputs[source], layer.array(weights)
            assert x is not None and x.type.quant is not None and array is not None
            found.append(_matrix(array, added, x.type.quant.zero_point, multipliers))
        return found[0], found[1]

    def projection(self, layer: LayerContext) -> GateMatrix | None:
        """Return the projection, as a matrix of one gate; None if there is none."""
        array, known = layer.array(PROJECTION) if layer.present(PROJECTION) else None, self.cell(layer)
        if array is None or known.projection is None:
            return None
        assert isinstance(layer.node.op, Lstm8x8To16) and layer.node.op.units.quant is not None
        bias = layer.array(PROJECTION_BIAS) if layer.present(PROJECTION_BIAS) else None
        # The reference uses the negated zero point for the units' results.
        return _matrix(array, bias, -layer.node.op.units.quant.zero_point, [known.projection])

    def terms(self, layer: LayerContext) -> Terms:
        units, gates = unit_count(layer), len(self.gates(layer))
        return Terms(
            call=1,
            step=step_count(layer),
            unit=units,
            gate=units * gates,
            peephole=units * (gates - 1) * layer.present(PEEPHOLE),
            norm=units * gates * layer.present(NORM),
            output=layer.node.outputs[0].type.size * layer.present(PROJECTION),
            product=layer.node.macs(),
        )

    def default_coefficient(self, term: str) -> float:
        return {"unit": 300.0, "gate": 120.0, "norm": 70.0, "peephole": 30.0, "product": 4.0}.get(term, 40.0)

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        x, _, _, bias, hidden, cell = (value.type for value in layer.node.operands[:6])
        assert isinstance(op, Lstm8x8To16) and op.units.quant is not None and hidden.quant is not None
        gates, known, units = self.gates(layer), self.cell(layer), cell.shape[1]
        names, together = "".join(gates), self.together(len(gates))
        out = layer.node.outputs[0].type
        matrices = self.matrices(layer)
        form, records = self.requantization(matrices)
        zero_point = op.units.quant.zero_point
        shown_zero_point = -zero_point if layer.present(PROJECTION) else zero_point  # as in the reference
        parameters: dict[str, Parameter] = {
            "units_scale": _records("units_scale", [known.units], shown_zero_point),
            "units": units,
            **sequence_parameters(x, out, op.time_major),
        }
        if known.limit is not None:
            parameters["cell_limit"] = known.limit
        for name, matrix, channels in zip(("input", "hidden"), matrices, records, strict=True):
            parameters |= self.weights(layer, name, self.arranged(matrix))
            parameters[f"{name}_channels"] = Constant(f"{name}_channels", channels, record="mf_channel")
        parameters |= self._peephole(layer, op, list(gates.values()))
        parameters |= self._norm(layer, list(gates.values()))
        projected = self._projection(layer, known, self.projection_rows(len(gates)))
        parameters |= projected[1]
        spec = (
            ("gates", names),
            ("together", together),
            ("products", self.products),
            ("requantize", form),
            ("peephole", layer.present(PEEPHOLE)),
            ("by_sequence", "peephole_row" in parameters),
            ("norm", layer.present(NORM)),
            ("projection", projected[0]),
            ("clip", known.limit is not None),
            ("cell_bits", 15 + known.exponent),
            ("tanhs", tuple(sorted({GATE_BITS, 15 + known.exponent}))),
            ("exponentials", tuple(_exponential(b) for b in sorted({GATE_BITS, 4, 16 + known.exponent}))),
            ("scratch", layer.present(NORM) or layer.present(PROJECTION)),
            *self.choice(layer),
        )
        function = CFunction(self.template, self.name, spec, self.fields)
        scratch = 2 * bias.shape[0] * layer.present(NORM) + units * layer.present(PROJECTION)
        return KernelCall(function, parameters, scratch)

    def weights(self, layer: LayerContext, name: str, blocks: tuple[Array, Array]) -> dict[str, Parameter]:
        """Return the fields for a packed matrix of [blocks, rows, inputs] and its initial sums."""
        weights, starts = self.packed(layer, *blocks)
        label = "projection" if name == "projection" else f"{name}_weights"
        return {
            label: Constant(label, weights),
            f"{name}_starts": Constant(f"{name}_starts", starts.astype(np.int32)),
        }

    def _peephole(
        self, layer: LayerContext, op: Lstm8x8To16, gates: Sequence[GateParameters]
    ) -> dict[str, Parameter]:
        array = layer.array(PEEPHOLE) if layer.present(PEEPHOLE) else None
        if array is None:
            return {}
        scales = [gate.peephole for gate in gates if gate.peephole is not None]
        parameters: dict[str, Parameter] = {
            "peephole": Constant("peephole", np.ascontiguousarray(self.peephole(array))),
            "peephole_scales": _records("peephole_scales", scales),
            "rounded_up": op.rounded_up,
        }
        return parameters | ({"peephole_row": array[0].size} if len(array) > 1 else {})

    def _norm(self, layer: LayerContext, gates: Sequence[GateParameters]) -> dict[str, Parameter]:
        array, bias = layer.array(NORM) if layer.present(NORM) else None, layer.array(3)
        if array is None or bias is None:
            return {}
        scales = [Multiplier(g.norm.mantissa, g.norm.shift + NORM_SHIFT) for g in gates if g.norm is not None]
        return {
            "norm": Constant("norm", array),
            "biases": Constant("biases", bias),
            "norm_scales": _records("norm_scales", scales),
            "variance_guards": Constant(
                "variance_guards", np.array([gate.variance_guard for gate in gates], np.int32)
            ),
            "inverse_units": (1 << 20) // array.shape[1],
        }

    def _projection(
        self, layer: LayerContext, known: CellParameters, rows: int
    ) -> tuple[str, dict[str, Parameter]]:
        """Return the form of the projection's requantisation, or empty, and its parameters."""
        matrix = self.projection(layer)
        if matrix is None:
            return "", {}
        out, hidden = layer.node.outputs[0].type, layer.node.outputs[1].type
        assert hidden.quant is not None
        low, high = DType.INT8.range
        if known.projection_limit is not None:
            low, high = -known.projection_limit, known.projection_limit
        form, record = self.projection_requantization(matrix, hidden.quant.zero_point, low)
        weights, starts = (
            product_sum.pad_channels(part[:, 0], rows).reshape(-1, rows, *part.shape[2:])
            for part in (matrix.weights, matrix.biases)
        )
        return form, {
            **self.weights(layer, "projection", (weights, starts)),
            "projection_scale": Constant("projection_scale", record, record="mf_channel"),
            "output_minimum": low,
            "output_maximum": high,
            "outputs": out.shape[2],
        }


def _matrix(
    array: Array, bias: Array | None, zero_point: int, multipliers: Sequence[Multiplier]
) -> GateMatrix:
    """Return the matrix for rows of gates with one multiplier per gate, ordered by unit."""
    count = len(multipliers)
    biases = mul_hi.fold_zero_point(array, bias, zero_point)
    low, high = mul_hi.accumulator_bounds(array, biases, *DType.INT8.range)
    mantissas, shifts = (np.array(part, np.int64) for part in zip(*multipliers, strict=True))

    def by_unit(rows: Array) -> Array:
        return np.ascontiguousarray(rows.reshape(count, -1, *rows.shape[1:]).swapaxes(0, 1))

    bounds = by_unit(low), by_unit(high)
    return GateMatrix(by_unit(array), by_unit(biases), *bounds, (mantissas, shifts))


def _records(label: str, multipliers: Sequence[Multiplier], addend: int = 0) -> Constant:
    """Return records of the general form of requantisation."""
    records = np.array([(0, m.mantissa, addend, m.shift) for m in multipliers], np.int32)
    return Constant(label, records, record="mf_channel")


def _exponential(bits: int) -> tuple[int, ...]:
    """Return the integer bits of an exponential's argument, and a factor for each of its bits from 1/4 on."""
    return (bits, *EXP_OF_POWERS[: bits + 2])


@register
class Lstm8x8To16Portable(Lstm8x8To16Kernel):
    """LSTM in portable C, with weights [units][inputs][gates], and blocks of as many projection outputs."""

    name = "s8_lstm_8x8_16__c"
    products = "portable"

    def together(self, count: int) -> int:
        return 1

    def packed(self, layer: LayerContext, rows: Array, starts: Array) -> tuple[Array, Array]:
        return np.ascontiguousarray(rows.swapaxes(1, 2)), starts
