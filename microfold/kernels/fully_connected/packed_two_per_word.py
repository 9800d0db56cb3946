"""int8 fully connected layers for cores without SIMD, with two units in one word.

A word of weights has the bytes ``u = w + 128`` of four units. It equals ``E + 2^8 * O``, with a word E of the
units in its even bytes, and a word O of the units in its odd bytes. The kernel computes two sums over each
run of inputs x, modulo 2^32:

    odd = c + sum(x * O)                c = 2^15 - 128 * (1 + 2^16) * sum(x)
    all = 257 * c + sum(x * (E + 2^8 * O))

``all - 2^8 * odd`` is ``c + sum(x * E)``, so that only O has to be extracted from a word. c is equal for all
units. It compensates the 128 and keeps lower halves from becoming negative. Both sums correspond to S in
`packing.two_pixels_per_word`, for two units instead of two pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.fully_connected.portable import (
    centred_weights,
    fully_connected_types,
    unit_multipliers,
    unsupported_integer_fully_connected,
    weights_zero_point,
)
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum, two_pixels_per_word
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.mul_lo import channel_records
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.fully_connected.fully_connected import FullyConnected

# Number of units in a word. Sums are extracted in pairs: units 0 and 1 are in odd bytes, 2 and 3 in even.
LANES = 4
BYTES_OF_LANES = (2, 0, 3, 1)
LONGEST_RUN = 64
# Inputs per iteration of the inner loop, if the number of inputs is a multiple of it.
UNROLL = 4
# Maximum number of inputs, so that their indices fit int16.
MAXIMUM_INPUTS = (1 << 15) - 1

# Limits of the bytes of remainders relative to the bytes of weights: in variants that save flash, and always.
RESTS_SHARE, MOST_RESTS = 1 / 8, 1.0


class WeightSplit(Struct, frozen=True, eq=False):
    """Weights, split into a part whose runs fit 16 bits, and remainders.

    Attributes:
        run: inputs of a run. The first run may have fewer.
        fitting: weights whose runs fit, int8 [M, K].
        rests: remainders of the weights, int8 [M, K], mostly zero.
    """

    run: int
    fitting: Array
    rests: Array

    def equals(self, other: WeightSplit) -> bool:
        """Return whether another split of the same weights is equal."""
        return self.run == other.run and np.array_equal(self.rests, other.rests)


@lru_cache(maxsize=16)
def _split(
    weights: bytes,
    shape: tuple[int, int],
    unroll: int,
    costs: tuple[float, float, float, float],
    share: float,
) -> WeightSplit | None:
    # The first run is the last one of reversed weights.
    reverse = np.ascontiguousarray(np.frombuffer(weights, np.int8).reshape(shape)[:, ::-1])
    inputs = shape[1]
    lengths = range(unroll, min(inputs, LONGEST_RUN) + 1, unroll)
    while lengths:
        run = two_pixels_per_word.plan_run(reverse, inputs, *costs, lengths)
        fitting, rests = two_pixels_per_word.split_long_runs(reverse, inputs, run)
        # A remainder has an index and a weight of 2 bytes each.
        if 4 * np.count_nonzero(rests) <= share * reverse.size:
            return WeightSplit(run, fitting[:, ::-1], rests[:, ::-1])
        lengths = range(unroll, run, unroll)
    return None


class _FullyConnectedPairs(Kernel, Struct, frozen=True, eq=False):
    """Base class of kernels for 4 or 8 units at a time, which sum runs of inputs in words of two units.

    `weights` has words [outputs / units][inputs][units / 4], see `pack_words`. `rests` has the remainders
    that `split_long_runs` subtracts from weights whose runs would not fit 16 bits. `channels` has records
    whose form `channel_records` proves.

    Attributes:
        few_rests: whether `RESTS_SHARE` limits the bytes of remainders, else `MOST_RESTS`.

    Class attributes:
        core: name of the inner loop.
        narrow: whether the core has no 64-bit products.
    """

    few_rests: bool = False
    trades: frozenset[ResourceTradeoff] = frozenset()

    op = FullyConnected
    superseded_by = frozenset({"dsp"})
    core: ClassVar[str]
    narrow: ClassVar[bool]
    fields = declare(
        "weights",
        "channels",
        Field(
            "rests",
            "for each unit their number, then index of the input and weight of each; NULL if all are 0",
            "const int16_t *",
        ),
        *MATRIX_FIELDS,
        Field("run", "inputs of a run"),
        Field("first", "inputs of the first run"),
        Field("offset", "2^15 for each run"),
        "weights_zero_point",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_integer_fully_connected(layer)
        inputs = fully_connected_types(layer)[0].shape[1]
        if reason is None and not 0 < inputs <= MAXIMUM_INPUTS:
            return f"it requires 1 to {MAXIMUM_INPUTS} inputs; got {inputs}"
        if reason is None and self._split(layer) is None:
            return "the remainders of large weights must not need more bytes than the weights"
        return reason

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        few = replace(self, few_rests=True)
        many = replace(self, trades=self.trades | {ResourceTradeoff.DUPLICATED_WEIGHTS})
        with_few, with_many = few._split(layer), many._split(layer)
        if with_few is None:
            return [many]
        return [few] if with_many is None or with_many.equals(with_few) else [few, many]

    def _units(self, layer: LayerContext) -> int:
        """Return the number of units that are computed together."""
        return LANES if fully_connected_types(layer)[2].shape[1] <= LANES else 2 * LANES

    def _unroll(self, layer: LayerContext) -> int:
        """Return the inputs per iteration of the inner loop."""
        return UNROLL if fully_connected_types(layer)[0].shape[1] % UNROLL == 0 else 1

    def _split(self, layer: LayerContext) -> WeightSplit | None:
        """Return the split of the weights; None if the remainders need too much flash."""
        array = layer.array(1)
        assert array is not None
        weights, unroll = array.astype(np.int8), self._unroll(layer)
        # Costs are for one unit in a group of 8.
        word, once, iteration = (self.coefficient(layer, t) for t in ("word", "input", "iteration"))
        run, run_word, rest, rests = (
            self.coefficient(layer, t) for t in ("run", "run_word", "rest", "rests")
        )
        product = word / LANES + (once + iteration / unroll) / 8
        costs = (product, run / 8 + run_word / LANES, rest, rests)
        # `_split` is cached, because callers ask several times for each layer.
        share = RESTS_SHARE if self.few_rests else MOST_RESTS
        return _split(weights.tobytes(), weights.shape, unroll, costs, share)

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        batch, inputs = x.shape
        split = self._split(layer)
        assert split is not None
        units, runs, rests = self._units(layer), -(-inputs // split.run), int(np.count_nonzero(split.rests))
        groups, words = -(-out.shape[1] // units), units // LANES
        row = Terms(
            row=1,
            start=inputs,
            start_run=runs,
            group=groups,
            input=groups * inputs,
            word=groups * inputs * words,
            iteration=groups * inputs / self._unroll(layer),
            run=groups * runs,
            run_word=groups * runs * words,
            output=out.shape[1],
            rests=out.shape[1] * (rests > 0),
            rest=rests,
        )
        return Terms(call=1) + batch * row

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out = fully_connected_types(layer)
        inputs, units = x.shape[1], self._units(layer)
        split = self._split(layer)
        assert split is not None
        run, rests = split.run, split.rests
        runs = -(-inputs // run)
        form, records, clamp, limits = channel_records(
            layer, centred_weights(layer), unit_multipliers(layer), narrow=self.narrow
        )
        zero_point = weights_zero_point(layer)
        spec = (
            ("core", self.core),
            ("requantize", form),
            ("clamp", clamp),
            ("units", units),
            ("unroll", self._unroll(layer)),
            ("weights_zero_point", zero_point != 0),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", pack_words(split.fitting, units)),
            "channels": Constant("channels", product_sum.pad_records(records, units), record="mf_channel"),
            **matrix_parameters(x, out),
            "run": run,
            "first": inputs - (runs - 1) * run,
            "offset": runs << 15,
        }
        parameters["rests"] = None
        if rests.any():
            packed = two_pixels_per_word.pack_remainders(rests, np.arange(inputs))
            parameters["rests"] = Constant("rests", packed)
        if zero_point:
            parameters |= {"weights_zero_point": zero_point}
        order = f"[outputs / {units}][inputs][{units // 4}], bytes of four units, each plus 128"
        fields = describe(self.fields, weights=order)
        function = CFunction("fully_connected/pairs.c.j2", self.name, spec, fields)
        return KernelCall(function, parameters | limits, scratch=4 * runs)


@register
class FullyConnectedPairsThumb1(_FullyConnectedPairs, frozen=True):
    """Fully connected layer for ARMv6-M, whose requantisation uses 32-bit products."""

    name = "s8_fully_connected__thumb1_pairs"
    features = frozenset({"thumb1"})
    core = "thumb1"
    narrow = True


@register
class FullyConnectedPairsThumb2(_FullyConnectedPairs, frozen=True):
    """Fully connected layer for ARMv7-M, whose requantisation uses 64-bit products."""

    name = "s8_fully_connected__thumb2_pairs"
    features = frozenset({"thumb2"})
    core = "thumb2"
    narrow = False


def pack_words(matrix: Array, units: int) -> Array:
    """Pack int8 [M, K] plus 128 as words of bytes, uint32 [M / units, K, units / 4].

    Units after the last one have zero weights.
    """
    groups = product_sum.interleave_channels(matrix, units)
    lanes = groups.reshape(*groups.shape[:2], -1, LANES)[..., BYTES_OF_LANES]
    return np.ascontiguousarray((lanes.astype(np.int16) + 128).astype(np.uint8)).view("<u4")[..., 0]
