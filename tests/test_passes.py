from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.errors import GraphError, InputError
from microfold.ir.graph import Graph
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ir.text import parse, to_text
from microfold.passes.context import Decision, Instrument, PassContext, PipelineStep
from microfold.passes.decorators import function_pass, module_pass
from microfold.passes.instruments import DumpIR, PrintIR, Timing, Verify
from microfold.passes.kinds import FixedPointIteration, FunctionPass, ModulePass, Pass, Sequential
from microfold.transform.external.merge_composite import MergeComposite
from microfold.transform.layout.convert_layout import ConvertLayout
from microfold.transform.matmul.combine_parallel_dense import CombineParallelDense

GRAPH = parse("graph @g(%x: float32[2]) -> (%y) { %y: float32[2] = clip(%x) {minimum=0.0, maximum=1.0} }")


def named(name: str, log: list[str], **options: object) -> Pass:
    """A pass that only notes that it ran."""

    def transform(graph: Graph, context: PassContext) -> Graph:
        assert context.pass_name == name
        log.append(name)
        return graph

    return FunctionPass(transform, name, **options)  # type: ignore[arg-type]


def ran(step: Callable[[list[str]], Pass], context: PassContext | None = None) -> list[str]:
    log: list[str] = []
    step(log)(GRAPH, context)
    return log


def levels(log: list[str]) -> Pass:
    return Sequential([named(f"level{n}", log, opt_level=n) for n in range(5)])


def test_opt_level_required_and_disabled() -> None:
    assert ran(levels) == ["level0", "level1", "level2", "level3"]
    assert ran(levels, PassContext(opt_level=1)) == ["level0", "level1"]
    context = PassContext(opt_level=1, required_pass=["level4"], disabled_pass=["level0"])
    assert ran(levels, context) == ["level1", "level4"]
    assert ran(levels, PassContext(required_pass=["level4"], disabled_pass=["level4"])) == [
        "level0",
        "level1",
        "level2",
        "level3",
    ]


def test_required_passes_are_pulled_in() -> None:
    def step(log: list[str]) -> Pass:
        first = named("first", log, opt_level=4)
        second = named("second", log, required=[first])
        return Sequential([named("zero", log), named("third", log, required=[second])])

    assert ran(step) == ["zero", "first", "second", "third"]
    assert ran(step, PassContext(disabled_pass=["first"])) == ["zero", "second", "third"]
    names = step([])
    assert isinstance(names, Sequential)
    assert names.names() == {"zero", "first", "second", "third"}


def test_mandatory_passes_stay() -> None:
    def step(log: list[str]) -> Pass:
        return Sequential([named("must", log, opt_level=4, mandatory=True)])

    assert ran(step, PassContext(opt_level=0, disabled_pass=["must"])) == ["must"]


def test_skipped_passes_say_why() -> None:
    decisions: list[Decision] = []
    levels([])(GRAPH, PassContext(opt_level=3, disabled_pass=["level0"], sink=decisions.append))
    assert [str(decision) for decision in decisions] == [
        "level0: graph @g: not changed: it is disabled",
        "level4: graph @g: not changed: it requires opt_level 4; the context has 3",
    ]


def test_decisions_name_pass_and_place() -> None:
    @function_pass(opt_level=0)
    def look(graph: Graph, context: PassContext) -> Graph:
        context.fired(graph.nodes[0], "it was there")
        context.declined("elsewhere", "it was not")
        return graph

    decisions: list[Decision] = []
    look(GRAPH, PassContext(sink=decisions.append))
    assert decisions == [
        Decision("look", "clip %y", True, "it was there"),
        Decision("look", "elsewhere", False, "it was not"),
    ]
    look(GRAPH)  # without a sink they go nowhere


NESTED = parse(
    """graph @outer() -> () {
      subgraph @a = graph @one() -> () { subgraph @b = graph @two() -> () { } }
      subgraph @c = graph @three() -> () { }
    }"""
)


def test_function_pass_sees_each_graph_alone_and_module_pass_the_model() -> None:
    seen: list[str] = []

    def rename(graph: Graph, context: PassContext) -> Graph:  # noqa: ARG001
        seen.append(graph.name)
        return replace(graph, name=graph.name.upper())

    module = module_pass(opt_level=0, name="whole")(rename)
    assert isinstance(module, ModulePass)
    assert module.name == "whole"
    assert module(NESTED).subgraphs["a"].name == "one"
    assert seen == ["outer"]
    seen.clear()
    function = function_pass(opt_level=2)(rename)
    assert isinstance(function, FunctionPass)
    assert (function.name, function.opt_level) == ("rename", 2)
    result = function(NESTED)
    assert seen == ["two", "one", "three", "outer"]
    assert result.subgraphs["a"].subgraphs["b"].name == "TWO"


