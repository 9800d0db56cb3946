"""The order of the passes, and why it is this one."""

from __future__ import annotations

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.passes import PassContext, Sequential
from microfold.transform import available
from microfold.transform.canonicalize_ops import canonicalize_ops
from microfold.transform.dead_code_elimination import dead_code_elimination
from microfold.transform.eliminate_common_subexpr import eliminate_common_subexpr
from microfold.transform.expand_grouped_conv2d import expand_grouped_conv2d
from microfold.transform.fold_batchnorm_to_conv2d import fold_batchnorm_to_conv2d
from microfold.transform.fold_constant import fold_constant
from microfold.transform.fold_pad import fold_pad
from microfold.transform.fuse_ops import FuseOps
from microfold.transform.materialize_outputs import materialize_outputs
from microfold.transform.prune_constant_channels import prune_constant_channels


def default_pipeline() -> Sequential:
    """What every build runs, in order."""
    return Sequential(
        [
            # Nothing later should spend thought on what no output needs.
            dead_code_elimination,
            # Constants first: the rules below ask whether an operand is constant.
            fold_constant,
            # Equal branches become one value. Before everything that asks whether a value has one reader.
            eliminate_common_subexpr,
            # Scales, then shifts, into weights and biases (float32). Before what merges neighbours: with the
            # products and sums between them gone, there are more of them.
            fold_batchnorm_to_conv2d,
            # Rows of pads become one, grouped convolutions depthwise: what the next passes look for.
            canonicalize_ops,
            # After canonicalize_ops, which leaves at most one pad to fold.
            fold_pad,
            # What kernels compute, and pruning. After everything that can do better with groups.
            expand_grouped_conv2d,
            # After fold_pad: a window with its own padding shows what its border does to a constant channel.
            prune_constant_channels,
            # Where all channels of a value were constant, its readers may now be constant too.
            fold_constant,
            # Rewrites have made equal what was not before, e.g. two reshapes of one value, or two constants.
            eliminate_common_subexpr,
            # A state whose last reader went is no state.
            dead_code_elimination,
            # Last of the rewrites: the others match bare operators, not epilogues.
            FuseOps(),
            # What code generation expects; copies only where the final graph needs them.
            materialize_outputs,
        ],
        name="default_pipeline",
    )


def optimize(graph: Graph, context: PassContext | None = None) -> Graph:
    """Run the default pipeline.

    Raises:
        InputError: the context names a pass that does not exist.
    """
    context = context if context is not None else PassContext()
    pipeline = default_pipeline()
    known = pipeline.names() | set(available())
    unknown = sorted({*context.required_pass, *context.disabled_pass} - known)
    if unknown:
        raise InputError(f"unknown pass {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    return pipeline(graph, context)
