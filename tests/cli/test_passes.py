"""The commands that run and show passes. They are called within this process, which is faster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from msgspec.structs import replace

import microfold.ops
from microfold.ir.graph import Graph
from microfold.ir.text import parse
from microfold.passes import registry
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.passes.kinds import Sequential
from microfold.pipeline import default_pipeline
from microfold.transform import available
from tests.command_line import Outcome, microfold

Run = Callable[..., Outcome]

CNN = Path(__file__).resolve().parents[1] / "models" / "made" / "cnn_int8.tflite"
CLIPS = dedent(
    """\
    graph @clips(%x: float32[2]) -> (%b) {
      %a: float32[2] = clip(%x) {minimum=0.0, maximum=9.0}
      %b: float32[2] = clip(%a) {minimum=-inf, maximum=6.0}
    }
    """
)
MERGED = dedent(
    """\
    graph @clips(%x: float32[2]) -> (%b) {
      %b: float32[2] = clip(%x) {minimum=0.0, maximum=6.0}
    }
    """
)
SCALED = """
graph @scaled(%x: float32[1,2]) -> (%y) {
  %w = constant float32[2,2] [1.0, 2.0, 3.0, 4.0]
  %a: float32[1,2] = fully_connected(%x, %w)
  %s = constant float32[2] [0.5, 0.25]
  %y: float32[1,2] = mul(%a, %s)
}
"""


@pytest.fixture
def microfold_() -> Run:
    return microfold


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    path = tmp_path / "clips.mf"
    path.write_text(CLIPS)
    return path


def test_passes_over_the_text_form(microfold_: Run, clips: Path) -> None:
    assert microfold_("opt", clips, "--passes", "canonicalize_ops") == Outcome(0, MERGED, "")
    assert microfold_("opt", clips, "--passes", "dead_code_elimination").out == CLIPS
    data = json.loads(microfold_("opt", clips, "--passes", "canonicalize_ops,fuse_ops", "--json").out)
    assert data == {"model": "clips", "passes": ["canonicalize_ops", "fuse_ops"], "text": MERGED}


def test_the_default_pipeline_over_a_model(microfold_: Run) -> None:
    text = microfold_("opt", CNN).out
    assert (
        text
        == microfold_("opt", CNN, "--passes", "default").out
        == microfold_("ir", CNN, "--after", "all").out
    )
    assert microfold_("opt", CNN, "--opt-level", "0").out.count(" = clip(") == 2
    assert microfold_("opt", CNN, "--disable", "canonicalize_ops,fuse_ops").out.count(" = clip(") == 2
    assert "| clip(" in microfold_("opt", CNN, "--opt-level", "0", "--require", "fuse_ops").out
    assert " = conv2d {" in microfold_("opt", CNN, "--tree").out


def test_output_file_has_all_constants(microfold_: Run, tmp_path: Path) -> None:
    path = tmp_path / "new" / "cnn.mf"
    assert microfold_("opt", CNN, "-o", path) == Outcome(0, "", "")
    assert "sha256" not in path.read_text()
    shown = microfold_("opt", CNN, "--constants").out
    assert shown == path.read_text()
    assert microfold_("opt", path, "--passes", "dead_code_elimination", "--constants").out == shown


def test_listed_passes_run_whatever_their_level(microfold_: Run, clips: Path) -> None:
    listed = microfold_("opt", clips, "--passes", "canonicalize_ops", "--opt-level", "0")
    assert listed.out == MERGED
    assert microfold_("opt", clips, "--opt-level", "0").out == CLIPS
    # The passes of a sequence are listed with it.
    clips.write_text(SCALED)
    assert " mul(" not in microfold_("opt", clips, "--passes", "fold_scale_axis", "--opt-level", "0").out
    assert "unknown target" in microfold_("opt", clips, "-t", "cortex-m99").err


def test_options_of_passes(microfold_: Run, clips: Path) -> None:
    sort = "topological_sort{order=breadth, direction=outputs}, canonicalize_ops"
    assert microfold_("opt", clips, "--passes", sort).out == MERGED


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        (
            "canonicalise_ops",
            "unknown pass 'canonicalise_ops' (did you mean canonicalize_ops?); passes: ",
        ),
        ("zzz", "unknown pass 'zzz'; passes: "),
        ("", "passes:1:1: expected a word"),
        ("fuse_ops,", "passes:1:10: expected a word"),
        ("fuse_ops inline", "passes:1:10: expected the end of the text; found 'inline'"),
        (
            "topological_sort{order=wide}",
            "passes:1:24: expected one of depth, breadth, memory for order; found 'wide'",
        ),
        (
            "topological_sort{size=1}",
            "topological_sort has no option 'size'; its options are order: Literal[",
        ),
        ("topological_sort{order=depth,order=depth}", "order is given twice"),
        ("inline{size=1}", "inline has no option 'size'; it has none"),
        ("fuse_ops{may_fuse=1}", "may_fuse cannot be written as text"),
    ],
)
def test_lists_of_passes_that_are_wrong(microfold_: Run, clips: Path, passes: str, message: str) -> None:
    result = microfold_("opt", clips, "--passes", passes)
    assert (result.status, result.out) == (2, "")
    assert message in result.err


def test_explain_lists_the_places(microfold_: Run, clips: Path) -> None:
    arguments = ("opt", clips, "--passes", "canonicalize_ops", "--explain", "canonicalize_ops")
    stays = "no bare clip computes its operand"
    assert microfold_(*arguments).out.splitlines() == [
        f"canonicalize_ops: clip %a: not changed: {stays}",
        "canonicalize_ops: clip %b: a clip of clip %a",
        f"canonicalize_ops: clip %b: not changed: {stays}",
    ]
    assert json.loads(microfold_(*arguments, "--json").out) == [
        {"where": "clip %a", "fired": False, "reason": stays},
        {"where": "clip %b", "fired": True, "reason": "a clip of clip %a"},
        {"where": "clip %b", "fired": False, "reason": stays},
    ]
    assert microfold_("opt", clips, "--explain", "fold_pad").out == "fold_pad: no match sites\n"
    skipped = microfold_("opt", clips, "--explain", "fold_pad", "--disable-pass", "fold_pad").out
    assert skipped == "fold_pad: graph @clips: not changed: it is disabled\n"
    # A sequence is explained by the passes in it.
    clips.write_text(SCALED)
    assert microfold_("opt", clips, "--explain", "fold_batchnorm_to_conv2d").out == (
        "backward_fold_scale_axis: mul %y: its scale 0.25 to 0.5 along axis 1 goes into fully_connected %a\n"
    )
    refused = microfold_("opt", clips, "--passes", "fuse_ops", "--explain", "fold_pad")
    assert refused.status == 2
    assert "pass fold_pad does not run here; passes that run: fuse_ops" in refused.err


def test_instruments(microfold_: Run, clips: Path, tmp_path: Path) -> None:
    passes = ("--passes", "fuse_ops,canonicalize_ops")
    printed = microfold_("opt", clips, *passes, "--print-ir-after", "canonicalize_ops")
    assert printed.out == MERGED
    assert printed.err == f"// after canonicalize_ops\n{MERGED}"
    whole = microfold_("opt", clips, "--passes", "fold_scale_axis", "--print-ir-after", "fold_scale_axis")
    assert whole.err == f"// after fold_scale_axis (no change)\n{whole.out}"
    every = microfold_("opt", clips, *passes, "--print-ir-after-all").err
    assert every.startswith("// after fuse_ops (no change)\n")
    microfold_("opt", clips, *passes, "--dump-ir", tmp_path / "dump")
    first, *_, last = sorted(path.name for path in (tmp_path / "dump").iterdir())
    assert first == "0000_input.mf"
    assert last.endswith("_canonicalize_ops.mf")
    timed = microfold_("opt", clips, *passes, "--timing", "--verify-each").err
    lines = [line.split()[-1] for line in timed.splitlines()]
    assert [lines[0], *lines[-2:]] == ["fuse_ops", "canonicalize_ops", "passes"]
    unknown = microfold_("opt", clips, "--print-ir-after", "nope")
    assert "unknown pass 'nope'" in unknown.err


def test_verify_each_names_the_pass(microfold_: Run, clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @function_pass(opt_level=0)
    def lose_nodes(graph: Graph, context: PassContext) -> Graph:  # noqa: ARG001
        return replace(graph, nodes=())

    monkeypatch.setattr("microfold.cli.passes_text.registered_passes", lambda: {"lose_nodes": lose_nodes})
    result = microfold_("opt", clips, "--passes", "lose_nodes", "--verify-each")
    assert result.status == 2
    assert "after lose_nodes: graph 'clips' is not well-formed" in result.err


def test_build_takes_the_same_options_and_the_text_form(microfold_: Run, clips: Path, tmp_path: Path) -> None:
    arguments = (
        "build",
        clips,
        "-t",
        "host",
        "-o",
        tmp_path / "c",
        "--print-ir-after",
        "canonicalize_ops",
        "--verify-each",
    )
    result = microfold_(*arguments)
    assert result.status == 0, result.err
    # The pipeline has it twice, and runs until nothing changes.
    no_change = f"// after canonicalize_ops (no change)\n{MERGED}"
    assert result.err == f"// after canonicalize_ops\n{MERGED}{3 * no_change}"
    assert (tmp_path / "c" / "clips.c").exists()
    report = json.loads(
        microfold_("build", clips, "-o", tmp_path / "d", "--disable-pass", "canonicalize_ops", "--json").out
    )
    assert sum(1 + len(layer["fused"]) for layer in report["layers"]) == 2
    assert "numerics must be one of exact, relaxed" in microfold_("build", clips, "--numerics", "vague").err


OWN = """
from microfold.passes.decorators import function_pass