def test_class_form_with_options() -> None:
    @module_pass(opt_level=3)
    @dataclass(frozen=True)
    class RenameGraph:
        suffix: str = "_new"

        def transform(self, graph: Graph, context: PassContext) -> Graph:
            assert context.pass_name == "rename_graph"
            return replace(graph, name=graph.name + self.suffix)

    assert RenameGraph.name == "rename_graph"
    assert RenameGraph()(GRAPH).name == "g_new"
    step = RenameGraph(suffix="2")
    assert (RenameGraph.opt_level, step.opt_level) == (3, 3)
    assert Sequential([step, step])(GRAPH).name == "g22"


def test_class_form_pulls_in_what_it_requires() -> None:
    log: list[str] = []

    @function_pass(opt_level=4, required=[named("first", log, opt_level=4)])
    @dataclass(frozen=True)
    class Second:
        times: int = 1

        def transform(self, graph: Graph, context: PassContext) -> Graph:
            log.extend(["second"] * self.times)
            return graph

    steps = Sequential([Second(times=2)])
    assert steps.names() == {"first", "second"}
    steps(GRAPH, PassContext(opt_level=3))
    assert log == []
    steps(GRAPH, PassContext(opt_level=3, required_pass=["second"]))
    assert log == ["first", "second", "second"]


def test_context_is_frozen_and_checked() -> None:
    context = PassContext(disabled_pass=["a", "b", "a"])
    assert context.disabled_pass == {"a", "b"}
    with pytest.raises(AttributeError):
        context.opt_level = 0  # type: ignore[misc]
    for wrong in ({"opt_level": 5}, {"opt_level": -1}, {"numerics": "fast"}, {"disabled_pass": "fuse_ops"}):
        with pytest.raises(InputError):
            PassContext(**wrong)  # type: ignore[arg-type]


def test_instruments_see_single_passes_inside_out() -> None:
    events: list[str] = []

    @dataclass
    class Watch(Instrument):
        label: str

        def before(self, step: Pass, graph: Graph) -> None:
            events.append(f"{self.label} before {step.name}")

        def after(self, step: Pass, before: Graph, after: Graph) -> None:
            assert before is after
            events.append(f"{self.label} after {step.name}")

    context = PassContext(instruments=[Watch("1"), Watch("2")])
    Sequential([Sequential([named("p", [])])])(GRAPH, context)
    assert events == ["1 before p", "2 before p", "2 after p", "1 after p"]


@function_pass(opt_level=0)
def break_graph(graph: Graph, context: PassContext) -> Graph:  # noqa: ARG001
    return replace(graph, nodes=())


@function_pass(opt_level=0)
def rename(graph: Graph, context: PassContext) -> Graph:  # noqa: ARG001
    return replace(graph, name="renamed")


def test_verify_names_the_pass_that_broke_the_graph() -> None:
    with pytest.raises(GraphError, match=r"after break_graph: [^%]*output %y: .* is not defined"):
        Sequential([rename, break_graph, rename])(GRAPH, PassContext(instruments=[Verify()]))
    with pytest.raises(GraphError, match="before rename"):
        rename(break_graph(GRAPH), PassContext(instruments=[Verify()]))


def test_print_after_chosen_passes(capsys: pytest.CaptureFixture[str]) -> None:
    texts: list[str] = []
    still = named("still", [])
    steps = Sequential([rename, still])
    steps(GRAPH, PassContext(instruments=[PrintIR(["rename"], write=texts.append)]))
    assert texts == [f"// after rename\n{to_text(rename(GRAPH))}"]
    steps(GRAPH, PassContext(instruments=[PrintIR()]))
    assert "// after still (no change)\ngraph @renamed(" in capsys.readouterr().err
    texts.clear()
    inner = Sequential([rename, still], name="inner")
    Sequential([still, inner])(
        GRAPH, PassContext(instruments=[PrintIR(["inner", "nope"], write=texts.append)])
    )
    assert texts == [f"// after inner\n{to_text(rename(GRAPH))}", "// nope did not run\n"]


