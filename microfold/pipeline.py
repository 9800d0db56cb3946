"""The order of the passes, and why it is this one."""

from __future__ import annotations

from dataclasses import replace

from microfold.errors import InputError, UnsupportedModelError
from microfold.ir.graph import Graph
from microfold.passes.context import PassContext
from microfold.passes.kinds import FixedPointIteration, Pass, Sequential
from microfold.transform import available
from microfold.transform.external.annotate_target import annotate_target
from microfold.transform.external.merge_compiler_regions import merge_compiler_regions
from microfold.transform.external.partition_graph import partition_graph
from microfold.transform.layout.convert_layout import ConvertLayout
from microfold.transform.layout.optimize_layout_transform import optimize_layout_transform
from microfold.transform.matmul.adjust_matmul_order import adjust_matmul_order
from microfold.transform.matmul.batch_matmul_to_dense import batch_matmul_to_dense
from microfold.transform.matmul.combine_concatenated import combine_concatenated
from microfold.transform.matmul.combine_parallel_conv2d import CombineParallelConv2D
from microfold.transform.matmul.combine_parallel_dense import CombineParallelDense
from microfold.transform.matmul.combine_parallel_matmul import CombineParallelMatmul
from microfold.transform.matmul.conv2d_to_dense import conv2d_to_dense
from microfold.transform.matmul.dense_to_sparse import DenseToSparse
from microfold.transform.matmul.expand_matmul_of_sum import expand_matmul_of_sum
from microfold.transform.matmul.fuse_transpose_matmul import fuse_transpose_matmul
from microfold.transform.matmul.reorder_take_after_matmul import reorder_take_after_matmul
from microfold.transform.matmul.simplify_fc_transpose import simplify_fc_transpose
from microfold.transform.placement.concat_as_view import concat_as_view
from microfold.transform.placement.fuse_elementwise import fuse_elementwise
from microfold.transform.placement.fuse_ops import FuseOps
from microfold.transform.placement.fuse_residual import fuse_residual
from microfold.transform.placement.materialize_outputs import materialize_outputs
from microfold.transform.placement.recognize_layer_norm import recognize_layer_norm
from microfold.transform.placement.slice_as_view import slice_as_view
from microfold.transform.relaxed.fast_math import fast_math
from microfold.transform.relaxed.to_mixed_precision import to_mixed_precision
from microfold.transform.requested.slide_window import Sliding, slide_graph
from microfold.transform.scales.combine_scale_shift import combine_scale_shift
from microfold.transform.scales.fold_batchnorm_to_conv2d import fold_batchnorm_to_conv2d
from microfold.transform.scales.fold_quantized_scale_axis import fold_quantized_scale_axis
from microfold.transform.simplify.canonicalize_cast import canonicalize_cast
from microfold.transform.simplify.canonicalize_ops import canonicalize_ops
from microfold.transform.simplify.dead_code_elimination import dead_code_elimination
from microfold.transform.simplify.eliminate_common_subexpr import eliminate_common_subexpr
from microfold.transform.simplify.eliminate_dead_state import eliminate_dead_state
from microfold.transform.simplify.expand_grouped_conv2d import expand_grouped_conv2d
from microfold.transform.simplify.expand_pow import expand_pow
from microfold.transform.simplify.fake_quantization_to_integer import fake_quantization_to_integer
from microfold.transform.simplify.flatten_atrous_conv import flatten_atrous_conv
from microfold.transform.simplify.fold_constant import fold_constant
from microfold.transform.simplify.fold_dequantize import fold_dequantize
from microfold.transform.simplify.fold_pad import fold_pad
from microfold.transform.simplify.fold_quantize import fold_quantize
from microfold.transform.simplify.hoist_clip import hoist_clip
from microfold.transform.simplify.move_pad_behind_quantize import move_pad_behind_quantize
from microfold.transform.simplify.move_pad_behind_reshape import move_pad_behind_reshape
from microfold.transform.simplify.prune_constant_channels import prune_constant_channels
from microfold.transform.simplify.recognize_gelu import recognize_gelu
from microfold.transform.simplify.remove_redundant_reshape import remove_redundant_reshape
from microfold.transform.simplify.rewrite_dataflow_reshape import rewrite_dataflow_reshape
from microfold.transform.simplify.simplify_inference import simplify_inference
from microfold.transform.simplify.slice_through_concatenate import slice_through_concatenate
from microfold.transform.simplify.split_grouped_conv2d import split_grouped_conv2d
from microfold.transform.subgraphs.if_conversion import if_conversion
from microfold.transform.subgraphs.inline import inline
from microfold.transform.subgraphs.loop_invariants import loop_invariants
from microfold.transform.subgraphs.lower_branches import lower_branches
from microfold.transform.subgraphs.lower_loops import lower_loops
from microfold.transform.subgraphs.partial_evaluate import PartialEvaluate
from microfold.transform.subgraphs.remove_unused_functions import remove_unused_functions
from microfold.transform.subgraphs.remove_unused_outputs import remove_unused_outputs
from microfold.transform.subgraphs.remove_unused_parameters import remove_unused_parameters


