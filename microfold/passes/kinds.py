"""Kinds of passes: base class, module and function passes, sequences and fixed-point iteration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from typing import Any, cast

from msgspec.structs import replace

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.passes.context import MAX_OPT_LEVEL, PassContext, Transform, recording_once
from microfold.passes.registry import find_pass


class Pass(ABC):
    """Transformation of graphs. Call it with a graph and, optionally, a context.

    Args:
        name: unique name, the standard term for the transformation.
        opt_level: lowest `PassContext.opt_level` at which a `Sequential` runs the pass.
        required: passes, or their names, that must run right before this one.
        mandatory: whether later stages rely on the pass, so that it cannot be disabled.

    Raises:
        InputError: the name is empty, the level is out of range, or `required` has invalid items.
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
        """Return the transformed graph. Required passes run first, unless they are disabled.

        Raises:
            InputError: the argument or the result of a pass is not a graph, a required pass does not exist
                or requires this one, or the context names an unknown pass.
        """
        if not isinstance(graph, Graph):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"{self.name} requires a graph; got {_what(graph)}")
        context = context if context is not None else PassContext()
        if not isinstance(context, PassContext):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"{self.name} requires a PassContext; got {_what(context)}")
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
        """Return the passes that this one requires, after resolving names.

        Args:
            waiting: names of passes that require this one.

        Raises:
            InputError: a name is unknown, or passes require each other.
        """
        waiting = (*waiting, self.name)
        found: list[Pass] = []
        for each in self.required:
            if each in waiting:
                raise InputError(f"passes must not require each other: {', '.join(waiting)}, {each}")
            found.append(find_pass(each) if isinstance(each, str) else each)
            found[-1].required_passes(waiting=waiting)
        return found

    def _admitted(self) -> set[str]:
        """Return the pass names that a context may contain; empty: any names."""
        return set()

    @abstractmethod
    def _run(self, graph: Graph, context: PassContext) -> Graph: ...

    def why_skipped(self, context: PassContext) -> str | None:
        """Return the reason why a `Sequential` skips this pass in a context; None if it runs."""
        if self.mandatory:
            return None
        if self.name in context.disabled_pass:
            return "it is disabled"
        if self.name in context.required_pass or self.opt_level <= context.opt_level:
            return None
        return f"it requires opt_level {self.opt_level}; the context has {context.opt_level}"


def check_declaration(name: object, opt_level: object, required: object) -> None:
    """Check the declaration of a pass.

    Raises:
        InputError: see `Pass`.
    """
    if not isinstance(name, str) or not name:
        raise InputError(f"a pass must have a name; it is {name!r}")
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
    """Pass over a whole model: the main graph together with its subgraphs."""

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
                    own.declined(f"graph @{graph.name}", f"{type(instrument).__name__} skips it")
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
                "return the unchanged graph if there is nothing to do"
            )
        return result


class FunctionPass(ModulePass):
    """Pass over single graphs: it handles each subgraph separately, then the main graph."""

    def _apply(self, graph: Graph, context: PassContext) -> Graph:
        graph = graph.with_bodies(lambda _, body: self._apply(body, context))
        return super()._apply(graph, context)


def _what(result: object) -> str:
    return "nothing" if result is None else f"a {type(result).__name__}"


class Sequential(Pass):
    """Sequence of passes. Each runs if the context admits it.

    Args:
        passes: passes to run, in order.
        known: function that returns the names of other passes that a context may contain.
        name, opt_level, required: see `Pass`.

    Raises:
        InputError: an item of `passes` is not a pass.
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
                    "decorate functions, and call decorated classes"
                )

    def names(self) -> set[str]:
        """Return the names of all passes, including required ones and those in inner sequences."""
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


class Section(Sequential):
    """Named part of a pipeline. In a context, its name stands for the names of all its passes.

    Args:
        name: name of the section, by which its passes are listed, disabled, required and explained.
        purpose: one line for lists.
        passes: passes to run, in order.
    """

    def __init__(self, name: str, purpose: str, *passes: Pass):
        super().__init__(passes, name=name)
        self.purpose = purpose

    def why_skipped(self, context: PassContext) -> str | None:
        """Return None: passes are skipped one by one, because some are mandatory."""
        return None

    def _run_passes(self, graph: Graph, context: PassContext) -> Graph:
        own = {step.name for step in self.passes}
        for field in ("disabled_pass", "required_pass"):
            given: frozenset[str] = getattr(context, field)
            if self.name in given:
                context = replace(context, **{field: given | own})
        return super()._run_passes(graph, context)

    def edited(self, edit: Callable[[Pass], Sequence[Pass]]) -> Section:
        """Return the section with each pass replaced by the result of `edit`."""
        return Section(self.name, self.purpose, *(new for step in self.passes for new in edit(step)))


# Maximum number of rounds. Iterations should end earlier; more rounds only cost time.
MAX_ROUNDS = 16


class FixedPointIteration(Sequential):
    """Sequence of passes that is repeated until the graph no longer changes.

    Each pass must make progress towards a fixed point, so that the iteration ends. Equal decisions are
    recorded once.

    Args:
        passes: passes to repeat; a `Section` among them is a named part.
        then: passes that run once, after the repeated ones; the attribute `passes` also has them.
        name, opt_level, required, known: see `Sequential`.
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

    @property
    def sections(self) -> dict[str, Section]:
        """Sections by name, in order."""
        return {step.name: step for step in self.passes if isinstance(step, Section)}

    def with_pass(self, step: Pass, *, before: str = "", after: str = "") -> FixedPointIteration:
        """Return a sequence with one more pass at a named section, or at every occurrence of a named pass.

        If the named section or pass is repeated, the new pass is also repeated, so it must reach a fixed
        point.

        Args:
            before, after: section or pass before or after which to insert; exactly one of the two.

        Raises:
            InputError: the sequence has no such pass, or not exactly one of the two is given.
        """
        where = before or after
        if bool(before) == bool(after):
            raise InputError("a pass must be inserted before or after another one; set one of the two")
        return self._edited(where, lambda place: (step, place) if before else (place, step))

    def without_pass(self, name: str) -> FixedPointIteration:
        """Return the sequence without a section, or without all occurrences of a pass.

        Builds run the mandatory passes of the default pipeline nevertheless, after all others.

        Raises:
            InputError: the sequence has no such pass.
        """
        return self._edited(name, lambda _: ())

    def _edited(self, name: str, change: Callable[[Pass], Sequence[Pass]]) -> FixedPointIteration:
        """Return the sequence with each occurrence of a section or pass replaced as `change` says."""
        inner = {step.name for section in self.sections.values() for step in section.passes}
        names = {step.name for step in self.passes} | inner
        if name not in names:
            close = get_close_matches(name, names, 1)
            meant = f"did you mean {close[0]}?" if close else f"{self.name} has {', '.join(sorted(names))}"
            raise InputError(f"unknown pass {name!r}; {meant}")

        def edit(step: Pass) -> Sequence[Pass]:
            if step.name == name:
                return change(step)
            return (step.edited(edit),) if isinstance(step, Section) else (step,)

        return FixedPointIteration(
            [new for step in self._repeated for new in edit(step)],
            then=[new for step in self._then for new in edit(step)],
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
