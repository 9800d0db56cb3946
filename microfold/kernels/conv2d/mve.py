"""Convolution kernels for Helium."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.conv2d.int4 import unsupported_int4
from microfold.kernels.conv2d.portable import (
    conv_types,
    filter_matrix,
    is_pointwise,
    shape_parameters,
    unsupported_integer_conv,
)
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import declare, describe
from microfold.kernels.kernel import Kernel, Trade, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import int4_mve, mve, product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import WINDOW_FIELDS
from microfold.ops.convolution.conv2d import Conv2D

# Patches of up to this many vectors are kept in registers while the weights stream by.
_REGISTER_VECTORS = 2
# Rows of a window of up to this many vectors are copied without a loop.
_WRITTEN_OUT = 4


def _run_vectors(layer: LayerContext) -> int:
    """How many vectors a row of the window is; 0 if it is no row of whole vectors, or a long one."""
    x, _, _, window = conv_types(layer)
    run = window.size[1] * x.shape[3]
    whole = window.dilations == (1, 1) and run % mve.LANES == 0
    return run // mve.LANES if whole and run <= _WRITTEN_OUT * mve.LANES else 0


def _requantization(layer: LayerContext, matrix: Array) -> tuple[mve.MveForm, Array]:
    multipliers = product_sum.channel_multipliers(layer)
    return mve.requantization(layer, matrix, multipliers)


def _block_order(form: mve.MveForm, *, int4: bool, in_registers: bool) -> str:
    """What a block of weights has, in order."""
    start = "start" if int4 and not in_registers else "bias"
    weights = "weights [vectors][2][16], two channels a byte" if int4 else "int8 weights [vectors][4][16]"
    left = ", left shift[4]" if form is mve.MveForm.GENERAL else ""
    return f"of 4 channels: {start}[4], {weights}, multiplier[4], bytes: shift[4]{left}"


@register
@dataclass(frozen=True, eq=False)
class Conv2DMve(Kernel):
    """Two pixels times blocks of 4 channels, 16 products an instruction.

    `blocks` are [channels / 4][words]: biases, weights [vectors][4][16], other rows of the records, see
    `mve.pack_blocks`; `mve.requantization` chooses the shortest exact form. Weights are padded with zeros to
    whole vectors, so that what follows a pixel's inputs may be read along with them, up to the end of the
    tensor: the last pixels are copied if need be.

    Attributes:
        any_size: of windows that are pixels: the function that serves any number of channels, of both sides.
    """

    any_size: bool = False
    trades: frozenset[Trade] = frozenset()

    name = "s8_conv2d__mve_2x4"
    op = Conv2D
    features = frozenset({"mve"})
    code = 500
    PIXELS = 2
    fields = declare(
        "blocks",
        "vectors",
        "input_channels",
        "output_channels",
        "pixels",
        "batch",
        "input_height",
        "input_width",
        "output_height",
        "output_width",
        *WINDOW_FIELDS,
        "input_zero_point",
        "output_zero_point",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_integer_conv(layer)

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        if not is_pointwise(conv_types(layer)[3]):
            return [self]
        return [self, replace(self, any_size=True, trades=self.trades | {Trade.ONE_FOR_ALL})]

    def held_vectors(self, vectors: int) -> int:
        """Of a patch of so many vectors those that stay in registers: all or none."""
        return vectors if vectors <= _REGISTER_VECTORS and not self.any_size else 0

    def terms(self, layer: LayerContext) -> Terms:
        out = conv_types(layer)[2]
        matrix = filter_matrix(layer)
        form, _ = _requantization(layer, matrix)
        vectors = -(-matrix.shape[1] // mve.LANES)
        blocks = -(-matrix.shape[0] // mve.BLOCK)
        pairs = (out.size // out.shape[3] + 1) // 2
        tail = out.shape[3] % mve.BLOCK != 0
        finish = blocks * 2 * mve.finish_terms(form)
        if self.held_vectors(vectors):
            pair = Terms(
                held_pair=1,
                held_input=vectors,
                held_block=blocks,
                held_vector=blocks * vectors,
                held_tail=blocks * vectors * tail,
            )
        else:
            pair = Terms(pair=1, tail=tail, block=blocks, vector=blocks * vectors)
        return Terms(call=1) + pairs * (pair + finish) + self._gathering(layer)

    def _gathering(self, layer: LayerContext) -> Terms:
        """Of the copies of patches."""
        x, _, out, window = conv_types(layer)
        if is_pointwise(window):
            return Terms()
        dilated = window.dilations != (1, 1)
        runs = window.size[0] * (window.size[1] if dilated else 1)
        run = x.shape[3] * (1 if dilated else window.size[1])
        pixels = out.size // out.shape[3]
        edges = pixels - out.shape[0] * window.positions_inside(*x.shape[1:3])
        copied = pixels * runs * -(-run // mve.LANES)
        return Terms(patch=pixels, run=pixels * runs, copied=copied, edge=edges)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        # Every output channel needs the whole patch: pixels that are read in place must stay to the end.
        pointwise = is_pointwise(window)
        return window_overlap(x, out, window, self.PIXELS, reads_first=not pointwise, across_rows=True)

    def reads_rows(self, layer: LayerContext) -> bool:
        return not is_pointwise(conv_types(layer)[3])

    def rows_held(self, layer: LayerContext) -> int:
        return 1

    def pack(self, matrix: Array, records: Array) -> tuple[Array, str]:
        """Blocks as the code reads them, and how weights share bytes; empty: not at all."""
        return mve.pack_blocks(matrix, records), ""

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = conv_types(layer)
        assert x.quant is not None
        matrix = filter_matrix(layer)
        form, records = _requantization(layer, matrix)
        clamp, finish = mve.output_parameters(layer)
        pointwise = is_pointwise(window)
        depth = matrix.shape[1]
        vectors = -(-depth // mve.LANES)
        padded = vectors * mve.LANES
        pixels = out.size // out.shape[3]
        blocks, int4 = self.pack(matrix, records)
        finish_spec = dict(mve.finish_spec(form, clamp, out.shape[3]))
        if self.any_size:
            finish_spec["channel_tail"] = True
        parameters: dict[str, Parameter] = {
            "blocks": Constant("weights", blocks),
            "vectors": vectors,
            "output_channels": out.shape[3],
            **finish,
        }
        ragged = pointwise and (padded != depth or self.any_size)
        in_registers = self.held_vectors(vectors) > 0
        if in_registers and pointwise and not ragged:
            # Their number is in the code.
            del parameters["vectors"]
        if pointwise:
            parameters |= {"pixels": pixels, "input_channels": depth}
        else:
            parameters |= {**shape_parameters(layer), "input_zero_point": x.quant.zero_point}
        spec = (
            *finish_spec.items(),
            ("pointwise", pointwise),
            ("ragged", ragged),
            ("dilated", window.dilations != (1, 1)),
            ("run_vectors", 0 if pointwise else _run_vectors(layer)),
            ("register_vectors", self.held_vectors(vectors)),
            ("int4", int4),
        )
        scratch = 0 if pointwise and not ragged else self.PIXELS * padded
        fields = describe(self.fields, blocks=_block_order(form, int4=bool(int4), in_registers=in_registers))
        return KernelCall(CFunction("conv2d/mve.c.j2", self.name, spec, fields), parameters, scratch)


@register
@dataclass(frozen=True, eq=False)
class Conv2DMveInt4(Conv2DMve):
    """The same with weights of four bits: two channels a byte, see `packing.int4_mve`.

    `unsupported_sums` checks that 16 times a sum fits 32 bits.
    """

    trades: frozenset[Trade] = frozenset({Trade.FOUR_BITS})

    name = "s8_s4w_conv2d__mve"

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_int4(layer) or int4_mve.unsupported_sums(layer, filter_matrix(layer))

    def terms(self, layer: LayerContext) -> Terms:
        out = conv_types(layer)[2]
        matrix = filter_matrix(layer)
        apart = int4_mve.choose_bytes(matrix) is int4_mve.Bytes.APART
        vectors = -(-matrix.shape[1] // mve.LANES)
        blocks = -(-out.shape[3] // mve.BLOCK)
        unpacked = (out.size // out.shape[3] + 1) // 2 * blocks
        return super().terms(layer) + Terms(unpacked=unpacked, apart=unpacked * vectors * apart)

    def pack(self, matrix: Array, records: Array) -> tuple[Array, str]:
        in_registers = self.held_vectors(-(-matrix.shape[1] // mve.LANES)) > 0
        blocks = int4_mve.pack_blocks(matrix, records, scaled=not in_registers)
        return blocks, int4_mve.choose_bytes(matrix).value
