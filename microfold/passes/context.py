"""Interface between passes and their caller: context, decisions and instruments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.kind import kind_of
from microfold.ir.node import Node, Value, describe
from microfold.ir.pattern_table import PatternTable
from microfold.passes.choices import Choices, Estimates
from microfold.support.digest import digest_of

if TYPE_CHECKING:
    from microfold.passes.kinds import Pass

Numerics = Literal["exact", "relaxed"]
Transform = Callable[[Graph, "PassContext"], Graph]
# Returns the cost of a node on the target, in cycles or bytes; None if no kernel computes the node.
NodeCost = Callable[[Node, Graph], "float | None"]


class ArenaEstimate(NamedTuple):
    """Resources that a graph needs on the target.

    Attributes:
        arena: size of the planned arena, in bytes.
        cycles: estimated cycles of a run.
        flash: size of constants and code, in bytes.
        peak_values: values that are alive in the calls that need the most arena.
        streamed: whether some layers must be streamed to meet the limits.
    """

    arena: int
    cycles: float
    flash: int
    peak_values: frozenset[Value]
    streamed: bool = False


class Arenas(Protocol):
    """Estimator of a graph's resources, by the kernels of the target.

    Attributes:
        limited: whether RAM has a limit; below the limit it costs nothing.
    """

    @property
    def limited(self) -> bool: ...

    def __call__(self, graph: Graph) -> ArenaEstimate | None:
        """Return the estimate; None if it is unknown or exceeds the limits."""
        ...

    def why_not(self, before: ArenaEstimate | None, after: ArenaEstimate | None) -> str | None:
        """Return the reason why a graph is not better than before, by the objective; None if it is."""
        ...


MAX_OPT_LEVEL = 4


class Decision(Struct, frozen=True):
    """Decision of a pass at one place of the graph; `--explain PASS` lists all of them.

    Attributes:
        pass_name: pass that decided.
        where: place in the graph, e.g. ``pad %conv1_pad``.
        fired: whether the pass changed the place.
        reason: the rule, with the values found.
        evidence: data that prove the decision, e.g. a `microfold.analysis.pruning_proof.PruningProof`.
    """

    pass_name: str
    where: str
    fired: bool
    reason: str
    evidence: object = None

    def __str__(self) -> str:
        return f"{self.pass_name}: {self.where}: {'' if self.fired else 'not changed: '}{self.reason}"


class PipelineStep(Protocol):
    """Pass, as instruments see it."""

    @property
    def name(self) -> str: ...


class Instrument:
    """Observer of running passes. Subclasses override the methods that they need."""

    def enter(self) -> None:
        """Handle the start: called once, before the first pass."""

    def exit(self) -> None:
        """Handle the end: called once, after the last pass or after a failure."""

    def should_run(self, step: PipelineStep, graph: Graph) -> bool:
        """Return whether a pass may run on a graph. Mandatory passes always run."""
        del step, graph
        return True

    def before(self, step: PipelineStep, graph: Graph) -> None:
        """Handle the start of a pass, with its input graph."""

    def after(self, step: PipelineStep, before: Graph, after: Graph) -> None:
        """Handle the end of a pass. Input and result are the same object if nothing has changed."""

    def after_sequence(self, step: PipelineStep, before: Graph, after: Graph) -> None:
        """Handle the end of a sequence of passes, like `after`."""


class PassContext(Struct, frozen=True):
    """Settings, target facts and observers of a pass.

    Attributes:
        opt_level: highest level of passes to run, 0 to 4.
        required_pass: names of passes to run regardless of their level.
        disabled_pass: names of passes to skip, even if required. Mandatory passes still run.
        instruments: observers of each pass; called in order before a pass, and in reverse order after it.
        numerics: ``exact``: only rewrites that keep all outputs bit for bit. ``relaxed``: also others.
        unroll: maximum number of nodes of an unrolled loop, summed over all iterations.
        channel_block: number of channels that the target's kernels compute at once.
        save_ram: whether passes must not use more RAM to save instructions, because a limit is tight.
        save_flash: whether passes must not use more flash to save instructions.
        node_cost: cycles of a node on the target; None: unknown, dependent rewrites are skipped.
        node_scratch: scratch memory of the node's kernel, in bytes; None if unknown.
        arenas: estimator of a graph's arena; None: unknown, dependent rewrites are skipped.
        choices: decides between bit-identical alternatives; None: estimates decide.
        half_precision: whether the target computes float16 faster than float32.
        externals: pattern tables of the external code generators, in order of preference.
        pipeline: passes of a build instead of the default pipeline, whose mandatory passes run after them;
            None: the default pipeline.
        sink: receiver of every `Decision`, e.g. ``decisions.append``.
        pass_name: name of the pass that receives this context; set by `Pass`.
        running: whether the instruments have been entered; set by `Pass`.

    Raises:
        InputError: a field has an invalid value.
    """

    opt_level: int = 3
    required_pass: Collection[str] = ()
    disabled_pass: Collection[str] = ()
    instruments: Sequence[Instrument] = ()
    numerics: Numerics = "exact"
    unroll: int = 4096
    channel_block: int = 1
    save_ram: bool = False
    save_flash: bool = False
    node_cost: NodeCost | None = None
    node_scratch: NodeCost | None = None
    arenas: Arenas | None = None
    choices: Choices | None = None
    half_precision: bool = False
    externals: Sequence[PatternTable] = ()
    pipeline: Pass | None = None
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
                raise InputError(f"{field} must be a list of names; put {names!r} in a list")
            if not isinstance(names, Collection) or not all(isinstance(each, str) for each in names):
                raise InputError(f"{field} must be a list of names; it is {names!r}")
            force_setattr(self, field, frozenset(names))
        instruments: Any = self.instruments
        if not isinstance(instruments, Sequence) or not all(isinstance(i, Instrument) for i in instruments):
            raise InputError(f"instruments must be a list of Instrument; they are {instruments!r}")
        force_setattr(self, "instruments", tuple(self.instruments))

    def fired(self, where: Node | str, reason: str, evidence: object = None) -> None:
        """Record that the pass changed this place, and why it could."""
        self._decide(where, True, reason, evidence)

    def declined(self, where: Node | str, reason: str) -> None:
        """Record that the pass did not change this place, and why."""
        self._decide(where, False, reason)

    def choose(self, what: Node | str, best: str, estimates: Estimates) -> str:
        """Return which of several bit-identical alternatives to take.

        Args:
            what: subject of the choice; all nodes of one kind share one answer.
            best: best alternative by the estimates.
            estimates: see `Choices.take`.
        """
        if self.choices is None:
            return best
        if isinstance(what, Node):
            kind, result = kind_of(what), what.outputs[0].type
            what = f"{what.op.name} {result.dtype.value}{[*result.shape]} #{digest_of(kind)}"
        return self.choices.take(" ".join(filter(None, [self.pass_name, what])), best, estimates)

    def reporting_to(self, sink: Callable[[Decision], None]) -> PassContext:
        """Return a context with one more receiver of decisions."""
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
    """Return a context whose sink receives equal decisions only once."""
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
