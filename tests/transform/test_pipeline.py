from __future__ import annotations

from pathlib import Path

import pytest

from microfold.errors import InputError, UnsupportedModelError
from microfold.frontend import tflite
from microfold.ir.graph import Graph
from microfold.ir.text import parse, to_text
from microfold.ops.movement.transpose import Transpose
from microfold.passes.context import Decision, Instrument, PassContext, PipelineStep
from microfold.passes.decorators import module_pass
from microfold.passes.instruments import Verify
from microfold.pipeline import default_pipeline, optimize
from microfold.transform import available
from microfold.transform.placement.concat_as_view import concat_as_view
from microfold.transform.placement.fuse_residual import fuse_residual
from microfold.transform.placement.materialize_outputs import materialize_outputs
from microfold.transform.placement.slice_as_view import slice_as_view
from tests.evaluation import assert_same_meaning
from tests.golden import Golden
from tests.sampling import quick, sampled

CHUNKS = 12


@pytest.mark.parametrize("model", ["cnn_int8", "dscnn_bn_int8", "dscnn_bn_f32"])
def test_optimized_models(model: str, made_models: Path, golden: Golden) -> None:
    graph = optimize(tflite.load(made_models / f"{model}.tflite"))
    golden.check(f"{model}.mf", to_text(graph, elide=True))


@pytest.mark.parametrize("chunk", quick(sampled(range(CHUNKS), 3)))
def test_all_models_keep_their_meaning(chunk: int, made_models: Path) -> None:
    count = 0
    for path in sorted(made_models.rglob("*.tflite"))[chunk::CHUNKS]:
        try:
            graph = tflite.load(path)
        except UnsupportedModelError:
            continue
        if sum(node.macs() for node in graph.nodes) < 2_000_000:
            optimized = optimize(graph, PassContext(instruments=[Verify()]))
            assert_same_meaning(graph, optimized, calls=2, tolerance=1e-5)
            count += 1
    assert count > 100 // CHUNKS


def test_one_run_leaves_nothing_to_the_next() -> None:
    """A shuffle of channels that goes into filters only when these are no longer grouped."""
    graph = parse((Path(__file__).resolve().parents[1] / "models" / "found" / "lay_shuffle.mf").read_text())
    once = optimize(graph)
    assert sum(isinstance(node.op, Transpose) for node in once.nodes) == 2
    assert to_text(optimize(once)) == to_text(once)


def test_every_pass_is_named_as_its_file() -> None:
    folder = Path(__file__).resolve().parents[2] / "microfold" / "transform"
    files = {path.stem for path in folder.glob("*/*.py")}
    assert set(available()) == files - {"__init__"}
    pipeline = default_pipeline()
    assert pipeline.names() - pipeline.sections.keys() <= files
    assert not pipeline.sections.keys() & files


def test_levels_are_those_of_tvm() -> None:
    levels = {
        "fuse_ops": 1,
        "fold_constant": 2,
        "fold_scale_axis": 3,
        "backward_fold_scale_axis": 3,
        "forward_fold_scale_axis": 3,
        "fold_batchnorm_to_conv2d": 3,
        "alter_op_layout": 3,
        "canonicalize_ops": 3,
        "eliminate_common_subexpr": 3,
        "combine_parallel_conv2d": 4,
        "combine_parallel_dense": 4,
        "combine_parallel_matmul": 4,
        "fast_math": 4,
    }
    known = available()
    for name in levels.keys() & known.keys():
        assert (name, known[name].opt_level) == (name, levels[name])


def test_values_are_placed_last() -> None:
    """But for what asks for a plan of the arena, which depends on where they lie."""
    *_, outputs, slices, parts, planned = default_pipeline().sections["storage"].passes
    assert (outputs, slices, parts) == (materialize_outputs, slice_as_view, concat_as_view)
    assert planned is fuse_residual


@pytest.mark.parametrize("place", [{"before": "fusion"}, {"after": "external"}])
def test_passes_are_inserted_at_sections(place: dict[str, str]) -> None:
    found: list[str] = []

    @module_pass(opt_level=0)
    def own(graph: Graph, _: PassContext) -> Graph:
        found.append("own")
        return graph

    class Look(Instrument):
        def before(self, step: PipelineStep, graph: Graph) -> None:
            found.append(step.name)

    graph = parse("graph @g(%x: float32[4]) -> (%y) {\n  %y: float32[4] = abs(%x)\n}")
    edited = default_pipeline().with_pass(own, **place).without_pass("layout")
    edited(graph, PassContext(instruments=[Look()]))
    at = found.index("partition_graph")
    assert found[at : at + 4] == ["partition_graph", "own", "own", "recognize_layer_norm"]
    assert "convert_layout" not in found
    with pytest.raises(InputError, match="unknown pass 'fusin'; did you mean fusion"):
        default_pipeline().with_pass(own, after="fusin")


def test_a_section_is_disabled_and_required_by_its_name() -> None:
    graph = parse("graph @g(%x: float32[4]) -> (%y) {\n  %y: float32[4] = abs(%x)\n}")
    decisions: list[Decision] = []
    context = PassContext(
        opt_level=0, disabled_pass=["storage"], required_pass=["matmul"], sink=decisions.append
    )
    default_pipeline()(graph, context)
    skipped = {decision.pass_name for decision in decisions if not decision.fired}
    assert {"slice_as_view", "concat_as_view", "fuse_residual", "fuse_ops"} <= skipped
    assert not {"materialize_outputs", "adjust_matmul_order"} & skipped


def test_unknown_names_are_refused(made_models: Path) -> None:
    graph = tflite.load(made_models / "cnn_int8.tflite")
    with pytest.raises(InputError, match=r"unknown pass fuse_op; known are .*fuse_ops"):
        optimize(graph, PassContext(disabled_pass=["fuse_op"]))
