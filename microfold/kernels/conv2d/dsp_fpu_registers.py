"""Which weights of a convolution are in registers of the floating-point unit; see conv2d/dsp_fpu_block.j2."""

from __future__ import annotations

from microfold.support.frozen import frozen

# Words that the registers of the unit hold.
REGISTERS = 32
# What they hold besides weights: output, step and end of the panels; and two biases, if there are any.
ALWAYS, BIASES = 3, 2
# Pairs with streamed weights that are written out; more are a loop over so many words.
MOST_STREAMED, UNROLL = 12, 16
# Batches are no smaller, and there are no fewer.
FEWEST_IN_BATCH, BATCHES = 14, 4
# The words of all must be a number that is subtracted at once.
MOST_IN_BATCHES = 1023


@frozen
class Placement:
    """Where the weights of two channels are while groups of pixels are computed.

    Attributes:
        held: pairs of inputs whose weights are in registers.
        streamed: pairs whose weights come from memory; of an iteration, if that is a loop.
        iterations: of the loop; 0: there is none.
        records: whether the requantisation is in registers, too.
        batches: how often registers are loaded for each group, if no weights stay there; else 0.
    """

    held: int
    streamed: int = 0
    iterations: int = 0
    records: bool = False
    batches: int = 0

    @property
    def stream(self) -> int:
        """Pairs whose weights come from memory for each group."""
        return self.held * self.batches + self.streamed * max(self.iterations, 1)

    @property
    def instructions(self) -> float:
        """Of the products of four pixels in two channels."""
        if self.batches:
            return (11 * self.held + 7) * self.batches + 5
        return 11 * self.held + 13 * self.stream + 5 * self.iterations + (3 if self.stream else 0)


def place_weights(pairs: int, words: int, records: int, *, spaced: bool, biased: bool = True) -> Placement:
    """As many weights as there are registers for.

    Args:
        pairs: of inputs.
        words: of weights for a pair.
        records: words of requantisation.
        spaced: whether groups are no neighbours, and the space between them takes a register.
        biased: whether sums start from biases.
    """
    free = REGISTERS - ALWAYS - BIASES * biased - spaced
    if words * pairs + records <= free:
        return Placement(pairs, records=True)
    # One register says where streamed weights are, another one where those end that a loop goes through.
    most = (free - 1) // words
    if pairs - most <= MOST_STREAMED:
        held = min(pairs, most)
        return Placement(held, pairs - held)
    most = (free - 2) // words
    # Where nearly all weights are streamed anyway, batches take fewer instructions. Two words for a pair
    # would take more cycles.
    batch = next((q for q in range(most, FEWEST_IN_BATCH - 1, -1) if pairs % q == 0), 0)
    if words == 1 and batch and BATCHES * batch <= pairs <= MOST_IN_BATCHES:
        return Placement(batch, batches=pairs // batch)
    unroll = UNROLL // words
    held = most - (most - pairs) % unroll
    return Placement(held, unroll, (pairs - held) // unroll)
