"""Passes: graph to graph. What a pass is, what it is told, and how several are run.

A pass is pure: it takes a `Graph` and a `PassContext` and returns a graph, the same object if there was
nothing to do. It is written as a function or, where it has options, as a class, under one of two decorators::

    @function_pass(opt_level=2)
    def fold_constant(graph: Graph, context: PassContext) -> Graph: ...

    @function_pass(opt_level=1)
    @dataclass(frozen=True)
    class FuseOps:
        may_fuse: FusionRule = only_clip
        def transform(self, graph: Graph, context: PassContext) -> Graph: ...

    optimized = Sequential([fold_constant, FuseOps()])(graph, PassContext(opt_level=2))

The vocabulary is that of TVM's pass infrastructure (https://tvm.apache.org/docs/arch/pass_infra.html).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from microfold.errors import InputError
from microfold.ir.graph import Graph, Node, describe
from microfold.ir.pattern_table import PatternTable

Numerics = Literal["exact", "relaxed"]
Transform = Callable[[Graph, "PassContext"], Graph]

MAX_OPT_LEVEL = 4


@dataclass(frozen=True)
class Decision:
    """What a pass decided at one place, and why; `--explain PASS` lists them.

    Attributes:
        pass_name: the pass that decided.
        where: the place, e.g. ``pad %conv1_pad``.
        fired: the pass changed something there.
        reason: the rule, with the values.
        evidence: data that proves it, e.g. a `microfold.analysis.certificate.Certificate`.
    """

    pass_name: str
    where: str
    fired: bool
    reason: str
    evidence: object = None

    def __str__(self) -> str:
        return f"{self.pass_name}: {self.where}: {'' if self.fired else 'not changed: '}{self.reason}"


class Instrument:
    """Watches every single pass (not the sequences of them). Override what is needed."""

    def before(self, step: Pass, graph: Graph) -> None:
        """Called with the graph that the pass is about to get."""

    def after(self, step: Pass, before: Graph, after: Graph) -> None:
        """Called with the pass's input and result; they are the same object if nothing changed."""


@dataclass(frozen=True)
class PassContext:
    """Everything a pass is told besides the graph.

    Attributes:
        opt_level: passes of a higher level are left out; 0 to 4.
        required_pass: names of passes to run whatever their level.
        disabled_pass: names of passes to leave out; stronger than `required_pass`. Mandatory passes stay.
        instruments: see each pass's input and result; called in order before, in reverse order after.
        numerics: ``exact`` admits only rewrites whose output is the same bits; ``relaxed`` the others too.
        channel_block: how many channels the target's kernels compute at once.
        half_precision: the target computes float16 faster than float32.
        externals: the external code generators in use, the preferred ones first.
        sink: receives every `Decision`, e.g. ``decisions.append``.
        pass_name: the pass that this context is handed to; `Pass` sets it.

    Raises:
        InputError: a field is out of its range.
    """

    opt_level: int = 3
    required_pass: Collection[str] = ()
    disabled_pass: Collection[str] = ()
    instruments: Sequence[Instrument] = ()
    numerics: Numerics = "exact"
    channel_block: int = 1
    half_precision: bool = False
    externals: Sequence[PatternTable] = ()
    sink: Callable[[Decision], None] | None = None
    pass_name: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.opt_level <= MAX_OPT_LEVEL:
            raise InputError(f"opt_level must be 0 to {MAX_OPT_LEVEL}; it is {self.opt_level}")
        if self.numerics not in ("exact", "relaxed"):
            raise InputError(f"numerics must be exact or relaxed; it is {self.numerics!r}")
        if self.channel_block < 1:
            raise InputError(f"channel_block must be positive; it is {self.channel_block}")
        for field in ("required_pass", "disabled_pass"):
            names = getattr(self, field)
            if isinstance(names, str):
                raise InputError(f"{field} takes several names; wrap {names!r} in a list")
            object.__setattr__(self, field, frozenset(names))
        object.__setattr__(self, "instruments", tuple(self.instruments))

    def fired(self, where: Node | str, reason: str, evidence: object = None) -> None:
        """Record that the pass changed something there, and why it could."""
        self._decide(where, True, reason, evidence)

    def declined(self, where: Node | str, reason: str) -> None:
        """Record that the pass looked there and left it as it was, and why."""
        self._decide(where, False, reason)

    def reporting_to(self, sink: Callable[[Decision], None]) -> PassContext:
        """The same context, with one more receiver of decisions."""
        first = self.sink
        if first is None:
            return replace(self, sink=sink)

        def both(decision: Decision) -> None:
            first(decision)
            sink(decision)

        return replace(self, sink=both)

    def _decide(self, where: Node | str, fired: bool, reason: str, evidence: object = None) -> None:
        if self.sink is not None:
            place = where if isinstance(where, str) else describe(where)
            self.sink(Decision(self.pass_name, place, fired, reason, evidence))


