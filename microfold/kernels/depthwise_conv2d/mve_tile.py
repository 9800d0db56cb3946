"""int8 depthwise convolution for Helium (MVE) and small windows, in tiles of 4 outputs from one vector."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from microfold.ir.types import Array, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.mve_bands import (
    OUTSIDE,
    ROWS,
    SLACK,
    is_pipelined,
    load_terms,
    requantization,
)
from microfold.kernels.depthwise_conv2d.portable import (
    channel_multiplier,
    depthwise_types,
    unsupported_integer_depthwise,
)
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import mve
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import IMAGE_FIELDS, image_parameters
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.window import Window


class _Tile(Struct, frozen=True):
    """Tile of 4 outputs that are computed from one vector of inputs.

    Attributes:
        shape: rows and columns of outputs, 4 outputs in all.
        band_rows: input rows under the tile's windows.
        columns: input columns that the taps read, relative to the tile's first one.
    """

    shape: tuple[int, int]
    band_rows: int
    columns: tuple[int, ...]

    @property
    def groups(self) -> int:
        return -(-self.band_rows // ROWS)

    def along(self, columns: int) -> int:
        """Return the number of tiles in a row of outputs. The last tile may overlap the one before."""
        return -(-columns // self.shape[1])


def _find_tile(out: TensorType, window: Window) -> _Tile | None:
    """Return the best tile of 4 outputs whose windows fit in one vector; None if none fits.

    The last tiles may overlap the tiles above and to the left. The best tile needs the fewest tiles, then
    avoids overlaps within rows.
    """
    found: list[tuple[tuple[int, bool], _Tile]] = []
    for shape in ((2, 2), (4, 1), (1, 4)):
        if shape[0] > out.shape[1] or shape[1] > out.shape[2]:
            continue
        columns = {
            x * window.strides[1] + j * window.dilations[1]
            for x in range(shape[1])
            for j in range(window.size[1])
        }
        tile = _Tile(shape, (shape[0] - 1) * window.strides[0] + window.extent[0], tuple(sorted(columns)))
        if tile.groups * len(columns) <= ROWS:
            tiles = -(-out.shape[1] // shape[0]) * tile.along(out.shape[2])
            found.append(((tiles, out.shape[2] % shape[1] > 0), tile))
    return min(found, key=lambda pair: pair[0])[1] if found else None


@register
class DepthwiseConv2DMveTile(Kernel):
    """Depthwise convolution with small windows: a vector of 4 words has the inputs of 4 adjacent outputs.

    Each output has a vector of weights, shifted to the positions of its inputs. `channels` is int32
    [channels][2], see `mve.pack_records`. `weights` has the bytes of these vectors, see `_pack_tile`. The
    requantisation is a form of `mve.requantization` other than the general one.
    """

    name = "s8_depthwise_conv2d__mve_tile"
    op = DepthwiseConv2D
    features = frozenset({"mve"})
    code = 500
    fields = declare(
        Field("channels", "[channels]: 256 * bias + shift, multiplier"),
        Field("weights", "taps of each channel in the order of a patch's words, with zeros around them"),
        Field("taps", "[4], offsets of the words of a patch in the band"),
        Field("targets", "[4], offsets of the outputs of a tile"),
        *IMAGE_FIELDS,
        Field("band_rows", "rows under the windows of a tile"),
        "stride_height",
        "stride_width",
        "pad_top",
        "pad_left",
        Field("columns", "columns of the band, including padding"),
        Field("band", "bytes from one group of 4 rows to the next"),
        "input_zero_point",
        "output_zero_point",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        if reason := unsupported_integer_depthwise(layer):
            return reason
        _, _, out, window = depthwise_types(layer)
        if channel_multiplier(layer) != 1:
            return "it requires one output channel per input channel"
        if _find_tile(out, window) is None:
            return "no tile of 4 outputs fits the output and has its windows in 4 words of 4 rows"
        form, records = requantization(layer)
        if form is mve.MveForm.GENERAL:
            return "it requires multipliers below one half"
        return mve.unshared_biases(records)

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out, window = depthwise_types(layer)
        tile = _find_tile(out, window)
        assert tile is not None
        form, _ = requantization(layer)
        tiles, overlapped = tile.along(out.shape[2]), out.shape[2] % tile.shape[1] > 0
        if not _tiles_pipelined(layer, tile):
            channel = Terms(channel=1, overlapped=overlapped) + tiles * (
                Terms(tile=1) + mve.finish_terms(form)
            )
        elif tiles == 1:
            channel = Terms(alone=1, alone_plain=form is mve.MveForm.PLAIN)
        else:
            channel = Terms(beside=1, beside_tile=tiles, beside_overlapped=overlapped)
        bands = out.shape[0] * -(-out.shape[1] // tile.shape[0])
        band = Terms(band=1) + load_terms(x, tile.groups) + out.shape[3] * channel
        return Terms(call=1) + bands * band

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = depthwise_types(layer)
        tile = _find_tile(out, window)
        assert tile is not None
        return _rows_overlap(x, out, window, tile.shape[0])

    def row_granularity(self, layer: LayerContext) -> int:
        _, _, out, window = depthwise_types(layer)
        tile = _find_tile(out, window)
        assert tile is not None
        return tile.shape[0]

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return self.row_granularity(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = depthwise_types(layer)
        tile = _find_tile(out, window)
        assert tile is not None and x.quant is not None
        form, records = requantization(layer)
        weights = _pack_tile(layer.array(1), tile, window)
        clamp, fields = mve.output_parameters(layer)
        channels = x.shape[3]
        pad_left = window.padding[1][0]
        span = (out.shape[2] - 1) * window.strides[1] + window.extent[1]
        columns = max(span, pad_left + x.shape[2])
        band = columns * channels * 4 + SLACK
        taps = [g * band + column * channels * 4 for g in range(tile.groups) for column in tile.columns]
        taps += [0] * (4 - len(taps))
        targets = [
            (i * out.shape[2] + j) * channels for i in range(tile.shape[0]) for j in range(tile.shape[1])
        ]
        parameters: dict[str, Parameter] = {
            "channels": Constant("channels", mve.pack_records(records)),
            "weights": Constant("weights", weights.array),
            "taps": Constant("taps", np.array(taps, np.uint32)),
            "targets": Constant("targets", np.array(targets, np.uint32)),
            **image_parameters(x, out),
            "band_rows": tile.band_rows,
            "stride_height": window.strides[0],
            "stride_width": window.strides[1],
            "pad_top": window.padding[0][0],
            "pad_left": pad_left,
            "columns": columns,
            "band": band,
            "input_zero_point": x.quant.zero_point,
            **fields,
        }
        # Whether a row has one tile.
        single = out.shape[2] == tile.shape[1]
        pipelined = _tiles_pipelined(layer, tile)
        if single or pipelined:
            del parameters["stride_width"]
        spec = (
            ("requantize", form.value),
            ("clamp", clamp),
            ("tile_height", tile.shape[0]),
            ("tile_width", tile.shape[1]),
            ("starts", weights.starts),
            ("step", weights.step),
            ("single", single),
            ("pipelined", pipelined),
            ("overlapped", out.shape[2] % tile.shape[1] > 0),
        )
        scratch = OUTSIDE + tile.groups * band
        return KernelCall(
            CFunction("depthwise_conv2d/mve_tile.c.j2", self.name, spec, self.fields), parameters, scratch
        )


def _tiles_pipelined(layer: LayerContext, tile: _Tile) -> bool:
    """Return whether pipelined code overlaps the sums of a tile with the requantisation of the previous one.

    In rows of one tile, the previous tile belongs to the previous channel.
    """
    form, _ = requantization(layer)
    clamp, _ = mve.output_parameters(layer)
    _, _, out, window = depthwise_types(layer)
    if out.shape[2] == tile.shape[1]:
        # The code without limits has registers to round ties of negative numbers.
        return form is not mve.MveForm.GENERAL and not clamp and not layer.compiled_for_size
    # With stride 1, one register has the steps of inputs and of outputs. Two steps need too many registers.
    return is_pipelined(layer, form, clamp) and window.strides[1] == 1


def _tile_vectors(filters: Array | None, tile: _Tile, window: Window) -> Array:
    """Return each output's taps at their positions in the words of a patch, int8 [channels, 4, 16].

    Args:
        filters: [1, KH, KW, channels].
    """
    assert filters is not None
    packed = np.zeros((filters.shape[3], *tile.shape, tile.groups, len(tile.columns), ROWS), np.int8)
    for y, x, i, j in np.ndindex(*tile.shape, *window.size):
        group, row = divmod(y * window.strides[0] + i * window.dilations[0], ROWS)
        column = tile.columns.index(x * window.strides[1] + j * window.dilations[1])
        packed[:, y, x, group, column, row] = filters[0, i, j]
    flat = packed.reshape(filters.shape[3], 4, -1)
    return np.pad(flat, ((0, 0), (0, 0), (0, mve.LANES - flat.shape[2])))


class _TileWeights(Struct, frozen=True):
    """Packed vectors of the weights of a tile's outputs.

    Attributes:
        array: packed weights, int8.
        starts: offsets of the four vectors of the first channel, in bytes.
        step: bytes from a channel to the next.
    """

    array: Array
    starts: tuple[int, ...]
    step: int


def _pack_tile(filters: Array | None, tile: _Tile, window: Window) -> _TileWeights:
    """Pack the taps of each channel once, with zeros around them, if the four vectors are shifted copies.

    A vector that is loaded from n bytes before the taps has the taps shifted by n bytes. If the vectors are
    no shifted copies, pack all four of them.
    """
    vectors = _tile_vectors(filters, tile, window)
    channels = vectors.shape[0]
    (places,) = _tile_vectors(np.ones((1, *window.size, 1), np.int8), tile, window)
    used = int(np.flatnonzero(places[0]).max()) + 1
    moves = [_moved_by(places[0], used, places[k]) for k in range(4)]
    found = [move for move in moves if move is not None]
    if len(found) < len(moves):
        return _TileWeights(vectors, (0, 16, 32, 48), vectors[0].size)
    before = max(found)
    # A vector that starts at the taps needs zeros after them, which may be the zeros of the next channel.
    step = max(before + used, mve.LANES)
    packed = np.zeros((channels - 1) * step + before + mve.LANES, np.int8)
    for channel, taps in enumerate(vectors[:, 0, :used]):
        packed[channel * step + before :][:used] = taps
    return _TileWeights(packed, tuple(before - move for move in found), step)


def _moved_by(first: Array, used: int, other: Array) -> int | None:
    """Return the shift in bytes that turns a vector with `used` bytes into another one; None if none does."""
    for move in range(mve.LANES - used + 1):
        if np.array_equal(np.pad(first, (move, 0))[: mve.LANES], other):
            return move
    return None


def _rows_overlap(x: TensorType, out: TensorType, window: Window, rows: int) -> int:
    """Return the smallest ``input address - output address`` for a kernel that copies inputs of some rows.

    Each step copies the inputs of `rows` output rows before it writes them. The last step starts earlier if
    fewer rows remain.
    """
    starts = [min(i, out.shape[1] - rows) for i in range(0, out.shape[1], rows)]
    row_in, row_out = x.nbytes // (x.shape[0] * x.shape[1]), out.nbytes // (out.shape[0] * out.shape[1])
    steps = [
        (
            (n * x.shape[1] + max(start * window.strides[0] - window.padding[0][0], 0)) * row_in,
            (n * out.shape[1] + start + rows) * row_out,
        )
        for n in range(x.shape[0])
        for start in starts
    ]
    reads, writes = (list(part) for part in zip(*steps, strict=True))
    # Starts are in order, so no later step reads before the start of the next one.
    return max((write - read for write, read in zip(writes, reads[1:], strict=False)), default=-x.nbytes)