@function_pass(opt_level=0)
def {name}(graph, context):
    \"\"\"Looks at each node.\"\"\"
    for node in graph.nodes:
        context.declined(node, "it only looks")
    return graph
"""


def test_own_passes_are_inserted_into_the_pipeline(
    microfold_: Run, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "FINDERS", [*registry.FINDERS])
    own, taken = tmp_path / "own.py", tmp_path / "taken.py"
    own.write_text(OWN.format(name="look_around"), encoding="utf-8")
    taken.write_text(OWN.format(name="fuse_ops"), encoding="utf-8")
    place = ("--custom", own, "--pass-before", "layout=look_around")
    found = microfold_("opt", clips, *place, "--explain", "look_around")
    assert "not changed: it only looks" in found.out, found.err
    built = microfold_("build", clips, "-o", tmp_path / "c", *place, "--timing")
    assert built.status == 0 and "look_around" in built.err, built.err
    assert "Looks at each node." in microfold_("passes", "--custom", own).out
    assert "pass fuse_ops already exists" in microfold_("opt", clips, "--custom", taken).err
    assert "must be NAME=PASS" in microfold_("opt", clips, "--pass-after", "layout").err


def test_explanations_of_builds(microfold_: Run, clips: Path) -> None:
    lines = microfold_("explain", clips, "-t", "cortex-m4").out.splitlines()
    subjects = ["objective", "figures", "proof", "arena set by", "1 % less RAM", "streaming", "not fused"]
    assert [s for s in subjects if not any(line.startswith(s) for line in lines)] == []
    data = json.loads(microfold_("explain", clips, "-t", "cortex-m4", "--json").out)
    assert data["proved"] is True
    assert "other kernel" in "\n".join(lines) or not data["others"]


def test_lists_of_passes(microfold_: Run) -> None:
    rows = {row["name"]: row for row in json.loads(microfold_("passes", "--json").out)}
    assert set(rows) == set(available())
    assert rows["fold_constant"]["opt_level"] == 2
    assert rows["materialize_outputs"]["mandatory"] is True
    assert "order: Literal['depth', 'breadth', 'memory']" in rows["topological_sort"]["options"]
    assert rows["topological_sort"]["places"] == []
    assert all(row["summary"].endswith(".") for row in rows.values())
    sections = default_pipeline().sections
    for place, step in enumerate((step for each in sections.values() for step in each.passes), 1):
        inner = step.names() if isinstance(step, Sequential) else set()
        assert all(place in rows[name]["places"] for name in {step.name, *inner})
    assert "materialize_outputs" in microfold_("passes").out
    layout = json.loads(microfold_("passes", "--section", "layout", "--json").out)
    assert [row["name"] for row in layout] == ["convert_layout", "optimize_layout_transform"]
    assert "did you mean layout?" in microfold_("passes", "--section", "layot").err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "bad.mf:1:1: expected 'graph'; found the end of the text"),
        ("graph @g() -> (%y) { }", "bad.mf:1:16: %y is not defined"),
        (
            "graph @g(%x: int8[2]) -> (%x) {\n  %y: int8[2] = nope(%x)\n}",
            "bad.mf:2:17: unknown operator 'nope'",
        ),
        ("graph @g(%x: float32[2]) -> (%x) {\n  state %s: int8[1] initial [0] next %x\n}", "followed by %x"),
        (
            "graph @g(%x: int8[2] q(nan, 0)) -> (%x) { }",
            "%x: int8[2]: a scale must be in [1.4013e-45, 3.40282e+38]",
        ),
        ("graph @g(%x: int8[2] q(0.5, 200)) -> (%x) { }", "a zero point of int8 must be in [-128, 127]"),
        (
            "graph @g(%x: int8[3] q(axis=0, scales=[0.5, 0.5], zero_points=0)) -> (%x) { }",
            "%x: int8[3]: it must have 3 scales; it has 2",
        ),
        (
            "graph @g(%x: int8[3] q(axis=1, scales=[0.5], zero_points=0)) -> (%x) { }",
            "along axis 1; it has 1",
        ),
        ("graph @g(%x: int8[2,0]) -> (%x) { }", "%x: int8[2,0] has no elements"),
        (
            "graph @g(%x: int8[65536,65536]) -> (%x) { }",
            "has at most 16777216 elements; [65536, 65536] has 4294967296",
        ),
    ],
)
def test_text_that_is_no_graph(microfold_: Run, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.mf"
    path.write_text(text)
    for command in ("opt", "build"):
        result = microfold_(command, path)
        assert (result.status, result.out) == (2, "")
        assert message in result.err
        assert result.err.startswith("microfold: ")


def test_files_that_cannot_be_read(microfold_: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.mf"
    assert "cannot read" in microfold_("opt", path).err
    path.write_bytes(b"graph @g\xff")
    assert "bad.mf is not UTF-8 text: byte 8 is 255" in microfold_("opt", path).err
    path.write_text("graph @g(%x: float32[64]) -> (%x) { %c = constant float32[64] dense<sha256:00> }")
    assert "is elided" in microfold_("opt", path).err


def test_tree_of_the_text(microfold_: Run, clips: Path) -> None:
    assert microfold_("opt", clips, "--passes", "inline", "--tree").out == dedent(
        """\
        graph @clips(%x: float32[2]) -> (%b)
          %b: float32[2] = clip {minimum=-inf, maximum=6.0}
            %a: float32[2] = clip {minimum=0.0, maximum=9.0}
              %x
        """
    )
    assert parse(microfold_("opt", clips, "--passes", "inline").out).name == "clips"
