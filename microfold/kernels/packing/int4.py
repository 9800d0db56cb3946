"""Weights of four bits, two in a byte of flash: when they are kept so, and how they are packed.

Whether weights fit is a fact about their values, whatever their declared type: centred at their zero point,
all of them are in [-8, 7].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.types import Array, DType
from microfold.kernels.call import Constant, Parameter, SpecValue
from microfold.kernels.fields import Field, declare
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize.multiply_low import channel_records
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.target import Target

LOW, HIGH = -8, 7
# Channels of a word, and of a block.
GROUP = 4
# Inputs whose sums fit 16 bits.
RUN = 16
# Bytes of code that a kernel for such weights takes: less is not saved by packing them.
_LEAST_SAVED = 1024
# Of all weights, so small a part may keep bytes where speed counts as well as flash.
EXPANDED_SHARE = 16


def unsupported(layer: LayerContext, matrix: Array) -> str | None:
    """The reason if the weights do not fit four bits, or if it does not pay to pack them.

    Args:
        matrix: the weights, any zero point taken off.
    """
    if not _fit(matrix):
        return f"its weights must fit 4 bits; they are in [{matrix.min()}, {matrix.max()}]"
    if layer.options.optimize != "balanced":
        return None
    saved = _fitting_sizes(layer.graph)[type(layer.node.op)] // 2
    if saved < _LEAST_SAVED:
        return f"4 bits for each weight save {saved} bytes; its code takes as much"
    if layer.node.operands[1] in _expanded(layer.graph):
        return f"its {matrix.size} weights are few for so many outputs: they stay bytes"
    return None


def _fit(centred: Array) -> bool:
    return centred.size > 0 and int(centred.min()) >= LOW and int(centred.max()) <= HIGH


@lru_cache(maxsize=16)
def _fitting_weights(graph: Graph) -> Mapping[Value, list[Node]]:
    """Weights that fit, with the layers that have them and whose kernels could pack them."""
    found: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        if not isinstance(node.op, (Conv2D, FullyConnected)):
            continue
        x, value = node.operands[:2]
        weights, quant = graph.array(value), value.type.quant
        if weights is None or (x.type.dtype, value.type.dtype) != (DType.INT8, DType.INT8):
            continue
        zero_point = quant.zero_point if quant is not None and quant.axis is None else 0
        if _fit(weights.astype(np.int16) - zero_point):
            found.setdefault(value, []).append(node)
    return found


@lru_cache(maxsize=16)
def _fitting_sizes(graph: Graph) -> Counter[type[Op]]:
    """How many weights fit, by operator."""
    sizes: Counter[type[Op]] = Counter()
    for value, nodes in _fitting_weights(graph).items():
        sizes[type(nodes[0].op)] += value.type.size
    return sizes


@lru_cache(maxsize=16)
def _expanded(graph: Graph) -> Collection[Value]:
    """Weights that stay bytes, although they would fit.

    For these, packing costs most per byte that it saves: each weight is used for many outputs.
    """
    shared = _fitting_weights(graph)

    def uses(value: Value) -> float:
        return sum(node.output.type.size for node in shared[value]) / value.type.size

    left = sum(value.type.size for value in shared) // EXPANDED_SHARE
    found: set[Value] = set()
    for value in sorted(shared, key=uses, reverse=True):
        left -= value.type.size
        if left < 0:
            break
        found.add(value)
    return found


def pack_words(matrix: Array) -> Array:
    """For cores without SIMD instructions: uint32 words [channels / 4, inputs / 2] from [channels, inputs].

    Behind them lie as many words as runs of `RUN` inputs may read too much.

    Nibbles are 8 larger than weights. ``word & 0x000f000f`` has those of channels 0 and 1 for the first
    input, 16 bits apart; 4 bits higher are channels 2 and 3, another 8 bits higher all of the second input.
    """
    padded = _padded(matrix, 2).astype(np.int64) + 8
    channels, depth = padded.shape
    blocks = padded.reshape(channels // GROUP, 2, 2, depth // 2, 2)
    # [block, word, half: channel's lowest bit, input, channel's highest bit]
    words = join_nibbles(blocks.transpose(0, 3, 2, 4, 1).reshape(-1, 8))
    return np.pad(words, (0, -depth % RUN // 2))


def unpack_words(words: Array, channels: int, depth: int) -> Array:
    """Inverse of `pack_words`: int8 [channels, depth]."""
    shape = (-(-channels // GROUP), (depth + 1) // 2, 2, 2, 2)
    nibbles = split_nibbles(words).reshape(-1)[: int(np.prod(shape))].reshape(shape)
    rows = nibbles.transpose(0, 4, 2, 1, 3).reshape(shape[0] * GROUP, -1)
    return (rows[:channels, :depth] - 8).astype(np.int8)


WORD_FIELDS = declare(
    Field("weights", "[outputs / 4][inputs / 2]: of two inputs and four outputs, 8 larger"), "channels"
)


def word_constants(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> tuple[tuple[tuple[str, SpecValue], ...], dict[str, Parameter]]:
    """How sums of `pack_words` are requantised, and values of `WORD_FIELDS` and of output limits.

    Args:
        matrix: the weights as [channels, K], any zero point taken off.
        multipliers: the reference's mantissas and shifts per channel.
    """
    narrow = layer.target.has("thumb1")
    form, records, clamped, limits = channel_records(layer, matrix, multipliers, narrow=narrow)
    fields: dict[str, Parameter] = {
        "weights": Constant("weights", pack_words(matrix)),
        "channels": Constant("channels", product_sum.pad_records(records, GROUP), record="mf_channel"),
    }
    return (("requantize", form), ("clamped", clamped)), fields | limits


@dataclass(frozen=True)
class WordCosts:
    """Instructions of kernels that read `pack_words`.

    Attributes:
        run: 16 inputs of four channels.
        block: four channels of a row, besides.
        output: one of them.
        input: the sum of a row's inputs.
    """

    run: float
    block: float
    output: float
    input: float

    def row(self, depth: int, channels: int) -> float:
        """All channels of one row of inputs."""
        block = -(-depth // RUN) * self.run + self.block + (20 if depth % RUN else 0)
        return -(-channels // GROUP) * block + self.output * channels + self.input * depth + 30


def word_costs(target: Target) -> WordCosts:
    """For the target's instructions; there is no assembly for others than Thumb."""
    if target.has("thumb1"):
        return WordCosts(180, 100, 36, 6)
    return WordCosts(96, 62, 25, 4) if target.has("thumb2") else WordCosts(220, 80, 36, 3)


def _padded(matrix: Array, inputs: int) -> Array:
    """With zeros up to whole groups of channels, and to a multiple of inputs."""
    channels, depth = matrix.shape
    return np.pad(matrix, ((0, -channels % GROUP), (0, -depth % inputs)))


def join_nibbles(nibbles: Array) -> Array:
    """[..., 8] integers, the lowest four bits of which count, to uint32 [...]: the first one lowest."""
    shifts = np.arange(0, 32, 4, dtype=np.int64)
    return ((nibbles.astype(np.int64) & 0xF) << shifts).sum(axis=-1).astype(np.uint32)


def split_nibbles(words: Array) -> Array:
    """Inverse of `join_nibbles`: int64 [..., 8] in [0, 15]."""
    return words[..., None].astype(np.int64) >> np.arange(0, 32, 4, dtype=np.int64) & 0xF
