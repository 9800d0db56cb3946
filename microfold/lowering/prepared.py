"""Models with chosen kernels, whose programs are built later, so that kernels can still be replaced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from microfold.analysis.pruning_proof import PruningProof
from microfold.analysis.relaxation import Relaxation
from microfold.kernels.call import CFunction
from microfold.kernels.selection.program import VariantChoice
from microfold.lowering.chosen_kernels import StreamedModel, WholeTensors
from microfold.lowering.lower import lower
from microfold.lowering.regions import with_regions
from microfold.program import Program


class PreparedProgram(Struct, frozen=True, eq=False, dict=True):
    """A model with chosen kernels, whose program is built on demand.

    Attributes:
        name: prefix of all C names.
        finish: adds information from the model's file to the program.
    """

    kernels: WholeTensors | StreamedModel
    name: str
    finish: Callable[[Program], Program]

    @cached_property
    def program(self) -> Program:
        """Program of the model.

        Raises:
            InputError: something does not fit the memories of the target.
        """
        model, kernels = self.kernels.model, self.kernels
        evidence = [decision.evidence for decision in model.decisions]
        found = replace(
            program_of(kernels, self.name),
            context=model.context,
            sliding=model.sliding,
            ranges=kernels.ranges,
            pruned=tuple(item for item in evidence if isinstance(item, PruningProof)),
            relaxations=tuple(item for item in evidence if isinstance(item, Relaxation)),
        )
        return self.finish(found)

    def with_choices(
        self, choices: Sequence[VariantChoice], elsewhere: Collection[CFunction]
    ) -> PreparedProgram:
        """Return the model with other variants of its layers; see `ChosenKernels.with_choices`."""
        return replace(self, kernels=self.kernels.with_choices(choices, elsewhere))


def program_of(kernels: WholeTensors | StreamedModel, name: str) -> Program:
    """Return the program of chosen kernels, placed in the memories of its target."""
    return with_regions(lower(kernels, name), lambda fetched: lower(kernels, name, fetched))
