"""What a pass is told, and what it reports: context, decisions, instruments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.kind import kind_of
from microfold.ir.node import Node, Value, describe
from microfold.ir.pattern_table import PatternTable
from microfold.passes.choices import Choices, Estimates
from microfold.support.digest import digest_of
from microfold.support.frozen import frozen

Numerics = Literal["exact", "relaxed"]
Transform = Callable[[Graph, "PassContext"], Graph]
# What a node on constants of a graph would take on the target, in cycles; None: nothing computes it.
NodeCost = Callable[[Node, Graph], "float | None"]


class ArenaEstimate(NamedTuple):
    """What a graph would take on the target.

    Attributes:
        arena: bytes, as planned.
        cycles: of a run, as estimated.
        flash: bytes of constants and code.
        fullest: values that are alive in the calls that need the most arena.
        by_rows: some layers are computed row by row, since nothing else fits what is allowed.
    """

    arena: int
    cycles: float
    flash: int
    fullest: frozenset[Value]
    by_rows: bool = False


class Arenas(Protocol):
    """Plans the arena of graphs, by the kernels that the target has for them.

    Attributes:
        limited: below a limit, RAM costs nothing.
    """

    @property
    def limited(self) -> bool: ...

    def __call__(self, graph: Graph) -> ArenaEstimate | None:
        """None: it is not known, or it does not fit what is allowed."""
        ...

    def why_not(self, before: ArenaEstimate | None, after: ArenaEstimate | None) -> str | None:
        """Why a graph is not better than what it was, all that is asked for in mind; None if it is."""
        ...


MAX_OPT_LEVEL = 4


@frozen
class Decision:
    """What a pass decided at one place, and why; `--explain PASS` lists them.

    Attributes:
        pass_name: the pass that decided.
        where: the place, e.g. ``pad %conv1_pad``.
        fired: the pass changed something there.
        reason: the rule, with the values.
        evidence: data that proves it, e.g. a `microfold.analysis.pruning_proof.PruningProof`.
    """

    pass_name: str
    where: str
    fired: bool
    reason: str
    evidence: object = None

    def __str__(self) -> str:
        return f"{self.pass_name}: {self.where}: {'' if self.fired else 'not changed: '}{self.reason}"


class Step(Protocol):
    """A single pass, as instruments see it."""

    @property
    def name(self) -> str: ...


class Instrument:
    """Observer of passes at work. Override what is needed."""

    def enter(self) -> None:
        """Called once, before the first pass of what the context has been handed to."""

    def exit(self) -> None:
        """Called once behind the last pass, also where one has failed."""

    def should_run(self, step: Step, graph: Graph) -> bool:
        """Whether a pass is to run on a graph; one that is mandatory runs anyway."""
        del step, graph
        return True

    def before(self, step: Step, graph: Graph) -> None:
        """Called with the graph that the pass is about to get."""

    def after(self, step: Step, before: Graph, after: Graph) -> None:
        """Called with the pass's input and result; they are the same object if nothing changed."""

    def after_sequence(self, step: Step, before: Graph, after: Graph) -> None:
        """Called as `after`, but with a sequence of passes, behind the last of them."""


@frozen
class PassContext:
    """Everything a pass is told besides the graph.

    Attributes:
        opt_level: passes of a higher level are left out; 0 to 4.
        required_pass: names of passes to run whatever their level.
        disabled_pass: names of passes to leave out; stronger than `required_pass`. Mandatory passes stay.
        instruments: see each pass's input and result; called in order before, in reverse order after.
        numerics: ``exact`` admits only rewrites whose output is the same bits; ``relaxed`` the others too.
        unroll: how many nodes all runs of a loop together may have where it is written out.
        channel_block: how many channels the target's kernels compute at once.
        spare_ram: nothing is to take RAM for fewer instructions: a limit would not be met.
        spare_flash: nothing is to take flash for fewer instructions.
        node_cost: what kernels of the target take; None: that is not known, and what depends on it is left.
        node_scratch: how many bytes of scratch these kernels take; None: that is not known.
        arenas: the arena that graphs have; None: that is not known, and what depends on it is left.
        choices: answers where there are several ways to the same bits; None: estimates decide.
        half_precision: the target computes float16 faster than float32.
        externals: the external code generators in use, the preferred ones first.
        sink: receives every `Decision`, e.g. ``decisions.append``.
        pass_name: the pass that this context is handed to; `Pass` sets it.
        running: the instruments have been entered; `Pass` sets it.

    Raises:
        InputError: a field is out of its range.
    """

    opt_level: int = 3
    required_pass: Collection[str] = ()
    disabled_pass: Collection[str] = ()
    instruments: Sequence[Instrument] = ()
    numerics: Numerics = "exact"
    unroll: int = 4096
    channel_block: int = 1
    spare_ram: bool = False
    spare_flash: bool = False
    node_cost: NodeCost | None = None
    node_scratch: NodeCost | None = None
    arenas: Arenas | None = None
    choices: Choices | None = None
    half_precision: bool = False
    externals: Sequence[PatternTable] = ()
    sink: Callable[[Decision], None] | None = None
    pass_name: str = ""
    running: bool = False

    def __post_init__(self) -> None:
        level: Any = self.opt_level
        if not isinstance(level, int) or not 0 <= level <= MAX_OPT_LEVEL:
            raise InputError(f"opt_level must be 0 to {MAX_OPT_LEVEL}; it is {level!r}")
        if self.numerics not in ("exact", "relaxed"):
            raise InputError(f"numerics must be exact or relaxed; it is {self.numerics!r}")
        block: Any = self.channel_block
        if not isinstance(block, int) or block < 1:
            raise InputError(f"channel_block must be positive; it is {block!r}")
        for field in ("required_pass", "disabled_pass"):
            names: Any = getattr(self, field)
            if isinstance(names, str):
                raise InputError(f"{field} takes several names; wrap {names!r} in a list")
            if not isinstance(names, Collection) or not all(isinstance(each, str) for each in names):
                raise InputError(f"{field} must be a list of names; it is {names!r}")
            object.__setattr__(self, field, frozenset(names))
        instruments: Any = self.instruments
        if not isinstance(instruments, Sequence) or not all(isinstance(i, Instrument) for i in instruments):
            raise InputError(f"instruments must be a list of Instrument; they are {instruments!r}")
        object.__setattr__(self, "instruments", tuple(self.instruments))

    def fired(self, where: Node | str, reason: str, evidence: object = None) -> None:
        """Record that the pass changed something there, and why it could."""
        self._decide(where, True, reason, evidence)

    def declined(self, where: Node | str, reason: str) -> None:
        """Record that the pass looked there and left it as it was, and why."""
        self._decide(where, False, reason)

    def choose(self, what: Node | str, best: str, estimates: Estimates) -> str:
        """Which of several ways to the same bits is taken.

        Args:
            what: it is about; nodes of one kind have one answer.
            best: what estimates say.
            estimates: see `Choices.take`.
        """
        if self.choices is None:
            return best
        if isinstance(what, Node):
            kind, result = kind_of(what), what.outputs[0].type
            what = f"{what.op.name} {result.dtype.value}{[*result.shape]} #{digest_of(kind)}"
        return self.choices.take(" ".join(filter(None, [self.pass_name, what])), best, estimates)

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
