"""What `--explain` lists: each node that a pass looks at, with what it did there and why."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from microfold.ir.graph import Graph
from microfold.ir.node import describe
from microfold.ir.op import Op
from microfold.ir.rewrite import remove_dead_nodes
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.div import Div
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.unary import Unary
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.transpose import Transpose
from microfold.passes.context import Decision, PassContext
from microfold.passes.kinds import Pass
from microfold.transform.matmul.combine_parallel_conv2d import CombineParallelConv2D
from microfold.transform.matmul.combine_parallel_dense import CombineParallelDense
from microfold.transform.matmul.combine_parallel_matmul import CombineParallelMatmul
from microfold.transform.simplify.canonicalize_ops import canonicalize_ops
from microfold.transform.simplify.eliminate_common_subexpr import eliminate_common_subexpr
from tests.random_graphs import graphs

LOOKS_AT: dict[Pass, tuple[type[Op], ...]] = {
    canonicalize_ops: (
        Add, Clip, Concatenate, Conv2D, Div, Maximum, Minimum, Mul, Pad, Reshape, Sub, Transpose, Unary,
    ),
    CombineParallelConv2D(): (Conv2D,),
    CombineParallelDense(): (FullyConnected,),
    CombineParallelMatmul(): (BatchMatmul,),
    eliminate_common_subexpr: (Op,),
}  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(graph=graphs(), step=st.sampled_from(list(LOOKS_AT)))
def test_each_node_has_a_decision(graph: Graph, step: Pass) -> None:
    decisions: list[Decision] = []
    step(graph, PassContext(opt_level=4, sink=decisions.append))
    places = {decision.where for decision in decisions}
    fired = " ".join(decision.reason for decision in decisions if decision.fired)
    for node in remove_dead_nodes(graph).nodes:
        if isinstance(node.op, LOOKS_AT[step]):
            # One decision may be about several nodes, which its reason names.
            assert describe(node) in places or f"%{node.outputs[0].name}" in fired, node
