"""Search space of tuning: variants of kernels for each layer, and choices for whole programs.

Choices are alternatives of `microfold.passes.choices`. They are compared by whole runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from microfold.compiler import compile_graph
from microfold.errors import InputError
from microfold.frontend.custom import load
from microfold.ir.text import parse
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import Candidate, LayerCandidates
from microfold.kernels.selection.layer_names import select_layers
from microfold.kernels.selection.measured import MeasuredCosts, VariantKeys
from microfold.options import Options
from microfold.passes.choices import Choices, PassChoice, Trace
from microfold.passes.context import PassContext
from microfold.program import Layer, Program
from microfold.target import Target
from microfold.tune.identity import code_digest, program_key

# Alternatives are measured only up to this multiple of the best estimate.
MOST_OF_BEST = 3.0


class Subject(Struct, frozen=True):
    """Model with all settings of its compilation, as plain data that can be passed to other processes.

    Attributes:
        disabled, required: names of passes.
        custom: files of custom operators.
    """

    name: str
    text: str
    target: Target
    options: Options
    opt_level: int = 3
    disabled: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    custom: tuple[Path, ...] = ()

    def context(self, choices: Choices | None = None) -> PassContext:
        """Return the context of the passes."""
        return PassContext(
            opt_level=self.opt_level,
            numerics=self.options.numerics,  # type: ignore[arg-type]  # PassContext checks it
            disabled_pass=self.disabled,
            required_pass=self.required,
            choices=choices,
        )

    @property
    def key(self) -> str:
        """Key of the subject's programs, see `program_key`."""
        self.load_custom()
        return program_key(parse(self.text), self.target, self.options, self.context())

    def load_custom(self) -> None:
        """Register the custom operators."""
        for file in self.custom:
            load(file)


class TunedLayer(Struct, frozen=True, eq=False):
    """Layer with a choice of kernels.

    Attributes:
        key: `VariantKeys.layer`.
        variants: possible variants by `VariantKeys.variant`, the best estimate first.
        chosen: key of the selected variant.
        runs: number of calls per run.
    """

    layer: LayerContext
    key: str
    variants: Mapping[str, Candidate]
    chosen: str
    runs: int = 1

    def estimate(self, variant: str) -> float:
        """Return the cycles of a variant by the cost model."""
        return self.variants[variant].kernel.cycles(self.layer)


