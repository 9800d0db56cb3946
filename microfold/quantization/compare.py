"""Comparison of quantised models with the float model, tensor by tensor, by the reference interpreter.

Each sample is run three times: by the float model, by the quantised model, and by the quantised model with
every layer reading the float model's values, rounded to its types. The last run shows the loss of each layer
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from microfold.host.ports import Port
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter, Observer
from microfold.ir.node import Node, Value
from microfold.ir.types import Array, Tensor
from microfold.quantization.layers import FloatLayer, named_results

# ai-edge-quantizer converts biases to int32, also if the file stores int64. A larger one becomes -2^31.
_LARGEST_BIAS = (1 << 31) - 1


class LayerQuality(Struct, frozen=True):
    """Loss in the result of one layer.

    Attributes:
        number: number of the layer in the float model.
        tensor: name of the result in the model.
        type: element type of the result in the quantised model.
        snr: ratio of the float values' power to the power of the differences, in dB; None: no differences.
        own_snr: the same for the layer alone, on the float model's values as inputs.
        saturated: share of float values that are outside of the range of the quantised type.
        saturation_noise: share of the layer's own differences, by power, that saturated values have.
        overflowed_biases: biases that exceed 32 bits, and are wrong therefore.
        biases: all biases of the layer.
    """

    number: int
    tensor: str
    operator: str
    type: str
    snr: float | None
    own_snr: float | None
    saturated: float
    saturation_noise: float
    overflowed_biases: int
    biases: int


class OutputQuality(Struct, frozen=True):
    """Loss in an output of the model.

    Attributes:
        agreement: share of positions whose largest element along the last axis is the same; None: the axis
            has one element.
        accuracy: share of samples whose largest element is the label's; None without labels.
    """

    name: str
    snr: float | None
    agreement: float | None
    accuracy: float | None = None


@dataclass
class _Power:
    """Sums over all samples."""

    signal: float = 0.0
    noise: float = 0.0
    elements: int = 0
    saturated: int = 0
    saturated_noise: float = 0.0

    def add(self, wanted: Array, found: Array, value: Value) -> None:
        exact = wanted.astype(np.float64)
        gaps = (exact - Port(value.name, value.type).dequantize(found).astype(np.float64)) ** 2
        outside = _outside(exact, value)
        self.signal += float((exact**2).sum())
        self.noise += float(gaps.sum())
        self.elements += exact.size
        self.saturated += int(outside.sum())
        self.saturated_noise += float(gaps[outside].sum())

    @property
    def snr(self) -> float | None:
        return decibels(self.signal, self.noise)


def decibels(signal: float, noise: float) -> float | None:
    """Return the ratio of two powers in dB; None if there is no noise."""
    if not noise:
        return None
    return float(10 * np.log10(signal / noise)) if signal else float("-inf")


def _outside(exact: Array, value: Value) -> Array:
    """Return which values are more than half a step outside of the range of a quantised type."""
    quant = value.type.quant
    if quant is None:
        return np.zeros(exact.shape, bool)
    low, high = ((end - quant.zero_point) * quant.scale for end in value.type.dtype.range)
    return (exact < low - quant.scale / 2) | (exact > high + quant.scale / 2)


@dataclass
class _Answers:
    """Counts of equal and right answers of an output."""

    equal: int = 0
    right: int = 0
    positions: int = 0

    def add(self, wanted: Array, found: Array, label: int | None) -> None:
        answers = found.argmax(axis=-1)
        self.equal += int((wanted.argmax(axis=-1) == answers).sum())
        self.positions += answers.size
        self.right += int(label is not None and answers.size == 1 and answers.flat[0] == label)


class QuantizedModel:
    """A quantised model in the comparison, with its sums so far."""

    def __init__(self, graph: Graph, layers: Sequence[FloatLayer]):
        self.graph = graph
        self.interpreter = Interpreter(graph)
        self.ports = [Port(value.name, value.type) for value in graph.inputs]
        named = named_results(graph)
        # Layers that ai-edge-quantizer has fused or replaced have no result of this name and shape.
        pairs = [(layer, named.get(layer.value.name)) for layer in layers]
        self.matched = {
            node: (layer, index)
            for layer, place in pairs
            if place is not None and place[0].outputs[place[1]].type.shape == layer.value.type.shape
            for node, index in [place]
            if len(node.outputs) == 1
        }
        self.results = [_Power() for _ in self.matched]
        self.alone = [_Power() for _ in self.matched]
        self.outputs = [_Power() for _ in graph.outputs]
        self.answers = [_Answers() for _ in graph.outputs]
        self.positions = {node: position for position, node in enumerate(self.matched)}

    def quantized(self, inputs: Sequence[Array]) -> list[Array]:
        """Return the inputs in the types of the quantised model."""
        pairs = zip(self.ports, inputs, strict=True)
        return [port.quantize(array) if array.dtype.kind == "f" else array for port, array in pairs]

    def add(
        self,
        inputs: Sequence[Array],
        values: Mapping[str, Array],
        outputs: Sequence[Array],
        label: int | None,
    ) -> None:
        """Add a sample.

        Args:
            values: results of the float model, by name.
            outputs: outputs of the float model.
            label: index of the right class, if it is known.
        """

        def into(sums: list[_Power]) -> Observer:
            def observe(node: Node, results: tuple[Tensor, ...]) -> None:
                if node in self.matched:
                    layer, index = self.matched[node]
                    wanted = values[layer.value.name]
                    sums[self.positions[node]].add(wanted, results[index].data, node.outputs[index])

            return observe

        def given(node: Node) -> list[Array]:
            if node not in self.matched:
                return []
            layer, _ = self.matched[node]
            (value,) = node.outputs
            return [Port(value.name, value.type).quantize(values[layer.value.name])]

        mine = self.quantized(inputs)
        self.interpreter.reset()
        found = self.interpreter.run(*mine, observe=into(self.results))
        for value, array, wanted, power, answers in zip(
            self.graph.outputs, found, outputs, self.outputs, self.answers, strict=True
        ):
            power.add(wanted, array, value)
            if wanted.ndim and wanted.shape[-1] > 1:
                answers.add(wanted, Port(value.name, value.type).dequantize(array), label)
        self.interpreter.reset()
        self.interpreter.run(*mine, observe=into(self.alone), given=given)

    def layer_qualities(self) -> tuple[LayerQuality, ...]:
        """Return the loss of each layer that has a result of the same name in both models."""
        found: list[LayerQuality] = []
        pairs = zip(self.matched.items(), self.results, self.alone, strict=True)
        for (node, (layer, index)), power, alone in pairs:
            overflowed, biases = self._biases(node)
            found.append(
                LayerQuality(
                    layer.number,
                    layer.value.name,
                    layer.operator,
                    str(node.outputs[index].type.dtype.value),
                    power.snr,
                    alone.snr,
                    power.saturated / max(power.elements, 1),
                    alone.saturated_noise / alone.noise if alone.noise else 0.0,
                    overflowed,
                    biases,
                )
            )
        return tuple(sorted(found, key=lambda each: each.number))

    def _biases(self, node: Node) -> tuple[int, int]:
        """Return how many biases of a layer exceed 32 bits, and how many it has."""
        producers = self.graph.producers()
        # Nodes before an activation function belong to the same layer.
        part, nodes = node, [node]
        while len(part.operands) == 1 and (before := producers.get(part.operands[0])) is not None:
            if before in self.matched:
                break
            part = before
            nodes.append(part)
        constants = self.graph.constants
        arrays = [constants[v] for each in nodes for v in each.operands if v in constants]
        sums = [a for a in arrays if a.dtype in (np.dtype(np.int32), np.dtype(np.int64)) and a.ndim == 1]
        overflowed = sum(int((np.abs(a.astype(np.float64)) >= _LARGEST_BIAS).sum()) for a in sums)
        return overflowed, sum(a.size for a in sums)

    def output_qualities(self, labelled: int) -> tuple[OutputQuality, ...]:
        """Return the loss of each output.

        Args:
            labelled: number of samples with labels; they belong to the first output.
        """
        found: list[OutputQuality] = []
        for index, (value, power, answers) in enumerate(
            zip(self.graph.outputs, self.outputs, self.answers, strict=True)
        ):
            agreement = answers.equal / answers.positions if answers.positions else None
            accuracy = answers.right / labelled if labelled and not index else None
            found.append(OutputQuality(value.name, power.snr, agreement, accuracy))
        return tuple(found)


def compare(
    float_graph: Graph,
    candidates: Sequence[QuantizedModel],
    samples: Sequence[Array],
    labels: Sequence[int] | None,
    progress: Callable[[int, int], None],
) -> float | None:
    """Add all samples to all candidates, and return the float model's accuracy, if there are labels.

    Args:
        samples: an array [samples, shape of the input] for each input.
        labels: index of the right class of each sample.
        progress: is called with the finished and all samples.
    """
    interpreter = Interpreter(float_graph)
    count, right = len(samples[0]), 0
    for number, inputs in enumerate(zip(*samples, strict=True)):
        values: dict[str, Array] = {}

        def collect(node: Node, results: tuple[Tensor, ...], into: dict[str, Array] = values) -> None:
            into.update(zip((v.name for v in node.outputs), (r.data for r in results), strict=True))

        interpreter.reset()
        outputs = interpreter.run(*inputs, observe=collect)
        label = labels[number] if labels is not None else None
        right += int(label is not None and outputs[0].argmax() == label)
        for candidate in candidates:
            candidate.add(inputs, values, outputs, label)
        progress(number + 1, count)
    return right / count if labels is not None else None