def default_pipeline() -> FixedPointIteration:
    """What every build runs, in order; rewrites again, as long as one run makes room for another."""
    return FixedPointIteration(
        [
            # --- One graph of the operators that the passes know.
            # Bodies in place of calls: nothing below enters a subgraph.
            inline,
            # Fewer carried values, before loops are written out.
            loop_invariants,
            remove_unused_outputs,
            remove_unused_parameters,
            # Loops and conditions that constants decide; those within loops only once counters are folded.
            PartialEvaluate(),
            inline,
            fold_constant,
            PartialEvaluate(),
            # Conditions that the model computes: both branches, then a choice.
            if_conversion,
            inline,
            # Bodies of what was written out or decided.
            remove_unused_functions,
            # Nothing later should spend thought on what no output needs.
            dead_code_elimination,
            # What no kernel computes, in terms of products and sums, which are folded below.
            simplify_inference,
            # States that never change become constants, which fold_constant asks for.
            eliminate_dead_state,
            # Constants first: the rules below ask whether an operand is constant.
            fold_constant,
            # Equal branches become one value. Before everything that asks whether a value has one reader.
            eliminate_common_subexpr,
            # Functions that models spell out. Before their constants are folded into weights.
            expand_pow,
            recognize_gelu,
            # Dilated convolutions. Before the layouts, which move the transposes that take images apart.
            flatten_atrous_conv,
            # --- Layouts.
            # Kernels compute NHWC. Before everything that takes the last axis for channels.
            ConvertLayout(),
            # Early: transposes stand between what the next passes merge.
            optimize_layout_transform,
            # --- Arithmetic into weights.
            # Scales, then shifts, into weights and biases (float32). Before what merges neighbours: with the
            # products and sums between them gone, there are more of them.
            fold_batchnorm_to_conv2d,
            # The same for quantised values: what keeps every bit; with relaxed numerics the rest, too.
            fold_quantized_scale_axis,
            # What of it is left behind weights becomes one operator (relaxed numerics only).
            combine_scale_shift,
            # --- Neighbours.
            # What only renames axes is a reshape, and rows of reshapes are one.
            rewrite_dataflow_reshape,
            remove_redundant_reshape,
            # Rows of pads become one, grouped convolutions depthwise: what the next passes look for.
            canonicalize_ops,
            canonicalize_cast,
            # Activations up to the layers that run them: behind reshapes, say, which rows of have become one.
            hoist_clip,
            # Dequantize towards quantize: what only moves or compares floats works on integers.
            fake_quantization_to_integer,
            # Ways through float between quantised values. After canonicalize_cast, which clears them.
            fold_quantize,
            # Those that are left, into what reads integers, too.
            fold_dequantize,
            # Transposes that are left, into products of matrices: by now rows of them are one.
            fuse_transpose_matmul,
            simplify_fc_transpose,
            # Products of matrices: sums taken apart first, then the order that costs least.
            expand_matmul_of_sum,
            adjust_matmul_order,
            reorder_take_after_matmul,
            # After what takes products of matrices apart, or reorders them.
            batch_matmul_to_dense,
            # Before fold_pad, which takes pads that stand in front of convolutions themselves.
            move_pad_behind_quantize,
            move_pad_behind_reshape,
            # After canonicalize_ops, which leaves at most one pad to fold.
            fold_pad,
            # Groups apart, as far as that pays. After fold_pad, which takes pads in front of convolutions.
            split_grouped_conv2d,
            # Parts cut out of what has just been put together of such parts.
            slice_through_concatenate,
            # What kernels compute, and pruning. After everything that can do better with groups.
            expand_grouped_conv2d,
            # --- Less to compute.
            # After fold_pad: a window with its own padding shows what its border does to a constant channel.
            prune_constant_channels,
            # Layers side by side as one: of the weights that are left.
            combine_concatenated,
            # The same where slices have to part the results (opt_level 4 only).
            CombineParallelConv2D(),
            CombineParallelDense(),
            CombineParallelMatmul(),
            # Windows as large as the image. After what looks for convolutions side by side.
            conv2d_to_dense,
            # Blocks of zeros left out. Last of what looks at weights: sparse ones are closed to the others.
            DenseToSparse(),
            # Approximations (opt_level 4, relaxed numerics).
            fast_math,
            # float16 where the target is faster so (relaxed numerics). After all that folds into weights.
            to_mixed_precision,
            # Casts that met.
            canonicalize_cast,
            # What lost its other readers may be merged now.
            canonicalize_ops,
            # A state may have lost what changed it; and where all channels of a value were constant, its
            # readers may now be constant, too.
            eliminate_dead_state,
            fold_constant,
            # Rewrites have made equal what was not before, e.g. two reshapes of one value, or two constants.
            eliminate_common_subexpr,
            # A state whose last reader went is no state.
            dead_code_elimination,
        ],
        then=[
            # --- What code generation expects.
            # Loops that stay get their number of runs, conditions branches of their own. Nothing above knows
            # their form.
            lower_loops,
            lower_branches,
            # What other people's code computes is cut out while operators are bare, as patterns want them.
            annotate_target,
            merge_compiler_regions,
            partition_graph,
            # Scales and shifts are in weights as far as they go there; what is left stays with the operator.
            recognize_layer_norm,
            # Last of the rewrites: the others match bare operators, not epilogues.
            FuseOps(),
            # Behind it: clips of convolutions are taken there, those of elementwise operators here.
            fuse_elementwise,
            # Copies only where the final graph needs them.
            materialize_outputs,
            # Where values lie. After everything that moves or merges values, with the ends settled; views
            # last, because their parts cannot be parts of anything else.
            slice_as_view,
            concat_as_view,
            # Where that makes the arena smaller: last, because it asks for the plan of what is there then.
            fuse_residual,
        ],
        name="default_pipeline",
        known=available,
    )


