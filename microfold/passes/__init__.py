"""Passes: graph to graph. What a pass is, what it is told, and how several are run.

A pass is pure: it takes a `Graph` and a `PassContext` and returns a graph, the same object if there was
nothing to do. It is written as a function or, where it has options, as a class, under one of two decorators::

    @function_pass(opt_level=2)
    def fold_constant(graph: Graph, context: PassContext) -> Graph: ...

    @function_pass(opt_level=1)
    @frozen
    class FuseOps:
        may_fuse: FusionRule = only_clip
        def transform(self, graph: Graph, context: PassContext) -> Graph: ...

    optimized = Sequential([fold_constant, FuseOps()])(graph, PassContext(opt_level=2))

The vocabulary is that of TVM's pass infrastructure (https://tvm.apache.org/docs/arch/pass_infra.html).
"""
