"""Default pass pipeline: the order of the passes, with the reason for each position."""

from __future__ import annotations

from msgspec.structs import replace

from microfold.errors import InputError, UnsupportedModelError
from microfold.ir.graph import Graph
from microfold.passes.context import PassContext
from microfold.passes.kinds import FixedPointIteration, Pass, Section, Sequential
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
    """Return the pipeline of every build, in named sections.

    Its rewrites are repeated until the graph no longer changes. `then` are passes that run once.
    """
    return FixedPointIteration(
        [
            Section(
                "subgraphs",
                "Inlines calls and unrolls loops into a single graph.",
                # Replace calls by bodies: no pass below enters a subgraph.
                inline,
                # Reduce loop-carried values before loops are unrolled.
                loop_invariants,
                remove_unused_outputs,
                remove_unused_parameters,
                # Loops and conditions with constant conditions. Within loops, counters must be folded first.
                PartialEvaluate(),
                inline,
                fold_constant,
                PartialEvaluate(),
                # Conditions that the model computes: compute both branches, then select.
                if_conversion,
                inline,
                # Subgraphs of unrolled loops and folded conditions.
                remove_unused_functions,
                # Later passes should not analyse nodes that no output depends on.
                dead_code_elimination,
            ),
            Section(
                "operators",
                "Expresses functions by the operators that later passes know, and folds constants.",
                # Replace operators without a kernel by products and sums, which are folded below.
                simplify_inference,
                # States that never change become constants, which fold_constant needs.
                eliminate_dead_state,
                # Constants first: the rules below test whether an operand is constant.
                fold_constant,
                # Merge equal branches into one value, before the passes that require values with one reader.
                eliminate_common_subexpr,
                # Functions that models express by several operators, before their constants go into weights.
                expand_pow,
                recognize_gelu,
                # Dilated convolutions, before the layout passes move the transposes that split the images.
                flatten_atrous_conv,
            ),
            Section(
                "layout",
                "Converts images to NHWC, and removes transposes.",
                # Kernels compute NHWC. Before all passes that treat the last axis as channels.
                ConvertLayout(),
                # Early, because transposes separate nodes that the next passes merge.
                optimize_layout_transform,
            ),
            Section(
                "scales",
                "Folds products and sums with constants into weights and biases.",
                # Scales, then shifts, into weights and biases (float32). Before the passes that merge
                # neighbours: removing the products and sums between them makes more nodes adjacent.
                fold_batchnorm_to_conv2d,
                # Scales of quantised values: bit-exact folds only, unless numerics are relaxed.
                fold_quantized_scale_axis,
                # Merge the scales and shifts that remain after weights into one operator (relaxed numerics).
                combine_scale_shift,
            ),
            Section(
                "neighbours",
                "Merges reshapes, pads, casts and activations with the operators next to them.",
                # Turn transposes that move no data into reshapes, and merge chains of reshapes.
                rewrite_dataflow_reshape,
                remove_redundant_reshape,
                # Merge chains of pads and rewrite grouped convolutions as depthwise, for the next passes.
                canonicalize_ops,
                canonicalize_cast,
                # Move activations up to the layers that can fuse them, for example across merged reshapes.
                hoist_clip,
            ),
            Section(
                "quantization",
                "Removes float operators between quantised values.",
                # Between dequantize and quantize, operators that only move or compare floats use integers.
                fake_quantization_to_integer,
                # Remove float32 between quantised values, after canonicalize_cast has removed casts there.
                fold_quantize,
                # Fold the remaining dequantize nodes into readers that also accept integers.
                fold_dequantize,
            ),
            Section(
                "matmul",
                "Folds transposes into matrix products, and chooses their order.",
                # Fold the remaining transposes into matrix products; chains of them are already merged.
                fuse_transpose_matmul,
                simplify_fc_transpose,
                # Matrix products: expand sums first, then choose the cheapest order.
                expand_matmul_of_sum,
                adjust_matmul_order,
                reorder_take_after_matmul,
                # After the passes that expand or reorder matrix products.
                batch_matmul_to_dense,
            ),
            Section(
                "windows",
                "Folds pads into windows, and splits or expands grouped convolutions.",
                # Before fold_pad, which requires the pad right before the convolution.
                move_pad_behind_quantize,
                move_pad_behind_reshape,
                # After canonicalize_ops, which merges chains of pads into one.
                fold_pad,
                # Split groups where profitable. After fold_pad, which folds pads before convolutions.
                split_grouped_conv2d,
                # Remove slices of concatenations of the same parts.
                slice_through_concatenate,
                # Expand groups for kernels and pruning, after all passes that profit from groups.
                expand_grouped_conv2d,
            ),
            Section(
                "work",
                "Removes constant channels, merges parallel layers, and omits blocks of zeros.",
                # After fold_pad: a window with own padding shows the border's effect on a constant channel.
                prune_constant_channels,
                # Merge parallel layers, with the weights that pruning has left.
                combine_concatenated,
                # Merge parallel layers whose results must be separated by slices (opt_level 4 only).
                CombineParallelConv2D(),
                CombineParallelDense(),
                CombineParallelMatmul(),
                # Windows as large as the image. After the passes that match parallel convolutions.
                conv2d_to_dense,
                # Omit blocks of zeros. Last of the weight passes: the others cannot read sparse weights.
                DenseToSparse(),
            ),
            Section(
                "approximation",
                "Computes faster than exactly (relaxed numerics).",
                # Approximations (opt_level 4, relaxed numerics).
                fast_math,
                # float16 if it is faster on the target (relaxed numerics). After all folds into weights.
                to_mixed_precision,
            ),
            Section(
                "cleanup",
                "Removes casts, states, constants and nodes that the rewrites above made redundant.",
                # Casts that have become adjacent.
                canonicalize_cast,
                # Values that lost their other readers can be merged now.
                canonicalize_ops,
                # A state may have lost the node that changed it. If all channels of a value were constant,
                # its readers can now be constant.
                eliminate_dead_state,
                fold_constant,
                # Rewrites may have produced equal nodes, e.g. two reshapes of one value, two equal constants.
                eliminate_common_subexpr,
                # Remove states without readers.
                dead_code_elimination,
            ),
        ],
        then=[
            Section(
                "control_flow",
                "Gives loops and conditions the forms that code generation expects.",
                # Add the iteration count to the remaining loops, and branch subgraphs to conditions. No pass
                # above knows these forms.
                lower_loops,
                lower_branches,
            ),
            Section(
                "external",
                "Cuts out regions for external code generators.",
                # Cut out regions while operators have no epilogues, as the patterns require.
                annotate_target,
                merge_compiler_regions,
                partition_graph,
            ),
            Section(
                "fusion",
                "Fuses operators into the layers that compute their operands.",
                # Scales and shifts that could not be folded into weights become part of the operator.
                recognize_layer_norm,
                # Last of the rewrites, because the others match operators without epilogues.
                FuseOps(),
                # After FuseOps, which fuses clips of convolutions; this pass handles elementwise operators.
                fuse_elementwise,
            ),
            Section(
                "storage",
                "Places values in the storage of others, where that saves copies or arena.",
                # Copies only where the final graph needs them.
                materialize_outputs,
                # Storage of values. After all passes that move or merge values, when the outputs are final.
                # Views last, because the parts of a view cannot be parts of another one.
                slice_as_view,
                concat_as_view,
                # If it makes the arena smaller. Last, because it plans the memory of the final graph.
                fuse_residual,
            ),
        ],
        name="default_pipeline",
        known=available,
    )


