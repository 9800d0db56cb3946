"""What holds for every pass on every graph."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from microfold.ir.graph import Graph, verify
from microfold.ir.text import to_text
from microfold.passes.context import PassContext
from microfold.passes.instruments import Verify
from microfold.passes.kinds import Pass
from microfold.pipeline import default_pipeline, optimize
from microfold.transform import available
from tests.evaluation import assert_same_meaning
from tests.random_graphs import graphs

# float sums are added up in another order where a grouped convolution becomes a depthwise one
TOLERANCE = 1e-5

PASSES: dict[str, Pass] = {
    name: item if isinstance(item, Pass) else item() for name, item in available().items()
}
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)


@relaxed
@given(graph=graphs())
def test_every_pass(graph: Graph) -> None:
    """Each on its own, all on the same graphs: drawing them takes the time."""
    text = to_text(graph)
    verify(graph)
    for name, item in PASSES.items():
        once = item(graph)
        if once is graph:
            continue
        verify(once)
        try:
            assert_same_meaning(graph, once, tolerance=TOLERANCE, may_cancel=True)
        except AssertionError as error:
            raise AssertionError(f"{name} changed the meaning: {error}") from None
        assert item(once) is once, f"{name}: a second run finds more to do"
    assert to_text(graph) == text, "a pass changed its input"


@relaxed
@given(graph=graphs(), names=st.lists(st.sampled_from(sorted(PASSES)), min_size=2, max_size=8))
def test_any_sequence(graph: Graph, names: list[str]) -> None:
    result = graph
    for name in names:
        result = PASSES[name](result)
        verify(result)
    assert_same_meaning(graph, result, tolerance=TOLERANCE, may_cancel=True)


@relaxed
@given(
    graph=graphs(),
    disabled=st.sets(st.sampled_from(sorted(PASSES)), max_size=4),
    opt_level=st.integers(0, 4),
)
def test_pipeline_with_passes_left_out(graph: Graph, disabled: set[str], opt_level: int) -> None:
    context = PassContext(opt_level=opt_level, disabled_pass=disabled, instruments=[Verify()])
    result = optimize(graph, context)
    assert_same_meaning(graph, result, tolerance=TOLERANCE, may_cancel=True)
    assert_outputs_are_placed(result)


@relaxed
@given(graph=graphs())
def test_pipeline_is_done_after_one_run(graph: Graph) -> None:
    once = optimize(graph)
    assert to_text(default_pipeline()(once)) == to_text(once)


def assert_outputs_are_placed(graph: Graph) -> None:
    """What `materialize_outputs` promises, found in another way: no two ends share storage, none is given."""
    owner = {value: value for value in graph.inputs}
    computed = set()
    for node in graph.nodes:
        for value in node.outputs:
            source = node.inputs[0]
            owner[value] = owner.get(source, source) if node.op.is_view and source is not None else value
            if owner[value] is value:
                computed.add(value)
    ends = [*graph.outputs, *(s.next for s in graph.state if s.next is not s.value)]
    owners = [owner.get(value, value) for value in ends]
    assert len(set(owners)) == len(owners)
    assert computed.issuperset(owners)
