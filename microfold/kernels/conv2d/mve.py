"""int8 convolution for Helium (MVE)."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array, TensorType
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
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import int4_mve, mve, product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import WINDOW_FIELDS
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.window import Window

# Largest patch, in vectors, that stays in registers while the weights are loaded.
_REGISTER_VECTORS = 2
# Smallest number of blocks of 2 pixels by 4 channels for it. A block saves 20 cycles; the code has 300 bytes.
_HELD_BLOCKS = 16
# Minimum if channels are padded with zeros, which needs additional code.
_HELD_FILLED_BLOCKS = 256
# Largest row of a window, in vectors, that is copied without a loop.
_WRITTEN_OUT = 4


def _run_vectors(layer: LayerContext) -> int:
    """Return the vectors of a row of the window; 0 for long rows, and if rows are not whole vectors."""
    x, _, _, window = conv_types(layer)
    run = window.size[1] * x.shape[3]
    whole = window.dilations == (1, 1) and run % mve.LANES == 0
    return run // mve.LANES if whole and run <= _WRITTEN_OUT * mve.LANES else 0


def _strip_pixels(layer: LayerContext) -> int:
    """Return the number of pixels whose patches share a strip of columns; 0 if strips are not possible.

    The number is even. A strip needs no more memory than two patches. Only code that streams the weights of
    8 channels uses strips.
    """
    x, _, _, window = conv_types(layer)
    columns, stride = window.size[1], window.strides[1]
    if is_pointwise(window) or window.dilations != (1, 1) or x.shape[3] % mve.LANES or stride > columns:
        return 0
    return (1 + columns // stride) & ~1


def _strip_terms(x: TensorType, out: TensorType, window: Window, pixels: int) -> Terms:
    """Count the code parts that gather strips of columns.

    Strips that extend beyond the image are first filled with the zero point.

    Args:
        pixels: pixels of a strip.
    """
    columns = window.size[1] + (pixels - 1) * window.strides[1]
    y = np.arange(out.shape[1]) * window.strides[0] - window.padding[0][0]
    left = np.arange(0, out.shape[2], pixels) * window.strides[1] - window.padding[1][0]
    outside = (y < 0) | (y + window.size[0] > x.shape[1])
    reaching = outside[:, None] | (left < 0) | (left + columns > x.shape[2])
    strips = out.shape[0] * reaching.size
    vectors = window.size[0] * columns * x.shape[3] / mve.LANES
    filled = out.shape[0] * int(reaching.sum()) * vectors
    return Terms(
        strip=strips, strip_row=strips * window.size[0], strip_vector=strips * vectors, strip_filled=filled
    )


def _column_vectors(layer: LayerContext) -> int:
    """Return the vectors of an input pixel; 0 for long pixels, and in code for size: a loop copies them."""
    vectors = conv_types(layer)[0].shape[3] // mve.LANES
    return vectors if vectors <= _WRITTEN_OUT and not layer.compiled_for_size else 0


def _by_columns(layer: LayerContext, matrix: Array) -> Array:
    """Reorder the filter matrix to the order of a strip: columns, then rows."""
    _, weights, _, _ = conv_types(layer)
    return matrix.reshape(weights.shape).swapaxes(1, 2).reshape(matrix.shape)


def _requantization(layer: LayerContext, matrix: Array) -> tuple[mve.MveForm, Array]:
    multipliers = product_sum.channel_multipliers(layer)
    return mve.requantization(layer, matrix, multipliers)


def _held_vectors(layer: LayerContext, *, eights: bool) -> int:
    """Return the vectors of a patch, if they stay in registers; else 0."""
    out = conv_types(layer)[2]
    matrix = filter_matrix(layer)
    vectors = -(-matrix.shape[1] // mve.LANES)
    blocks = (out.size // out.shape[3] + 1) // 2 * -(-out.shape[3] // mve.BLOCK)
    least = _HELD_BLOCKS if out.shape[3] % mve.EIGHT == 0 else _HELD_FILLED_BLOCKS
    paid = not eights or (out.shape[3] > mve.BLOCK and blocks >= least and not layer.compiled_for_size)
    return vectors if vectors <= _REGISTER_VECTORS and paid else 0


def _copied_pixels(pixels: int, depth: int, padded: int) -> int:
    """Return the number of last pixels to copy, because reads of `padded` bytes would leave the tensor.

    The number of pixels that are read in place is even. The copied pixels, with the bytes that are read after
    them, need at most two times `padded` bytes.

    Args:
        pixels: number of pixels.
        depth: bytes of a pixel.
        padded: bytes that are read for a pixel.
    """
    read = pixels - -(-padded // depth) + 1
    return pixels - max(read - read % 2, 0)


def _block_order(form: mve.MveForm, *, int4: bool, held: bool, eights: bool, strip: bool) -> str:
    """Return the comment of the field `blocks`: the contents of a block of weights, in order."""
    if held and eights:
        block = "int8 weights [vectors][4][16], bias[4], multiplier[4]"
        return f"8 channels: bytes shift[2][4], then for the even and for the odd channels: {block}"
    if eights:
        weights = f"int8 weights{' (columns first)' if strip else ''} [vectors][4][16]"
        block = f"{weights}, (256 * bias + shift)[4], multiplier[4]"
        return f"4 channels, the even or the odd ones of 8: {block}"
    start = "start" if int4 and not held else "bias"
    weights = "weights [vectors][2][16], two channels a byte" if int4 else "int8 weights [vectors][4][16]"
    left = ", left shift[4]" if form is mve.MveForm.GENERAL else ""
    return f"4 channels: {start}[4], {weights}, multiplier[4], bytes shift[4]{left}"


@register
class Conv2DMve(Kernel):
    """Convolution of 2 pixels by blocks of 4 channels, with 16 products per instruction.

    `blocks` is [channels / 4][words]: biases, weights [vectors][4][16], other rows of the records, see
    `mve.pack_blocks`. `mve.requantization` chooses the shortest exact form.

    Weights are padded with zeros to whole vectors, so that the kernel may also read the bytes after a pixel's
    inputs. It copies the last pixels if these reads would leave the tensor. If a pixel has whole vectors,
    adjacent patches share a strip of columns, see `_strip_pixels`.
    """

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
        Field("copied_pixels", "number of last pixels whose whole vectors would reach beyond the tensor"),
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

    def terms(self, layer: LayerContext) -> Terms:
        out = conv_types(layer)[2]
        matrix = filter_matrix(layer)
        form, records = _requantization(layer, matrix)
        vectors = -(-matrix.shape[1] // mve.LANES)
        blocks = -(-matrix.shape[0] // mve.BLOCK)
        pairs = (out.size // out.shape[3] + 1) // 2
        eights = self.in_eights(form, records)
        tail = out.shape[3] % (mve.EIGHT if eights else mve.BLOCK) != 0
        finish = blocks * 2 * mve.finish_terms(form)
        if _held_vectors(layer, eights=eights):
            pair = Terms(held_pair=1, held_input=vectors)
            if eights:
                pair += Terms(held_half=blocks, held_half_vector=blocks * vectors, half_tail=blocks * tail)
            else:
                pair += Terms(
                    held_block=blocks, held_vector=blocks * vectors, held_tail=blocks * vectors * tail
                )
        elif eights:
            pair = Terms(pair=1, half=blocks, half_vector=blocks * vectors, half_tail=blocks * tail)
        else:
            pair = Terms(pair=1, tail=tail, block=blocks, vector=blocks * vectors)
        streamed = eights and not _held_vectors(layer, eights=eights)
        return Terms(call=1) + pairs * (pair + finish) + self._gathering(layer, streamed=streamed)

    def _gathering(self, layer: LayerContext, *, streamed: bool) -> Terms:
        """Count the code parts that gather patches."""
        x, _, out, window = conv_types(layer)
        if is_pointwise(window):
            return Terms()
        if streamed and (pixels := _strip_pixels(layer)):
            return _strip_terms(x, out, window, pixels)
        dilated = window.dilations != (1, 1)
        runs = window.size[0] * (window.size[1] if dilated else 1)
        run = x.shape[3] * (1 if dilated else window.size[1])
        pixels = out.size // out.shape[3]
        edges = pixels - out.shape[0] * window.positions_inside(*x.shape[1:3])
        # Short rows are copied without a loop.
        copied = pixels * runs * -(-run // mve.LANES) if run >= mve.LANES or dilated else 0
        return Terms(patch=pixels, run=pixels * runs, copied=copied, edge=edges)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        # Every output channel needs the complete patch, which pointwise layers read in place.
        pointwise = is_pointwise(window)
        return window_overlap(x, out, window, self.PIXELS, reads_first=not pointwise, across_rows=True)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return not is_pointwise(conv_types(layer)[3])

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def in_eights(self, form: mve.MveForm, records: Array) -> bool:
        """Return whether the outputs of two blocks are narrowed together."""
        return form is not mve.MveForm.GENERAL and mve.unshared_biases(records) is None

    def pack(self, matrix: Array, form: mve.MveForm, records: Array, *, held: bool) -> tuple[Array, str]:
        """Return the blocks in the layout of the C code, and the packing of 4-bit weights, else empty."""
        if self.in_eights(form, records):
            return mve.pack_eights(matrix, records, held=held), ""
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
        eights = self.in_eights(form, records)
        held = _held_vectors(layer, eights=eights)
        block = mve.EIGHT if eights else mve.BLOCK
        strip = _strip_pixels(layer) if eights and not held else 0
        ordered = _by_columns(layer, matrix) if strip else matrix
        blocks, int4 = self.pack(ordered, form, records, held=held > 0)
        parameters: dict[str, Parameter] = {
            "blocks": Constant("weights", blocks),
            "vectors": vectors,
            "output_channels": out.shape[3],
            **finish,
        }
        ragged = pointwise and padded != depth
        run = window.size[1] * x.shape[3]
        short_rows = not pointwise and run < mve.LANES
        # The unrolled code stores a whole vector of each row in the patch, except of the last row.
        written = short_rows and window.dilations == (1, 1) and window.size[0] <= _WRITTEN_OUT
        written &= (window.size[0] - 2) * run + mve.LANES <= padded
        if held and pointwise:
            # The number of vectors is a compile-time constant.
            del parameters["vectors"]
        if pointwise:
            parameters |= {"pixels": pixels, "input_channels": depth}
            if ragged:
                parameters["copied_pixels"] = _copied_pixels(pixels, depth, padded)
        else:
            parameters |= {**shape_parameters(layer), "input_zero_point": x.quant.zero_point}
        if strip:
            del parameters["dilation_height"], parameters["dilation_width"]
        spec = (
            *mve.finish_spec(form, clamp, 0 if eights and layer.compiled_for_size else out.shape[3], block),
            ("pointwise", pointwise),
            ("ragged", ragged),
            ("dilated", window.dilations != (1, 1)),
            ("run_vectors", 0 if pointwise or strip else _run_vectors(layer)),
            ("short_rows", short_rows),
            ("written_rows", window.size[0] if written and not layer.compiled_for_size else 0),
            ("strip", strip),
            ("column_vectors", _column_vectors(layer) if strip else 0),
            ("odd", strip > 0 and out.shape[2] % 2 != 0),
            ("register_vectors", held),
            ("several", eights and held > 0 and out.shape[3] > held * mve.EIGHT),
            ("int4", int4),
            ("eights", eights),
            ("small", eights and layer.compiled_for_size),
        )
        scratch = 0 if pointwise and not ragged else self.PIXELS * padded
        fields = describe(
            self.fields,
            blocks=_block_order(form, int4=bool(int4), held=held > 0, eights=eights, strip=strip > 0),
        )
        return KernelCall(CFunction("conv2d/mve.c.j2", self.name, spec, fields), parameters, scratch)


@register
class Conv2DMveInt4(Conv2DMve):
    """`Conv2DMve` with 4-bit weights, two channels in a byte, see `packing.int4_mve`.

    `unsupported_sums` checks that 16 times a sum fits 32 bits.
    """

    name = "s8_s4w_conv2d__mve"
    trades = frozenset({ResourceTradeoff.FOUR_BITS})

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

    def in_eights(self, form: mve.MveForm, records: Array) -> bool:
        return False

    def pack(self, matrix: Array, form: mve.MveForm, records: Array, *, held: bool) -> tuple[Array, str]:
        blocks = int4_mve.pack_blocks(matrix, records, scaled=not held)
        return blocks, int4_mve.choose_bytes(matrix).value
