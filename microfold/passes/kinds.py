"""Kinds of passes, and how several are run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.passes.context import PassContext, Transform, recording_once


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
        """The transformed graph; passes that this one requires run first unless they are disabled.

        Raises:
            InputError: the pass, or one that it runs, returns something else; or the context of a sequence
                gives a name that is none.
        """
        context = context if context is not None else PassContext()
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
        for step in self.required:
            if step.mandatory or step.name not in context.disabled_pass:
                graph = step(graph, context)
        return self._run(graph, context)

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
        required: Sequence[Pass] = (),
        known: Callable[[], Collection[str]] = tuple,
    ):
        super().__init__(name, opt_level=opt_level, required=required)
        self.passes = tuple(passes)
        self.known = known
        for step in (*self.passes, *self.required):
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
        required: Sequence[Pass] = (),
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

    def _run(self, graph: Graph, context: PassContext) -> Graph:
        repeated = recording_once(context)
        for _ in range(MAX_ROUNDS):
            result = self._in_order(self._repeated, graph, repeated)
            if result is graph:
                break
            graph = result
        return self._in_order(self._then, graph, context)


def _names(step: Pass) -> set[str]:
    inner = step.names() if isinstance(step, Sequential) else set[str]()
    return {step.name} | inner | {name for other in step.required for name in _names(other)}