@dataclass(eq=False)
class Compiled:
    """Compilation of a subject, with its search space.

    Attributes:
        forced: variants that layers must have, by layer number. Layers are numbered in the order of the
            graph or, if some are streamed, of the program.
        trace: choices that override the estimates.
        listing: whether to list all choices, which can take long.
        layers: tunable layers, by number.
    """

    subject: Subject
    forced: Mapping[int, str] = field(default_factory=dict[int, str])
    costs: MeasuredCosts | None = None
    trace: Trace = field(default_factory=dict[str, str])
    listing: bool = False
    rankings: Sequence[LayerCandidates] = ()
    chosen: Sequence[Candidate] = ()

    def __post_init__(self) -> None:
        self._keys = VariantKeys()
        self._choices = Choices(self.trace, listing=self.listing)

    @cached_property
    def program(self) -> Program:
        """Program with the forced variants, and selected kernels for all other layers.

        Raises:
            MicrofoldError: the subject cannot be compiled.
        """
        subject = self.subject
        subject.load_custom()
        return compile_graph(
            parse(subject.text),
            subject.target,
            subject.options,
            name=subject.name,
            context=subject.context(self._choices),
            costs=self.costs,
            revise=self._revise,
        )

    def _revise(
        self, rankings: Sequence[LayerCandidates], chosen: Sequence[Candidate]
    ) -> Sequence[Candidate]:
        self.rankings, self.chosen = rankings, chosen
        return [
            self._any_variant(ranking, taken, self.forced[index]) if index in self.forced else taken
            for index, (ranking, taken) in enumerate(zip(rankings, chosen, strict=True))
        ]

    def _any_variant(self, ranking: LayerCandidates, chosen: Candidate, wanted: str) -> Candidate:
        for candidate in (chosen, *ranking.candidates):
            for offer in candidate.offers:
                if self._keys.variant(offer.kernel, ranking.layer) == wanted:
                    return candidate.variant(offer)
        raise KeyError(wanted)

    def _variants(self, ranking: LayerCandidates, chosen: Candidate) -> dict[str, Candidate]:
        layer = ranking.layer
        found = sorted(ranking.variants, key=lambda candidate: candidate.kernel.cycles(layer))
        keyed = {self._keys.variant(candidate.kernel, layer): candidate for candidate in found}
        return keyed | {self._keys.variant(chosen.kernel, layer): chosen}

    @cached_property
    def numbers(self) -> Mapping[int, int]:
        """Number in the order of the rankings for each tunable layer, by its index in the program."""
        layers = self.program.layers  # compiles
        if self.program.stream is not None:
            free = {layer.index: layer.index for layer in layers}
        else:
            places = {ranking.layer.node: index for index, ranking in enumerate(self.rankings)}
            free = {layer.index: places.get(layer.node) for layer in layers}
        return {i: n for i, n in free.items() if n is not None and not self.rankings[n].fixed}

    @cached_property
    def layers(self) -> Mapping[int, TunedLayer]:
        found: dict[int, TunedLayer] = {}
        for number in sorted(self.numbers.values()):
            ranking, chosen = self.rankings[number], self.chosen[number]
            layer = ranking.layer
            key = self._keys.variant(chosen.kernel, layer)
            variants = self._variants(ranking, chosen)
            found[number] = TunedLayer(layer, self._keys.layer(layer), variants, key, ranking.runs)
        return found

    @property
    def named(self) -> Mapping[str, TunedLayer]:
        """Tunable layers in the program's order, by their names in the program."""
        numbered = {layer.name: self.numbers.get(layer.index) for layer in self.program.layers}
        return {name: self.layers[number] for name, number in numbered.items() if number is not None}

    def selected(self, names: Sequence[str]) -> Mapping[int, TunedLayer]:
        """Return the tunable layers that the user selects, or all of them.

        Args:
            names: layers by number or name, or operators.

        Raises:
            InputError: a name is unknown, or has no tunable layers.
        """
        if not names:
            return self.layers
        program = self.program.layers
        known = [(layer.name, layer.node.op.name) for layer in program]
        numbers: set[int] = set()
        problems: list[str] = []
        for name in names:
            found = select_layers(name, known)
            if isinstance(found, str):
                problems.append(found)
                continue
            tunable = {self.numbers[i] for i in (program[n].index for n in found) if i in self.numbers}
            numbers |= tunable
            if not tunable:
                problems.append(f"no other kernel can compute {name!r}")
        if problems:
            raise InputError(f"layers to tune must be among those of the model: {'; '.join(problems)}")
        return {number: self.layers[number] for number in sorted(numbers)}

    def taken(self, layer: Layer) -> str:
        """Return the variant of a program's layer, which must be in `numbers`."""
        ranking = self.rankings[self.numbers[layer.index]]
        return self._keys.variant(layer.kernel, ranking.layer)

    @property
    def choices(self) -> list[PassChoice]:
        """All choices of the compilation with `listing`, else the choices in the trace."""
        _ = self.program  # compiles
        return self._choices.asked

    @property
    def answers(self) -> Mapping[str, str]:
        """Alternative taken, by the name of the choice."""
        _ = self.program  # compiles
        return self._choices.answers

    @cached_property
    def code(self) -> str:
        """Key of the program's code, see `code_digest`."""
        return code_digest(self.program)

    @property
    def ram(self) -> int:
        """Size of arena and state, in bytes."""
        return self.program.arena.size + self.program.state_size

    @property
    def flash(self) -> int:
        """Estimated size of constants and code, in bytes."""
        return self.program.flash

    @property
    def too_large(self) -> str:
        """Limit of the options that the program exceeds, in words; empty if it meets all limits."""
        options = self.subject.options
        if options.ram is not None and self.ram > options.ram:
            return f"arena and state need {self.ram} bytes of RAM; the limit is {options.ram}"
        if options.flash is not None and self.flash > options.flash:
            return f"constants and code need {self.flash} bytes of flash; the limit is {options.flash}"
        return ""


def proposals(layer: TunedLayer, most: int) -> list[str]:
    """Return the variants of a layer to measure: the selected one, then the best estimates.

    Args:
        most: maximum number of variants.
    """
    best = min(layer.estimate(variant) for variant in layer.variants)
    near = [v for v in layer.variants if layer.estimate(v) <= MOST_OF_BEST * best]
    return list(dict.fromkeys([layer.chosen, *near]))[:most]


def most_promising(
    layers: Mapping[int, TunedLayer], known: Set[tuple[str, str]], most: int
) -> list[tuple[str, str]]:
    """Return the pairs of a layer's and a variant's key to measure, the most promising first.

    The first proposals of all layers precede the second ones. Among equal positions, layers with a larger
    share of a run come first.

    Args:
        known: pairs already measured.
        most: maximum number of variants per layer.
    """
    pairs: dict[tuple[str, str], tuple[int, float]] = {}
    for layer in layers.values():
        weight = layer.estimate(layer.chosen) * layer.runs
        new = [v for v in proposals(layer, most) if (layer.key, v) not in known]
        for place, variant in enumerate(new):
            rank = (place, -weight)
            pairs[layer.key, variant] = min(pairs.get((layer.key, variant), rank), rank)
    return sorted(pairs, key=lambda pair: (pairs[pair], pair))


def rounds(layers: Mapping[int, TunedLayer], known: Set[tuple[str, str]], most: int) -> list[dict[int, str]]:
    """Return as few rounds as possible that together measure all proposed variants.

    Each round forces a variant for some layers, see `Compiled.forced`. Layers with equal keys share the
    variants to measure, as far as both have them: variants can depend on constants.

    Args:
        known: pairs of a layer's and a variant's key already measured.
        most: maximum number of variants per layer.
    """
    pending: dict[str, list[str]] = {}
    for layer in layers.values():
        proposed = [v for v in proposals(layer, most) if (layer.key, v) not in known]
        pending.setdefault(layer.key, proposed)
    found: list[dict[int, str]] = []
    while any(pending.values()):
        forced: dict[int, str] = {}
        for number, layer in layers.items():
            left = pending[layer.key]
            variant = next((each for each in left if each in layer.variants), None)
            if variant is not None:
                left.remove(variant)
                forced[number] = variant
        found.append(forced)
    return found