class Pass(ABC):
    """A transformation of graphs; call it with a graph and, optionally, a context.

    Args:
        name: the field's word for it; unique.
        opt_level: the lowest `PassContext.opt_level` at which a `Sequential` runs it.
        required: passes that must run just before this one.
        mandatory: later stages rely on it, so that it cannot be disabled.
    """

    def __init__(
        self, name: str, *, opt_level: int = 0, required: Sequence[Pass] = (), mandatory: bool = False
    ):
        self.name = name
        self.opt_level = opt_level
        self.required = tuple(required)
        self.mandatory = mandatory

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __call__(self, graph: Graph, context: PassContext | None = None) -> Graph:
        """The transformed graph; passes that this one requires run first unless they are disabled."""
        context = context if context is not None else PassContext()
        for step in self.required:
            if step.mandatory or step.name not in context.disabled_pass:
                graph = step(graph, context)
        return self._run(graph, context)

    @abstractmethod
    def _run(self, graph: Graph, context: PassContext) -> Graph: ...

    def why_skipped(self, context: PassContext) -> str | None:
        """Why a `Sequential` leaves this pass out under that context; None if it runs."""
        if self.mandatory:
            return None
        if self.name in context.disabled_pass:
            return "it is disabled"
        if self.name in context.required_pass or self.opt_level <= context.opt_level:
            return None
        return f"it needs opt_level {self.opt_level}; {context.opt_level} was asked for"


class ModulePass(Pass):
    """A pass over a whole model: the main graph together with its subgraphs."""

    def __init__(
        self,
        transform: Transform,
        name: str,
        *,
        opt_level: int = 0,
        required: Sequence[Pass] = (),
        mandatory: bool = False,
    ):
        super().__init__(name, opt_level=opt_level, required=required, mandatory=mandatory)
        self.transform = transform

    def _run(self, graph: Graph, context: PassContext) -> Graph:
        for instrument in context.instruments:
            instrument.before(self, graph)
        result = self._apply(graph, replace(context, pass_name=self.name))
        for instrument in reversed(context.instruments):
            instrument.after(self, graph, result)
        return result

    def _apply(self, graph: Graph, context: PassContext) -> Graph:
        return self.transform(graph, context)


class FunctionPass(ModulePass):
    """A pass over single graphs: it works on each subgraph alone, then on the main graph."""

    def _apply(self, graph: Graph, context: PassContext) -> Graph:
        graph = graph.with_bodies(lambda _, body: self._apply(body, context))
        return self.transform(graph, context)


class Sequential(Pass):
    """Passes one after the other, each if the context admits it."""

    def __init__(
        self,
        passes: Sequence[Pass],
        *,
        name: str = "sequential",
        opt_level: int = 0,
        required: Sequence[Pass] = (),
    ):
        super().__init__(name, opt_level=opt_level, required=required)
        self.passes = tuple(passes)

    def names(self) -> set[str]:
        """Names of all passes in it, required ones and those of inner sequences included."""
        return {name for step in self.passes for name in _names(step)}

    def _run(self, graph: Graph, context: PassContext) -> Graph:
        return self._in_order(self.passes, graph, context)

    @staticmethod
    def _in_order(passes: Sequence[Pass], graph: Graph, context: PassContext) -> Graph:
        for step in passes:
            reason = step.why_skipped(context)
            if reason is None:
                graph = step(graph, context)
            else:
                replace(context, pass_name=step.name).declined(f"graph @{graph.name}", reason)
        return graph


# Rounds of passes that should end by themselves; more only cost time.
MAX_ROUNDS = 16


