"""Checks of one-node graphs, alone or many in one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import make_node
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.plan import memory
from microfold.plan.arena import ArenaPlan, plan_arena
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap
from microfold.program import Layer, Program
from microfold.target import Target
from microfold.verification import verify
from tests.codegen.contract.scan import assert_declared
from tests.kernels.choice import prefer, want_variants
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools

Spec = Mapping[str, Any]
# Tests of kernels want them for the very operators that they build.
KEEP_OPERATORS = PassContext(disabled_pass=("conv2d_to_dense",))
NOTHING: Mapping[str, Spec] = MappingProxyType({})


def load(core: str, *flags: str) -> Target:
    """The core, its code compiled with more flags."""
    loaded = target.load(core)
    return replace(loaded, cpu_flags=(*loaded.cpu_flags, *flags))


def assert_exact(program: Program, runs: int) -> None:
    """Every tensor of `runs` input sets equals the reference, and the C is as its kernels declare."""
    assert_declared(program)
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], runs))
    assert result.exact, result.differences


def check_all(
    graphs: Sequence[Graph], core: str, kernels: set[str], *, optimize: str = "balanced", runs: int = 6
) -> Program:
    """All graphs in one firmware, by these kernels: all of them, and no others."""
    need_tools(*CROSS_TOOLS)
    with pytest.MonkeyPatch.context() as patch:
        prefer(patch, *kernels)
        program = compile_graph(
            merge(list(graphs)), target.load(core), Options(optimize=optimize), context=KEEP_OPERATORS
        )
    chosen = {layer.kernel.name for layer in program.layers}
    assert chosen == kernels, chosen ^ kernels
    assert_exact(program, runs)
    return program


def compile_all(
    graphs: Mapping[str, Graph],
    core: Target,
    options: Options | None = None,
    wanted: Mapping[str, Spec] = NOTHING,
) -> tuple[Program, dict[str, Layer]]:
    """One-node graphs in one program, and the layer of each: it bears the graph's name.

    To start compilers and simulators for every graph would take longer than all else.

    Args:
        wanted: by the graphs' names, choices that the layer's kernel makes, if it has such a variant.
    """
    graph = merge([_named(*item) for item in graphs.items()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "plan_arena", plan_each)
        want_variants(patch, wanted)
        program = compile_graph(graph, core, options, context=KEEP_OPERATORS)
    layers = {layer.label: layer for layer in program.layers}
    # None is split, dropped or shared.
    assert sorted(layer.label for layer in program.layers) == sorted(graphs)
    return program, layers


def assert_chosen(layers: Mapping[str, Layer], kernel: str, wanted: Mapping[str, Spec] = NOTHING) -> None:
    """Every layer has this kernel, whose choices for the named ones are, among others, those wanted."""
    for name, layer in layers.items():
        rejected = {c.kernel.name: c.reason for c in layer.candidates}
        reason = rejected.get(kernel, "no registered kernel of the operator has this name")
        assert layer.kernel.name == kernel, f"{name}: {layer.kernel.name} was selected; {kernel}: {reason}"
    for name, choice in wanted.items():
        spec = dict(layers[name].call.function.spec)
        assert spec | dict(choice) == spec, name


def check_choice(
    graphs: Mapping[str, Graph], core: str, kernel: str, optimize: str = "balanced", **wanted: Any
) -> None:
    """All graphs in one firmware, by this kernel, which must make these choices for each of them."""
    specs = dict.fromkeys(graphs, wanted)
    with pytest.MonkeyPatch.context() as patch:
        prefer(patch, kernel)
        program, layers = compile_all(graphs, load(core), Options(optimize=optimize), specs)
    assert_chosen(layers, kernel, specs)
    assert_exact(program, 6)


def _named(name: str, graph: Graph) -> Graph:
    """The graph with other names of its results, by which a difference is reported."""
    (node,) = graph.nodes
    others = [f"{name}, result {index}" for index in range(1, len(node.outputs))]
    new = make_node(node.op, node.inputs, [name, *others], node.epilogue)
    return replace(graph, nodes=(new,), outputs=new.outputs)


def plan_each(blocks: Sequence[Storage], overlaps: Sequence[Overlap], wanted: int | None = None) -> ArenaPlan:
    """What each layer has in the arena, planned as if it were alone: results lie over dying inputs.

    Among others', there would mostly be other places for them. No smaller arena is looked for.
    """
    del wanted
    layers: dict[int, list[Storage]] = {}
    for block in blocks:
        layers.setdefault(block.last if block.first < 0 else block.first, []).append(block)
    offsets: dict[Storage, int] = {}
    size = 0
    for own in layers.values():
        plan = plan_arena(own, [o for o in overlaps if o.source in own and o.target in own])
        offsets |= {block: size + offset for block, offset in plan.offsets.items()}
        size += plan.size
    return ArenaPlan(offsets, size, size, tuple(overlaps))
