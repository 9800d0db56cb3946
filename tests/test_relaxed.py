"""What is said about a build that is not the imported model bit for bit."""

from __future__ import annotations

from textwrap import dedent

import pytest
from msgspec.structs import replace

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold import target
from microfold.analysis.deviation import measure_deviation
from microfold.analysis.relaxation import Relaxation
from microfold.compiler import compile_graph
from microfold.errors import InputError
from microfold.ir.text import parse
from microfold.options import Options
from microfold.passes.context import Decision, PassContext
from microfold.program import Program
from microfold.reporting.data import RELAXED_RUNS, build_report, verify_report
from microfold.reporting.terminal.verify import print_verification
from microfold.transform.scales.fold_quantized_scale_axis import fold_quantized_scale_axis
from microfold.verification.verify import input_sets, verify

TEXT = """\
    graph @g(%x: int8[1,8] q(0.02, 3)) -> (%y) {
      %w = constant int8[2,8] q(0.01, 0) [100, -50, 7, 110, 9, 90, 3, 4, 5, -60, 70, 80, 90, 1, 2, -3]
      %a: int8[1,2] q(0.05, -7) = fully_connected(%x, %w)
      %s = constant int8[2] q(0.01, 0) [80, -120]
      %y: int8[1,2] q(0.06, 5) = mul(%a, %s)
    }
    """


@pytest.fixture(scope="module")
def program() -> Program:
    source = parse(dedent(TEXT))
    decisions: list[Decision] = []
    relaxed = fold_quantized_scale_axis(source, PassContext(numerics="relaxed", sink=decisions.append))
    made = compile_graph(relaxed, target.load("host"), Options(numerics="relaxed"))
    evidence = tuple(d.evidence for d in decisions if isinstance(d.evidence, Relaxation))
    return replace(made, source=source, relaxations=evidence)


def test_the_report_states_changes_and_the_largest_difference(program: Program) -> None:
    report = build_report(program, None)
    assert report.options.numerics == "relaxed"
    assert report.relaxed is not None
    (change,) = report.relaxed.changes
    assert change.where == "mul %y"
    assert "goes into fully_connected %a" in change.change
    (output,) = report.relaxed.outputs
    assert output.name == "y"
    assert output.elements == 2 * RELAXED_RUNS
    assert output.largest_steps is not None and isinstance(output.largest, float)
    assert 0 < output.largest_steps == round(output.largest / 0.06)


def test_an_exact_build_has_nothing_to_state() -> None:
    program = compile_graph(parse(dedent(TEXT)), target.load("host"))
    assert build_report(program, None).relaxed is None


def test_verification_is_against_the_relaxed_graph(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    result = verify(program, input_sets([buffer.type for buffer in program.inputs], 8))
    assert result.exact, result.differences
    (deviation,) = result.deviations
    assert deviation.changed > 0
    assert verify_report(program, result)["relaxed"][0]["changed"] == deviation.changed
    print_verification(program, result, every_layer=False)
    printed = capsys.readouterr().out
    assert f"by at most {deviation.steps} steps" in " ".join(printed.split())


def test_without_evidence_the_same_difference_is_a_failure(program: Program) -> None:
    calls = input_sets([buffer.type for buffer in program.inputs], 8)
    result = verify(replace(program, relaxations=()), calls)
    assert not result.exact
    assert not result.deviations


def test_deviation_of_a_graph_from_itself() -> None:
    graph = parse(dedent(TEXT))
    (deviation,) = measure_deviation(graph, graph, input_sets([v.type for v in graph.inputs], 4))
    assert (deviation.steps, deviation.real, deviation.changed, deviation.elements) == (0, 0.0, 0, 8)


def test_numerics_has_two_values() -> None:
    with pytest.raises(InputError, match="numerics must be one of exact, relaxed; got 'fast'"):
        Options(numerics="fast")
