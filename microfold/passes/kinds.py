"""Kinds of passes, and how several are run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, cast

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.passes.context import MAX_OPT_LEVEL, PassContext, Transform, recording_once
from microfold.passes.registry import find_pass


class Pass(ABC):
    """A transformation of graphs; call it with a graph and, optionally, a context.

    Args:
        name: the field's word for it; unique.
        opt_level: the lowest `PassContext.opt_level` at which a `Sequential` runs it.
        required: passes that must run just before this one, or their names.
        mandatory: later stages rely on it, so that it cannot be disabled.

    Raises:
        InputError: the name is empty, the level out of its range, or what is required is no pass and no name.
    """

    def __init__(
        self, name: str, *, opt_level: int = 0, required: Sequence[Pass | str] = (), mandatory: bool = False
    ):
        check_declaration(name, opt_level, required)
        self.name = name
        self.opt_level = opt_level
        self.required = tuple(required)
        self.mandatory = mandatory

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __call__(self, graph: Graph, context: PassContext | None = None) -> Graph:
        """Return the transformed graph; passes that this one requires run first unless they are disabled.

        Raises:
            InputError: the argument is no graph; the pass, or one that it runs, returns something else; a
                required pass does not exist or requires this one; or the context of a sequence gives a name
                that is none.
        """
        if not isinstance(graph, Graph):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"{self.name} works on a graph; it was given {_what(graph)}")
        context = context if context is not None else PassContext()
        if not isinstance(context, PassContext):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"{self.name} takes a PassContext; it was given {_what(context)}")
        if context.running:
            return self._with_required(graph, context)
        given = {*context.required_pass, *context.disabled_pass}
        known = self._admitted() if given else set[str]()
        unknown = sorted(given - known) if known else []
        if unknown:
            raise InputError(f"unknown pass {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        with ExitStack() as entered:
            for instrument in context.instruments:
                instrument.enter()
                entered.callback(instrument.exit)
            return self._with_required(graph, replace(context, running=True))

    def _with_required(self, graph: Graph, context: PassContext) -> Graph:
        for step in self.required_passes():
            if step.mandatory or step.name not in context.disabled_pass:
                graph = step(graph, context)
        return self._run(graph, context)

    def required_passes(self, *, waiting: tuple[str, ...] = ()) -> list[Pass]:
        """Return the passes that this one requires, those given by name looked up.

        Args:
            waiting: names of passes that require this one.

        Raises:
            InputError: a name is that of no pass, or passes require each other.
        """
        waiting = (*waiting, self.name)
        found: list[Pass] = []
        for each in self.required:
            if each in waiting:
                raise InputError(f"passes may not require each other: {', '.join(waiting)}, {each}")
            found.append(find_pass(each) if isinstance(each, str) else each)
            found[-1].required_passes(waiting=waiting)
        return found

    def _admitted(self) -> set[str]:
        """Names that a context may give; none: all."""
        return set()

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


def check_declaration(name: object, opt_level: object, required: object) -> None:
    """Refuse what no pass can be declared with.

    Raises:
        InputError: see `Pass`.
    """
    if not isinstance(name, str) or not name:
        raise InputError(f"a pass has a name; it is {name!r}")
    if isinstance(opt_level, bool) or not isinstance(opt_level, int) or not 0 <= opt_level <= MAX_OPT_LEVEL:
        raise InputError(f"opt_level of {name} must be 0 to {MAX_OPT_LEVEL}; it is {opt_level!r}")
    listed = isinstance(required, Collection) and not isinstance(required, str)
    others = (
        [each for each in cast("Collection[object]", required) if not isinstance(each, Pass | str)]
        if listed
        else []
    )
    if not listed or others:
        given = others[0] if others else required
        raise InputError(f"required of {name} must be a list of passes or of their names; it has {given!r}")


class ModulePass(Pass):
    """A pass over a whole model: the main graph together with its subgraphs."""

    def __init__(
        self,
        transform: Transform,
        name: str,
        *,
        opt_level: int = 0,
        required: Sequence[Pass | str] = (),
        mandatory: bool = False,
    ):
        super().__init__(name, opt_level=opt_level, required=required, mandatory=mandatory)
        self.transform = transform

    def _run(self, graph: Graph, context: PassContext) -> Graph:
        own = replace(context, pass_name=self.name)
        if not self.mandatory:
            for instrument in context.instruments:
                if not instrument.should_run(self, graph):
                    own.declined(f"graph @{graph.name}", f"{type(instrument).__name__} leaves it out")
                    return graph
        for instrument in context.instruments:
            instrument.before(self, graph)
        result = self._apply(graph, own)
        for instrument in reversed(context.instruments):
            instrument.after(self, graph, result)
        return result

    def _apply(self, graph: Graph, context: PassContext) -> Graph:
        result: Any = self.transform(graph, context)
        if not isinstance(result, Graph):
            raise InputError(
                f"a pass must return a graph; {self.name} returned {_what(result)}; "
                "return the graph that it was given where there is nothing to do"
            )
        return result


class FunctionPass(ModulePass):
    """A pass over single graphs: it works on each subgraph alone, then on the main graph."""

    def _apply(self, graph: Graph, context: PassContext) -> Graph:
        graph = graph.with_bodies(lambda _, body: self._apply(body, context))
        return super()._apply(graph, context)


def _what(result: object) -> str:
    return "nothing" if result is None else f"a {type(result).__name__}"


class Sequential(Pass):
    """Passes one after the other, each if the context admits it.

    Args:
        known: gives the names of other passes that a context may give; asked where a context gives any.
        passes, name, opt_level, required: see `Pass`.

    Raises:
        InputError: one of them is no pass.
    """

    def __init__(
        self,
        passes: Sequence[Pass],
        *,
        name: str = "sequential",
        opt_level: int = 0,
        required: Sequence[Pass | str] = (),
        known: Callable[[], Collection[str]] = tuple,
    ):
        super().__init__(name, opt_level=opt_level, required=required)
        self.passes = tuple(passes)
        self.known = known
        for step in self.passes:
            if not isinstance(step, Pass):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InputError(
                    f"{name} must be made of passes; it has {_what(step)}: {step!r}; "
                    "decorate a function, and call a class that is decorated"
                )

    def names(self) -> set[str]:
        """Names of all passes in it, required ones and those of inner sequences included."""
        return {name for step in self.passes for name in _names(step)}

    def _admitted(self) -> set[str]:
        inner = [step._admitted() for step in self.passes if isinstance(step, Sequential)]
        return {self.name, *self.names(), *self.known()}.union(*inner)

    def _run(self, graph: Graph, context: PassContext) -> Graph:
        result = self._run_passes(graph, context)
        for instrument in reversed(context.instruments):
            instrument.after_sequence(self, graph, result)
        return result

    def _run_passes(self, graph: Graph, context: PassContext) -> Graph:
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


class FixedPointIteration(Sequential):
    """A `Sequential` of passes that help each other, repeated until they return their graph.

    They must each get closer to something, so that it ends. Repeated decisions are recorded once.

    Args:
        then: passes that run once, behind the others; the last ones of `passes`.
        passes, name, opt_level, required, known: see `Sequential`.
    """

    def __init__(
        self,
        passes: Sequence[Pass],
        *,
        then: Sequence[Pass] = (),
        name: str = "fixed_point_iteration",
        opt_level: int = 0,
        required: Sequence[Pass | str] = (),
        known: Callable[[], Collection[str]] = tuple,
    ):
        super().__init__([*passes, *then], name=name, opt_level=opt_level, required=required, known=known)
        self._repeated = tuple(passes)
        self._then = tuple(then)

    def with_pass(self, step: Pass, *, before: str = "", after: str = "") -> FixedPointIteration:
        """The same with one more pass, wherever a pass of a name stands.

        What is put among the passes that are repeated is repeated, too: it must come to an end.

        Args:
            before, after: one of them is the name of a pass in it.

        Raises:
            InputError: there is no such pass, or not one of the two is given.
        """
        where = before or after
        if bool(before) == bool(after):
            raise InputError("a pass goes before or after another one; give one of the two")
        if where not in {other.name for other in self.passes}:
            names = ", ".join(sorted({other.name for other in self.passes}))
            raise InputError(f"there is no pass {where!r} in {self.name}; it has {names}")

        def extended(passes: Sequence[Pass]) -> list[Pass]:
            rows = [[step, p] if before else [p, step] for p in passes]
            return [
                each
                for row, p in zip(rows, passes, strict=True)
                for each in (row if p.name == where else [p])
            ]

        return FixedPointIteration(
            extended(self._repeated),
            then=extended(self._then),
            name=self.name,
            opt_level=self.opt_level,
            required=self.required,
            known=self.known,
        )

    def _run_passes(self, graph: Graph, context: PassContext) -> Graph:
        repeated = recording_once(context)
        for _ in range(MAX_ROUNDS):
            result = self._in_order(self._repeated, graph, repeated)
            if result is graph:
                break
            graph = result
        return self._in_order(self._then, graph, context)


def _names(step: Pass) -> set[str]:
    inner = step.names() if isinstance(step, Sequential) else set[str]()
    return (
        {step.name}
        | inner
        | {name for other in step.required for name in ({other} if isinstance(other, str) else _names(other))}
    )
