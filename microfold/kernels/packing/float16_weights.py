"""float32 weights kept as float16 in flash: where that loses nothing, and where it pays.

Models are exported with float16 weights which an operator behind them converts; folded, these are float32.
Where each of them is a float16, as a fact about the values, half of the flash does. A kernel converts them
exactly where it loads them, and computes as it does with float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.op import Op
from microfold.ir.types import Array, DType
from microfold.kernels.call import Constant, KernelCall
from microfold.kernels.kernel import KERNELS, Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum

# A multiply-add of floating-point units, cycles, where a core's table does not say:
# Cortex-M4 Technical Reference Manual (Arm DDI 0439), 7.2.3.
_MULTIPLY_ADD = 3
# How much slower than with float32 a layer may be, unless each byte saved costs at most one instruction.
_SLOWEST: Mapping[str, float] = {"size": 2.0, "balanced": 1.15}
# Bytes of code that conversions take, and that another kernel of an operator takes besides.
_CONVERSION, _KERNEL = 256, 768


class HalfWeights(Kernel):
    """Before a kernel for float32 in the list of bases: the same one with weights in float16."""

    packed = True
    half: ClassVar[bool] = True

    def conversion_cost(self, layer: LayerContext) -> float:
        """Estimated instructions of conversions, less those that shorter weights save."""
        raise NotImplementedError

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or self._unprofitable(layer)

    def cost(self, layer: LayerContext) -> float:
        return super().cost(layer) + self.conversion_cost(layer)

    def _unprofitable(self, layer: LayerContext) -> str | None:
        weights = layer.array(1)
        assert weights is not None
        if not fits(weights):
            return "its weights are not all float16"
        slowest = _SLOWEST.get(layer.options.optimize)
        if slowest is None:
            return None
        room = _least_saved(layer)
        saved = sum(_savings(layer.graph, self.op).values())
        if saved < room:
            return f"float16 weights save {saved} bytes; the code for them takes up to {room}"
        more = self.cost(layer) - min(other.cost(layer) for other in _plain(layer))
        time = min(_time(other, layer) for other in _plain(layer))
        slower = _time(self, layer) / time
        if slower > slowest and more > weights.nbytes // 2:
            return f"it is {slower:.2f} times as slow as with float32 weights; at most {slowest} is worth it"
        return None


def fits(array: Array) -> bool:
    """Whether every element is exactly a finite float16, subnormal ones included."""
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16)
    return bool(np.isfinite(halves).all()) and bool((halves.astype(array.dtype) == array).all())


def with_half_weights(call: KernelCall) -> KernelCall:
    """A call whose weights, float32 elements of which `fits` holds, are float16 in the same order."""
    weights = call.parameters["weights"]
    assert isinstance(weights, Constant)
    halves = replace(weights, array=weights.array.astype(np.float16))
    return replace(call, parameters={**call.parameters, "weights": halves})


def pack_words(weights: Array) -> Array:
    """uint32 [..., n / 2] from float32 [..., n] of which `fits` holds; the first of two in the lower half."""
    bits = weights.astype(np.float16).view(np.uint16).astype(np.uint32)
    return bits[..., 0::2] | bits[..., 1::2] << np.uint32(16)


def pack_pairs(matrix: Array) -> Array:
    """uint32 [channels / 4, pairs, 4] from float32 [channels, K] of which `fits` holds.

    The words hold two neighbouring weights of a channel, the first one in the lower half. Behind the last
    channel, and the last one of an odd number of weights, lies 0.
    """
    even = np.pad(matrix, ((0, 0), (0, matrix.shape[1] % 2)))
    return product_sum.interleave_channels(pack_words(even), 4)


def unpack_pairs(words: Array, channels: int, depth: int) -> Array:
    """Inverse of `pack_pairs`: float32 [channels, depth]."""
    rows = words.swapaxes(1, 2).reshape(-1, words.shape[1])[:channels]
    bits = np.stack([rows & np.uint32(0xFFFF), rows >> np.uint32(16)], axis=2).astype(np.uint16)
    return bits.reshape(channels, -1)[:, :depth].view(np.float16).astype(np.float32)


def software_cost(layer: LayerContext) -> float:
    """Estimated instructions of a product and a sum of float32 where there is no floating-point unit."""
    if layer.target.has("fpu"):
        return 0.0
    return 175.0 if layer.target.has("thumb1") else 80.0


def convert_cost(layer: LayerContext) -> float:
    """Estimated instructions that load one float16 in C instead of a float32."""
    if layer.target.has("thumb1"):
        return 39.0
    return 2.0 if layer.target.has("fpu") else 22.0


def _plain(layer: LayerContext) -> list[Kernel]:
    """The kernels that keep the layer's weights as they are; there is always one in portable C."""
    return [
        kernel
        for kernel in KERNELS
        if kernel.op is type(layer.node.op)
        and not kernel.packed
        and kernel.features <= layer.target.features
        and kernel.supports(layer) is None
    ]


def _time(kernel: Kernel, layer: LayerContext) -> float:
    """Estimated cycles but for those of loads and branches: each product takes a multiply-add."""
    if not layer.target.has("fpu") or layer.target.has("mve_fp"):
        return kernel.cost(layer)
    timing = layer.target.timing
    cycles = timing.float_multiply_add if timing is not None else _MULTIPLY_ADD
    return kernel.cost(layer) + (cycles - 1) * layer.node.macs()


def _least_saved(layer: LayerContext) -> int:
    """Bytes that must be saved: where layers with other weights remain, two kernels are needed for one."""
    savings = _savings(layer.graph, type(layer.node.op))
    return _CONVERSION + (0 if all(savings.values()) else _KERNEL)


@lru_cache(maxsize=16)
def _savings(graph: Graph, op: type[Op]) -> Mapping[Node, int]:
    """Bytes that float16 weights save, of each node of an operator."""
    return {node: _saved(graph, node) for node in graph.nodes if type(node.op) is op}


def _saved(graph: Graph, node: Node) -> int:
    weights = graph.array(node.inputs[1]) if len(node.inputs) > 1 else None
    if weights is None or weights.dtype != DType.FLOAT32.numpy or not fits(weights):
        return 0
    return weights.nbytes // 2