class UntilStable(Sequential):
    """A `Sequential` of passes that help each other, repeated until they return their graph.

    They must each get closer to something, so that it ends. Repeated decisions are recorded once.

    Args:
        then: passes that run once, behind the others; the last ones of `passes`.
        passes, name, opt_level, required: see `Sequential`.
    """

    def __init__(
        self,
        passes: Sequence[Pass],
        *,
        then: Sequence[Pass] = (),
        name: str = "until_stable",
        opt_level: int = 0,
        required: Sequence[Pass] = (),
    ):
        super().__init__([*passes, *then], name=name, opt_level=opt_level, required=required)
        self._repeated = tuple(passes)
        self._then = tuple(then)

    def _run(self, graph: Graph, context: PassContext) -> Graph:
        repeated = recording_once(context)
        for _ in range(MAX_ROUNDS):
            result = self._in_order(self._repeated, graph, repeated)
            if result is graph:
                break
            graph = result
        return self._in_order(self._then, graph, context)


def recording_once(context: PassContext) -> PassContext:
    """The context, with repeated decisions dropped."""
    sink = context.sink
    if sink is None:
        return context
    seen: set[tuple[str, str, bool, str]] = set()

    def once(decision: Decision) -> None:
        key = (decision.pass_name, decision.where, decision.fired, decision.reason)
        if key not in seen:
            seen.add(key)
            sink(decision)

    return replace(context, sink=once)


def _names(step: Pass) -> set[str]:
    inner = step.names() if isinstance(step, Sequential) else set[str]()
    return {step.name} | inner | {name for other in step.required for name in _names(other)}


P = ParamSpec("P")


class Transformer(Protocol):
    """The class form of a pass: options as fields, and this method."""

    def transform(self, graph: Graph, context: PassContext) -> Graph: ...


class PassFactory(Generic[P]):
    """A pass with options, made by decorating a class; call it with the options to get the pass.

    Attributes:
        form: the class; its fields are the options.
        name, opt_level, required, mandatory: see `Pass`; they do not depend on the options.
    """

    def __init__(
        self,
        form: Callable[P, Transformer],
        kind: type[ModulePass],
        name: str,
        *,
        opt_level: int = 0,
        required: Sequence[Pass] = (),
        mandatory: bool = False,
    ):
        self.form = form
        self.name = name
        self.opt_level = opt_level
        self.required = tuple(required)
        self.mandatory = mandatory
        self._kind = kind

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Pass:
        transform = self.form(*args, **kwargs).transform
        return self._kind(
            transform,
            self.name,
            opt_level=self.opt_level,
            required=self.required,
            mandatory=self.mandatory,
        )


S = TypeVar("S", bound=ModulePass)


class _Decorator(Generic[S]):
    def __init__(self, kind: type[S], name: str | None, options: dict[str, Any]):
        self.kind = kind
        self.name = name
        self.options = options

    # A class is also a callable: the first overload must be the one that fits classes only.
    @overload
    def __call__(self, target: Callable[P, Transformer]) -> PassFactory[P]: ...
    @overload
    def __call__(self, target: Transform) -> S: ...
    def __call__(self, target: Any) -> Any:
        name = self.name or _snake_case(target.__name__)
        if isinstance(target, type):
            form = cast("Callable[..., Transformer]", target)
            return PassFactory(form, self.kind, name, **self.options)
        return self.kind(target, name, **self.options)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def function_pass(
    *, opt_level: int, name: str | None = None, required: Sequence[Pass] = (), mandatory: bool = False
) -> _Decorator[FunctionPass]:
    """Decorator: the function, or the class's `transform`, works on each graph of a model alone.

    Args:
        opt_level, required, mandatory: see `Pass`.
        name: default is the function's name, or the class's in snake case.
    """
    options = {"opt_level": opt_level, "required": required, "mandatory": mandatory}
    return _Decorator(FunctionPass, name, options)


def module_pass(
    *, opt_level: int, name: str | None = None, required: Sequence[Pass] = (), mandatory: bool = False
) -> _Decorator[ModulePass]:
    """Decorator: the function, or the class's `transform`, sees the main graph with its subgraphs.

    Args:
        opt_level, required, mandatory, name: see `function_pass`.
    """
    options = {"opt_level": opt_level, "required": required, "mandatory": mandatory}
    return _Decorator(ModulePass, name, options)