def canonical_form() -> Sequential:
    """Return bit-exact passes that simplify a graph so that rows can be followed through its operators."""
    return Sequential(
        [
            inline,
            fold_constant,
            dead_code_elimination,
            eliminate_common_subexpr,
            # Dilated convolutions split images along the frame axis.
            flatten_atrous_conv,
            ConvertLayout(),
            optimize_layout_transform,
            # Chains of reshapes, which can split an axis and join it again.
            rewrite_dataflow_reshape,
            remove_redundant_reshape,
        ],
        name="canonical_form",
        known=available,
    )


def slide(graph: Graph, axis: int, step: int | None, context: PassContext) -> tuple[Graph, Sliding]:
    """Return the graph of a run that takes only new frames, and its description; see `slide_window`.

    Raises:
        InputError: the axis does not exist, or a run cannot take `step` frames.
        UnsupportedModelError: some rows do not depend on frames alone.
    """
    quiet = PassContext(disabled_pass=context.disabled_pass)
    result, sliding = slide_graph(canonical_form()(graph, quiet), axis, step, context)
    return result, replace(sliding, window=graph)


def sliding_axes(graph: Graph) -> list[Sliding]:
    """Return the result of `slide` for each axis that it supports, with the minimum number of frames."""
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


def chosen_pipeline(passes: Pass | None) -> Sequential:
    """Return a pipeline of the caller's passes, followed by the mandatory passes of the default pipeline.

    Without passes, it is the default pipeline.
    """
    if passes is None:
        return default_pipeline()
    steps = (step for section in default_pipeline().sections.values() for step in section.passes)
    mandatory = [step for step in steps if step.mandatory]
    return Sequential([passes, *mandatory], name="chosen_pipeline", known=available)