def test_dump_writes_numbered_files(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "dump"
    Sequential([named("still", []), rename])(GRAPH, PassContext(instruments=[DumpIR(folder)]))
    assert sorted(path.name for path in folder.iterdir()) == ["0000_input.mf", "0002_rename.mf"]
    assert parse((folder / "0002_rename.mf").read_text()).name == "renamed"


def test_timing() -> None:
    timing = Timing()
    Sequential([rename, rename])(GRAPH, PassContext(instruments=[timing]))
    assert [name for name, _ in timing.seconds] == ["rename", "rename"]
    assert all(seconds >= 0 for _, seconds in timing.seconds)
    assert str(timing).count("rename") == 2


def test_timing_counts_each_moment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(
        [0.0, 1.0, 3.0, 7.0]
    )  # the outer pass starts, the inner one does, it ends, the outer one does
    monkeypatch.setattr("microfold.passes.instruments.time.perf_counter", lambda: next(clock))

    @function_pass(opt_level=0)
    def outer(graph: Graph, context: PassContext) -> Graph:
        return rename(graph, context)

    timing = Timing()
    outer(GRAPH, PassContext(instruments=[timing]))
    assert timing.seconds == [("rename", 2.0), ("outer", 5.0)]


def test_dump_into_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write to .*file"):
        rename(GRAPH, PassContext(instruments=[DumpIR(tmp_path / "file")]))


def test_instruments_are_entered_once_and_left_in_any_case() -> None:
    events: list[str] = []

    @dataclass
    class Watch(Instrument):
        label: str

        def enter(self) -> None:
            events.append(f"enter {self.label}")

        def exit(self) -> None:
            events.append(f"exit {self.label}")

        def before(self, step: PipelineStep, graph: Graph) -> None:
            events.extend([step.name] if self.label == "1" else [])

    @function_pass(opt_level=0, required=[named("first", [])])
    def outer(graph: Graph, context: PassContext) -> Graph:
        return rename(graph, context)

    context = PassContext(instruments=[Watch("1"), Watch("2")])
    Sequential([Sequential([outer])])(GRAPH, context)
    assert events == ["enter 1", "enter 2", "first", "outer", "rename", "exit 2", "exit 1"]
    events.clear()

    @function_pass(opt_level=0)
    def fail(graph: Graph, context: PassContext) -> Graph:  # noqa: ARG001
        raise KeyError(graph.name)

    with pytest.raises(KeyError):
        fail(GRAPH, context)
    assert events == ["enter 1", "enter 2", "fail", "exit 2", "exit 1"]


def test_instruments_may_leave_passes_out() -> None:
    @dataclass
    class Without(Instrument):
        name: str

        def should_run(self, step: PipelineStep, graph: Graph) -> bool:
            assert graph is GRAPH
            return step.name != self.name

    log: list[str] = []
    decisions: list[Decision] = []
    steps = [named("a", log), named("b", log), named("c", log, mandatory=True)]
    context = PassContext(instruments=[Without("b"), Without("c")], sink=decisions.append)
    Sequential(steps)(GRAPH, context)
    assert log == ["a", "c"]
    assert [str(d) for d in decisions] == ["b: graph @g: not changed: Without skips it"]


def test_names_that_a_sequence_does_not_know() -> None:
    inner = Sequential([named("b", [])], known=lambda: ["elsewhere"])
    steps = Sequential([named("a", []), inner])
    steps(GRAPH, PassContext(required_pass=["b"], disabled_pass=["elsewhere"]))
    for context in (PassContext(required_pass=["bb"]), PassContext(disabled_pass=["bb"])):
        with pytest.raises(InputError, match="unknown pass bb; known are a, b, elsewhere, sequential"):
            steps(GRAPH, context)


@pytest.mark.parametrize(("result", "what"), [(None, "returned nothing"), ((GRAPH, 1), "returned a tuple")])
def test_what_is_no_graph_is_refused(result: object, what: str) -> None:
    @function_pass(opt_level=0)
    def careless(graph: Graph, context: PassContext) -> Graph:  # noqa: ARG001
        return result  # type: ignore[return-value]

    with pytest.raises(InputError, match=f"careless {what}"):
        Sequential([careless])(GRAPH)


@pytest.mark.parametrize("answer", ["node", "two", "text"])
def test_what_is_no_answer_of_a_rule_is_refused(answer: str) -> None:
    def rule(site: RewriteSite[None]) -> object:
        return {"node": site.node, "two": [site.value(0)] * 2, "text": "x"}[answer]

    with pytest.raises(
        InputError, match=r"a value for each of the 1 results of clip %y; it returned (Node|Value|str)"
    ):
        forward_rewrite(GRAPH, rule)  # type: ignore[arg-type]


def test_what_is_no_pass_is_refused() -> None:
    def transform(graph: Graph, context: PassContext) -> Graph:  # noqa: ARG001
        return graph

    with pytest.raises(InputError, match=r"it has a function: .*transform.*; decorate functions"):
        Sequential([transform])  # type: ignore[list-item]
    with pytest.raises(InputError, match="Careless has none"):

        @function_pass(opt_level=0)
        @dataclass(frozen=True)
        class Careless:  # pyright: ignore[reportUnusedClass]
            pass


def test_a_pass_at_any_place() -> None:
    log: list[str] = []
    a, b, c = (named(name, log) for name in "abc")
    pipeline = FixedPointIteration([a, b], then=[c])
    own = named("own", log)
    for place, expected in (
        ({"before": "a"}, ["own", "a", "b", "c"]),
        ({"after": "b"}, ["a", "b", "own", "c"]),
        ({"after": "c"}, ["a", "b", "c", "own"]),
    ):
        log.clear()
        pipeline.with_pass(own, **place)(GRAPH)
        assert log == expected
    with pytest.raises(InputError, match="unknown pass 'd'; fixed_point_iteration has a, b, c"):
        pipeline.with_pass(own, before="d")
    with pytest.raises(InputError, match="one of the two"):
        pipeline.with_pass(own)


def test_a_pass_made_by_a_call() -> None:
    log: list[str] = []

    def note(graph: Graph, context: PassContext) -> Graph:
        log.append(context.pass_name)
        return graph

    @dataclass(frozen=True)
    class Noting:
        times: int = 1
        word: str | None = None

        def transform(self, graph: Graph, context: PassContext) -> Graph:
            log.extend([context.pass_name] * self.times)
            return graph

    one = function_pass(note, opt_level=1)
    other = module_pass(note, opt_level=1, name="other")
    assert isinstance(one, FunctionPass)
    assert not isinstance(other, FunctionPass)
    Sequential([one, other, module_pass(Noting, opt_level=0)(2, word="a")])(GRAPH)
    assert log == ["note", "other", "noting", "noting"]
    noting = function_pass(Noting, opt_level=0)
    for call, message in (
        (lambda: noting(3, frequency=1), "noting has no option 'frequency'; its options are times, word"),
        (lambda: noting("3"), "times of noting must be int; it is '3'"),
        (lambda: noting(True), "times of noting must be int; it is True"),
        (lambda: noting(word=1), "word of noting must be str or None; it is 1"),
        (lambda: noting(1, "a", 2), "noting is given 3 options; its options are times, word"),
        (lambda: noting(1, times=2), "noting is given times twice"),
        (lambda: ConvertLayout(42), "desired_layouts of convert_layout must be "),
        (lambda: MergeComposite(entry_functions=[1]), "entry_functions of merge_composite must be a list"),
        (lambda: CombineParallelDense(block=0)(GRAPH), "block must be positive; got 0"),
        (lambda: PassContext(opt_level="3"), "opt_level must be 0 to 4; it is '3'"),
        (lambda: PassContext(disabled_pass=[1]), "disabled_pass must be a list of names; it is [1]"),
        (lambda: PassContext(instruments=[1]), "instruments must be a list of Instrument; they are [1]"),
        (lambda: function_pass(note), "opt_level of a pass must be 0 to 4; it is None"),
        (lambda: function_pass(note, opt_level=7), "opt_level of a pass must be 0 to 4; it is 7"),
        (lambda: function_pass(42, opt_level=1), "made from a function or a class; got 42"),
        (lambda: function_pass(lambda g, _: g, opt_level=1), "set name=, not '<lambda>'"),
        (lambda: function_pass(note, opt_level=1, required="a"), "required of a pass must be a list"),
        (lambda: function_pass(note, opt_level=1, required=[FunctionPass]), "list of passes or of"),
        (lambda: one("graph"), "note requires a graph; got a str"),
        (lambda: one(GRAPH, {}), "note requires a PassContext; got a dict"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=re.escape(message)):
            call()  # type: ignore[no-untyped-call]


def test_required_by_name() -> None:
    seen: list[str] = []
    watch = PassContext(instruments=[PrintIR(write=lambda text: seen.append(text.split()[2]))])
    first = named("first", seen, required=["fold_constant", "fuse_ops"])
    first(GRAPH, watch)
    assert seen == ["fold_constant", "fuse_ops", "first", "first"]
    seen.clear()
    first(GRAPH, replace(watch, disabled_pass=["fuse_ops"]))
    assert seen == ["fold_constant", "first", "first"]
    assert Sequential([first]).names() == {"first", "fold_constant", "fuse_ops"}
    with pytest.raises(InputError, match="unknown pass 'fold_constants'; did you mean fold_constant"):
        named("first", seen, required=["fold_constants"])(GRAPH)
    with pytest.raises(InputError, match="must not require each other: a, b, a"):
        named("a", seen, required=[named("b", seen, required=["a"])])(GRAPH)
