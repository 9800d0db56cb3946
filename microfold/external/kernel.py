"""External functions as kernels, so that planner and code generation need not distinguish them."""

from __future__ import annotations

from microfold.external.external import External, ExternalRegion
from microfold.external.registry import resolve
from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.kernels import kernel
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.control.call import Call
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.target import Target
from microfold.transform.placement.fuse_ops import FuseOps


class ExternalKernel(Kernel):
    """Kernel for one region. It never computes in place, because libraries do not guarantee that."""

    op = Call

    def __init__(self, external: External, region: ExternalRegion):
        self.external = external
        self.region = region
        self._call = external.lower(region)
        self.name = self._call.function.name

    def supports(self, layer: LayerContext) -> str | None:
        return None

    def cost(self, layer: LayerContext) -> float:
        return 0.0

    def lower(self, layer: LayerContext) -> kernel.KernelCall:
        return self._call

    def work(self, layer: LayerContext) -> tuple[Node, ...]:
        return self.region.body.nodes

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return tuple(range(len(layer.node.inputs)))


def external_kernel(node: Node, graph: Graph, target: Target, options: Options) -> ExternalKernel | None:
    """Return the kernel of a region for an external code generator; None for all other nodes."""
    op = node.op
    if not isinstance(op, Call) or not op.compiler:
        return None
    (external,) = (found for found in resolve(options.external) if found.name == op.compiler)
    # The pipeline fuses only if kernels of the target support the result; external code supports all clips.
    body = FuseOps()(graph.subgraphs[op.body], PassContext())
    return ExternalKernel(external, ExternalRegion(body, op.composite, target, options))