def canonical_form() -> Sequential:
    """The operators of a graph as themselves, so that rows can be followed through them; all of it exact."""
    return Sequential(
        [
            inline,
            fold_constant,
            dead_code_elimination,
            eliminate_common_subexpr,
            # Dilated convolutions take images apart along the very axis.
            flatten_atrous_conv,
            ConvertLayout(),
            optimize_layout_transform,
            # Rows of reshapes, which may tear an axis apart and put it together again.
            rewrite_dataflow_reshape,
            remove_redundant_reshape,
        ],
        name="canonical_form",
        known=available,
    )


def slide(graph: Graph, axis: int, step: int | None, context: PassContext) -> tuple[Graph, Sliding]:
    """The graph of a run that takes new frames only, and what it stands for; see `slide_window`.

    Raises:
        InputError: there is no such axis, or a run cannot take so many frames.
        UnsupportedModelError: rows do not follow from frames alone.
    """
    quiet = PassContext(disabled_pass=context.disabled_pass)
    result, sliding = slide_graph(canonical_form()(graph, quiet), axis, step, context)
    return result, replace(sliding, window=graph)


def sliding_axes(graph: Graph) -> list[Sliding]:
    """What `slide` makes of a graph, for each axis along which it can, by the fewest frames."""
    found: list[Sliding] = []
    if len(graph.inputs) == 1:
        graph = canonical_form()(graph, PassContext())
        for axis in range(graph.inputs[0].type.rank):
            try:
                found.append(slide_graph(graph, axis, None, PassContext())[1])
            except (InputError, UnsupportedModelError):
                continue
    return found


def optimize(graph: Graph, context: PassContext | None = None) -> Graph:
    """Run the default pipeline.

    Raises:
        InputError: the context names a pass that does not exist.
    """
    return default_pipeline()(graph, context)


def chosen_pipeline(passes: Pass) -> Sequential:
    """A caller's own passes, and behind them those that code generation relies on."""
    mandatory = [step for step in default_pipeline().passes if step.mandatory]
    return Sequential([passes, *mandatory], name="chosen_pipeline", known=available)
