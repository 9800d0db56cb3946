"""Folds transposes of operands and results into matrix products.

    %t: float32[2,8,4] = transpose(%k) {permutation=(0, 2, 1)}
    %y: float32[2,4,4] = batch_matmul(%q, %t) {transpose_first=false, transpose_second=false}
        ->
    %y: float32[2,4,4] = batch_matmul(%q, %k) {transpose_first=false, transpose_second=true}

A transpose of an operand's last two axes is a flag of the product. A transpose of the result becomes a
product of the transposed operands in reverse order. A fully connected layer with computed weights has no
flags: with transposed weights it becomes a `batch_matmul`. Every sum keeps its products and their order, and
scales are multiplied in double in either order, so that the bits stay the same.

A transposed value with other readers is computed anyway and stays.
"""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.rewrite import Replacement, RewriteSite, Rule, forward_rewrite
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.transpose import Transpose
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=3)
def fuse_transpose_matmul(graph: Graph, context: PassContext) -> Graph:
    """Fold transposes of the last two axes into the flags of batch_matmul."""
    # One transpose may follow another.
    while True:
        rules = _Rules(graph, context)
        result = forward_rewrite(graph, rules.table())
        if result is graph:
            return graph
        graph = result


class _Rules:
    """Rules of one sweep.

    Attributes:
        fusable: transposed values that only products read.
    """

    def __init__(self, graph: Graph, context: PassContext):
        self.context = context
        ends = {*graph.outputs, *(state.next for state in graph.state)}
        consumers = graph.consumers()
        self.fusable: set[Value] = set()
        for node in graph.nodes:
            if not isinstance(node.op, Transpose) or node.epilogue:
                continue
            if not _turns_matrices(node.op):
                context.declined(node, f"{node.op.permutation} does more than swap the last two axes")
                continue
            if node.inputs[0] in graph.constants:
                continue  # fold_constant evaluates it
            readers = consumers.get(node.output, [])
            other = next((reader for reader in readers if not _reads_matrix(reader, node.output)), None)
            if other is not None or node.output in ends or not readers:
                who = f"{other.op.name} reads it" if other is not None else "it leaves the graph"
                context.declined(node, f"{who}: it is computed anyway")
            else:
                self.fusable.add(node.output)

    def table(self) -> dict[type[Op], Rule[None]]:
        return {
            BatchMatmul: self.matmul,
            FullyConnected: self.fully_connected,
            Transpose: self.transpose,
        }

    def matmul(self, site: RewriteSite[None]) -> Replacement:
        """Fold transposes of the operands of a product."""
        node, op = site.node, site.node.op
        assert isinstance(op, BatchMatmul)
        flags = [op.transpose_first, op.transpose_second]
        operands = [site.value(0), site.value(1)]
        for index in range(2):
            source = self._source(site, index)
            if source is not None:
                flags[index] = not flags[index]
                operands[index] = source
        if flags == [op.transpose_first, op.transpose_second]:
            return None
        self.context.fired(node, "transposes of the last two axes become its flags")
        return site.emit(BatchMatmul(flags[0], flags[1], op.out), *operands, epilogue=site.epilogue)

    def fully_connected(self, site: RewriteSite[None]) -> Replacement:
        """Fold a transpose of the computed weights of a fully connected layer."""
        node, source = site.node, self._source(site, 1)
        if source is None:
            return None
        assert isinstance(node.op, FullyConnected)
        self.context.fired(node, "its weights are transposed: it becomes a batch_matmul")
        op = BatchMatmul(False, False, node.op.out)
        return site.emit(op, site.value(0), source, epilogue=site.epilogue)

    def transpose(self, site: RewriteSite[None]) -> Replacement:
        """Fold a transpose of the result of a product."""
        node, inner = site.node, site.producer(0)
        if inner is None or not isinstance(inner.op, BatchMatmul) or node.epilogue:
            return None
        assert isinstance(node.op, Transpose)
        if not _turns_matrices(node.op) or inner.epilogue or not site.is_only_reader(0):
            return None
        first, second = inner.operands
        op = BatchMatmul(not inner.op.transpose_second, not inner.op.transpose_first, inner.op.out)
        self.context.fired(node, f"batch_matmul %{inner.output.name} computes it with swapped operands")
        return site.emit(op, second, first)

    def _source(self, site: RewriteSite[None], index: int) -> Value | None:
        """Return the operand of a fusable transpose, or None."""
        value = site.node.inputs[index]
        producer = site.producer(index)
        # The transpose may already have been replaced.
        if value not in self.fusable or producer is None or not isinstance(producer.op, Transpose):
            return None
        return producer.operands[0]


def _turns_matrices(op: Transpose) -> bool:
    rank = len(op.permutation)
    return rank >= 2 and op.permutation == (*range(rank - 2), rank - 1, rank - 2)


def _reads_matrix(node: Node, value: Value) -> bool:
    """Return whether the node can read the value transposed."""
    if any(value in step.operands for step in node.epilogue):
        return False
    if isinstance(node.op, BatchMatmul):
        return True
    # A fully connected layer can do so for its weights only, if a batch_matmul of its operands is equivalent.
    if (
        not isinstance(node.op, FullyConnected)
        or node.operands.count(value) != 1
        or node.inputs[1] is not value
    ):
        return False
    x, weights = node.operands[0].type, value.type
    one_scale = weights.quant is None or weights.quant.axis is None
    return len(node.operands) == 2 and x.dtype is weights.dtype and one_scale
