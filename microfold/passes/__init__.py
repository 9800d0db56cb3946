"""Pass infrastructure: kinds of passes, their context, sequences of passes, and instruments.

A pass is a pure function of a `Graph` and a `PassContext`. It returns a graph, or the same object if it has
changed nothing. A pass is written as a function or, if it has options, as a class, with a decorator::

    @function_pass(opt_level=2)
    def fold_constant(graph: Graph, context: PassContext) -> Graph: ...

    @function_pass(opt_level=1)
    class FuseOps(Struct, frozen=True):
        may_fuse: FusionRule = only_clip
        def transform(self, graph: Graph, context: PassContext) -> Graph: ...

    optimized = Sequential([fold_constant, FuseOps()])(graph, PassContext(opt_level=2))

The terms are from TVM's pass infrastructure (https://tvm.apache.org/docs/arch/pass_infra.html).
"""
