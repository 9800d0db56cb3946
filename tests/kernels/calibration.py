"""The cost model beside what simulated cores count, for whoever calibrates a kernel's `cost`.

    python -m tests.kernels.calibration -t cortex-m4 [-t cortex-m3 …] [--optimize speed] [MODEL.tflite …]

Without models: layers of many sizes, each kernel that selection chooses for them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from microfold import target
from microfold.compiler import compile_file, compile_graph
from microfold.ir.graph import Graph
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.mul import Mul
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.options import OPTIMIZE, Options
from microfold.program import Program
from microfold.simulate.program import simulator
from microfold.verification import verify
from tests.counts import executed
from tests.kernels.graphs import (
    conv2d_graph,
    depthwise_conv2d_graph,
    fully_connected_graph,
    int8_element,
    int8_input,
    one_node_graph,
)
from tests.kernels.random_networks import merge

CORES = ("cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "cortex-m3", "cortex-m0plus")
SAME = ((1, 1), (1, 1))


@dataclass(frozen=True)
class Sample:
    """One layer: what it was thought to need, and what it needed.

    Attributes:
        shapes: of the first input and the output, for people.
        cycles: by the core's timing table; None without one.
    """

    core: str
    model: str
    kernel: str
    shapes: str
    estimated: int
    counted: int
    cycles: int | None

    @property
    def ratio(self) -> float:
        return self.estimated / self.counted


def samples(program: Program, model: str) -> Iterator[Sample]:
    """Every layer of a program, measured in one run."""
    timing = program.target.timing
    with simulator(program) as machine:
        counted = machine.run(_calls(program)).layer_instructions[0]
        cycles = machine.trace(_calls(program), timing).layers[0] if timing is not None else None
    for index, layer in enumerate(program.layers):
        assert layer.estimated_instructions is not None
        shapes = f"{layer.node.operands[0].type} -> {layer.outputs[0].type}"
        kernel = layer.kernel.name
        taken = cycles[index] if cycles is not None else None
        yield Sample(
            program.target.name, model, kernel, shapes, layer.estimated_instructions, counted[index], taken
        )


def _calls(program: Program) -> list[tuple[np.ndarray, ...]]:
    """One call on random inputs."""
    return verify.input_sets([buffer.type for buffer in program.inputs], 4)[3:]


def layers() -> list[Graph]:
    """One-layer networks of the sizes that small models have."""
    convolutions = [
        conv2d_graph(12, 12, channels, filters, size, padding=padding, strides=(stride, stride))
        for channels, filters, size, padding, stride in (
            (3, 8, (3, 3), SAME, 2),
            (1, 16, (5, 5), ((2, 2), (2, 2)), 1),
            (8, 8, (3, 3), SAME, 1),
            (16, 32, (3, 3), SAME, 2),
            (24, 17, (3, 3), SAME, 1),
            (8, 24, (1, 1), ((0, 0), (0, 0)), 1),
            (32, 32, (1, 1), ((0, 0), (0, 0)), 1),
            (19, 21, (1, 1), ((0, 0), (0, 0)), 1),
            (64, 48, (1, 1), ((0, 0), (0, 0)), 1),
            (16, 32, (1, 1), ((0, 0), (0, 0)), 2),
            (4, 12, (1, 7), ((0, 0), (3, 3)), 1),
        )
    ]
    depthwise = [
        depthwise_conv2d_graph(
            14, 14, channels, size, padding=padding, strides=(stride, stride), multiplier=multiplier
        )
        for channels, size, padding, stride, multiplier in (
            (8, (3, 3), SAME, 1, 1),
            (32, (3, 3), SAME, 1, 1),
            (17, (3, 3), SAME, 2, 1),
            (32, (3, 3), SAME, 2, 1),
            (16, (5, 5), ((2, 2), (2, 2)), 1, 1),
            (1, (8, 8), ((3, 4), (3, 4)), 2, 8),
            (24, (1, 9), ((0, 0), (4, 4)), 1, 1),
        )
    ]
    dense = [fully_connected_graph(depth, units) for depth, units in ((32, 10), (256, 64), (401, 33))]
    image = int8_input("x", (1, 12, 12, 24))
    pools: list[tuple[Op, tuple[int, ...]]] = [
        (kind(size, stride, padding), (1, 12, 12, channels))
        for kind in (MaxPool2D, AveragePool2D)
        for size, stride, padding, channels in (
            ((2, 2), (2, 2), ((0, 0), (0, 0)), 16),
            ((3, 3), (1, 1), SAME, 17),
            ((12, 12), (1, 1), ((0, 0), (0, 0)), 48),
        )
    ]
    unit = ElementType(DType.INT8, Quant.per_tensor(1 / 256, -128))
    others = [one_node_graph(op, [int8_input("x", shape)], {}) for op, shape in pools]
    others.append(one_node_graph(Softmax(1.0, unit), [int8_input("x", (1, 100))], {}))
    others.append(one_node_graph(Softmax(1.0, unit), [int8_input("x", (64, 8))], {}))
    for op in (Add(int8_element(0.15)), Mul(int8_element(0.5))):
        others.append(one_node_graph(op, [image, int8_input("y", image.type.shape, 0.07)], {}))
        others.append(one_node_graph(op, [int8_input("x", (1, 5)), int8_input("y", (1, 5), 0.07)], {}))
    return [*convolutions, *depthwise, *dense, *others]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-t", "--target", action="append")
    parser.add_argument("--optimize", choices=OPTIMIZE, default="balanced")
    parser.add_argument("--json", type=Path, help="also write the samples here")
    parser.add_argument("models", nargs="*", type=Path)
    arguments = parser.parse_args()
    options = Options(optimize=arguments.optimize)
    found: list[Sample] = []
    for core in arguments.target or CORES:
        loaded = target.load(core)
        if arguments.models:
            programs = [(path.stem, compile_file(path, loaded, options)) for path in arguments.models]
        else:
            programs = [("layers", compile_graph(merge(layers()), loaded, options))]
        for model, program in programs:
            own = list(samples(program, model))
            for s in own:
                cycles = f"{s.cycles / s.counted:5.2f}" if s.cycles is not None else ""
                numbers = f"{s.counted:10,} {s.estimated:10,} {s.ratio:5.2f} {cycles}"
                print(f"{s.kernel:36s} {s.shapes:76s} {numbers}")
            total, estimated = executed(program), program.estimated_instructions
            assert estimated is not None
            print(f"== {core} {model}: counted {total:,}, estimated {estimated:,}: {estimated / total:.3f}")
            found += own
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(sample) for sample in found]))


if __name__ == "__main__":
    main()
