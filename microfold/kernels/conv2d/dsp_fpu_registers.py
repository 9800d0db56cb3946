"""Allocation of FPU registers to the weights of a convolution, see conv2d/dsp_fpu_block.j2."""

from __future__ import annotations

from msgspec import Struct

# Number of FPU registers, each of one word.
REGISTERS = 32
# Registers for output, step and end of the panels, and for the two biases, if the layer has any.
ALWAYS, BIASES = 3, 2
# Largest number of pairs with streamed weights in unrolled code, and words per iteration of a loop over more.
MOST_STREAMED, UNROLL = 12, 16
# Smallest number of pairs in a batch, and smallest number of batches.
FEWEST_IN_BATCH, BATCHES = 14, 4
# Largest number of pairs in all batches: their bytes are the immediate operand of one subtraction.
MOST_IN_BATCHES = 1023


class Placement(Struct, frozen=True):
    """Placement of the weights of two channels during the computation of groups of pixels.

    Attributes:
        held: pairs of inputs whose weights are in registers.
        streamed: pairs whose weights are loaded from memory, per iteration if a loop does so.
        iterations: iterations of that loop; 0 without a loop.
        records: whether the requantisation is also in registers.
        batches: number of times that the registers are loaded for each group, if no weights stay there; else
            0.
    """

    held: int
    streamed: int = 0
    iterations: int = 0
    records: bool = False
    batches: int = 0

    @property
    def stream(self) -> int:
        """Number of pairs whose weights are loaded from memory for each group."""
        return self.held * self.batches + self.streamed * max(self.iterations, 1)

    @property
    def instructions(self) -> float:
        """Number of instructions for the products of 4 pixels in 2 channels."""
        if self.batches:
            return (11 * self.held + 7) * self.batches + 5
        return 11 * self.held + 13 * self.stream + 5 * self.iterations + (3 if self.stream else 0)


def place_weights(pairs: int, words: int, records: int, *, spaced: bool, biased: bool = True) -> Placement:
    """Place as many weights as possible in registers.

    Args:
        pairs: pairs of inputs.
        words: words of weights for a pair.
        records: words of the requantisation.
        spaced: whether groups are not contiguous, so that their distance needs a register.
        biased: whether sums start from biases.
    """
    free = REGISTERS - ALWAYS - BIASES * biased - spaced
    if words * pairs + records <= free:
        return Placement(pairs, records=True)
    # One register has the address of streamed weights. A loop needs another register for their end.
    most = (free - 1) // words
    if pairs - most <= MOST_STREAMED:
        held = min(pairs, most)
        return Placement(held, pairs - held)
    most = (free - 2) // words
    # If nearly all weights are streamed anyway, batches need fewer instructions. With two words for a pair,
    # they would need more cycles.
    batch = next((q for q in range(most, FEWEST_IN_BATCH - 1, -1) if pairs % q == 0), 0)
    if words == 1 and batch and BATCHES * batch <= pairs <= MOST_IN_BATCHES:
        return Placement(batch, batches=pairs // batch)
    unroll = UNROLL // words
    held = most - (most - pairs) % unroll
    return Placement(held, unroll, (pairs - held) // unroll)
