"""Order of instructions that compute neighbouring outputs of a row from pairs of inputs and of weights.

Two int16 inputs share a word, (element 2t, element 2t + 1), and so do two weights of a row of taps: SMLAD
multiplies two with two, and adds both products to a sum; SMLAxy multiplies one half with one half. A row of
weights is

    (k0, k1), (k2, k3)...   for outputs that begin at the bottom of a word of inputs;
    (k1, k2), (k3, k4)...   for those that begin at its top, if there are any;
    (k, -)                  the last tap, if it is in none of these words.

The core has few registers. Those that sums and addresses leave over hold inputs and weights: the last words
of weights stay, the others come from registers of the floating-point unit whenever they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, cached_property

from microfold.support.frozen import frozen

# Registers that do not hold addresses.
REGISTERS = 12
# Kinds of steps.
LOAD, WEIGHT, MULTIPLY, LOAD_TWO, RECORD = range(5)
# Products between the one beside which an operand is brought and the one that reads it.
AHEAD = 1
# Products: both halves; of a half of the inputs and a half of the weights (bottom or top).
BOTH, BOTTOM_BOTTOM, BOTTOM_TOP, TOP_BOTTOM, TOP_TOP = range(5)


@frozen
class Taps:
    """Taps of a window along its inner axis, in `rows` rows."""

    rows: int
    count: int
    stride: int
    dilation: int

    @cached_property
    def even_words(self) -> int:
        return self.count // 2

    @cached_property
    def odd_words(self) -> int:
        return (self.count - 1) // 2 if self.dilation == 1 and self.stride % 2 else 0

    @cached_property
    def row_words(self) -> int:
        """Words of weights of a row."""
        alone = self.count % 2 and not self.odd_words
        return self.even_words + self.odd_words + alone

    @cached_property
    def words(self) -> int:
        return self.rows * self.row_words

    def pairs(self) -> list[tuple[int, int | None]]:
        """The taps in each word of a row of weights."""
        found: list[tuple[int, int | None]] = [(2 * i, 2 * i + 1) for i in range(self.even_words)]
        found += [(2 * i + 1, 2 * i + 2) for i in range(self.odd_words)]
        return found if len(found) == self.row_words else [*found, (self.count - 1, None)]

    def products(self, outputs: int) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
        """For each word of inputs of a row: it, and its products as (output, kind, word of weights)."""
        words = {
            (output * self.stride + tap * self.dilation) // 2
            for output in range(outputs)
            for tap in range(self.count)
        }
        for word in sorted(words):
            found: list[tuple[int, int, int]] = []
            for output in range(outputs):
                bottom = self._tap(2 * word - output * self.stride)
                top = self._tap(2 * word + 1 - output * self.stride)
                if bottom is not None and top is not None:
                    found.append((output, BOTH, bottom // 2 + (self.even_words if bottom % 2 else 0)))
                elif bottom is not None:
                    found.append((output, *self._single(bottom, BOTTOM_BOTTOM)))
                elif top is not None:
                    found.append((output, *self._single(top, TOP_BOTTOM)))
            if found:
                yield word, found

    def _tap(self, distance: int) -> int | None:
        tap, beside = divmod(distance, self.dilation)
        return tap if beside == 0 and 0 <= tap < self.count else None

    def _single(self, tap: int, with_bottom: int) -> tuple[int, int]:
        """The kind of product, given that with the bottom half of the weights, and the word of weights."""
        for word, (bottom, top) in enumerate(self.pairs()):
            if tap == bottom:
                return with_bottom, word
            if tap == top:
                return with_bottom + 1, word
        raise AssertionError


@frozen
class Schedule:
    """Steps for neighbouring outputs.

    Registers count from 0: first weights that stay, then weights that come and go, then inputs; the sums take
    the last ones. All schedules of a function have the same `inputs` and `held`.

    Attributes:
        outputs: how many.
        steps: (LOAD, register of inputs, row, word);
            (LOAD_TWO, register of inputs, row, word): the next word goes to the next register;
            (WEIGHT, register of weights, word of all weights);
            (MULTIPLY, kind, output, register of inputs, register of weights, 1 if the sum begins, word of
            all weights);
            (RECORD, register of inputs, 0 or 1), of `overlapped` ones: the multiplier or the addend.
        inputs: registers of inputs.
        held: weights that stay in registers.
        loads: cycles of loads.
    """

    outputs: int
    steps: tuple[tuple[int, ...], ...]
    inputs: int
    held: int
    loads: int

    @property
    def products(self) -> int:
        return sum(step[0] == MULTIPLY for step in self.steps)

    @property
    def instructions(self) -> int:
        """But those of how sums are requantised."""
        return sum(step[0] != RECORD for step in self.steps)

    @property
    def cycles(self) -> int:
        """A group of n loads takes n + 1 cycles, everything else takes one."""
        return self.loads + sum(step[0] in (WEIGHT, MULTIPLY) for step in self.steps)


@cache
def best_schedule(taps: Taps, outputs: int, temporaries: int, backwards: bool = False) -> Schedule:
    """The one of fewest cycles; `temporaries` registers besides the sums are needed in the end.

    `backwards`: see `_schedule`.
    """
    free = REGISTERS - outputs
    found = [
        _schedule(taps, outputs, inputs, held, free - inputs, backwards)
        for inputs in range(temporaries, free)
        for held in range(min(free - inputs, taps.words) + 1)
        if held == taps.words or held < free - inputs
    ]
    return min(found, key=lambda s: (s.cycles, s.inputs))


@cache
def rest_schedule(taps: Taps, outputs: int, main: Schedule, backwards: bool = False) -> Schedule:
    """Fewer outputs, with registers as in the schedule of more."""
    weights = REGISTERS - main.outputs - main.inputs
    return _schedule(taps, outputs, main.inputs, main.held, weights, backwards)


def _schedule(taps: Taps, outputs: int, inputs: int, held: int, weights: int, backwards: bool) -> Schedule:
    """Products word by word of the inputs, of each in order of outputs.

    `backwards`: sums that have begun from the last one on. They read the weights that have been there
    longest, whose registers are free for others so much earlier.
    """
    words = list(_words(taps, outputs, backwards))
    moved = taps.words - held
    order = [row * taps.row_words + weight for row, _, uses in words for _, _, weight in uses]
    holder: dict[int, int] = {moved + i: i for i in range(held)}
    free = list(range(held, weights))
    steps: list[tuple[int, ...]] = []
    begun: set[int] = set()
    loads = place = 0
    for first in range(0, len(words), inputs):
        group = words[first : first + inputs]
        if len(group) == 2 and group[1][:2] == (group[0][0], group[0][1] + 1):
            steps.append((LOAD_TWO, 0, *group[0][:2]))
        else:
            steps += [(LOAD, i, row, word) for i, (row, word, _) in enumerate(group)]
        loads += len(group) + 1
        for i, (row, _, uses) in enumerate(group):
            for output, kind, weight in uses:
                index = row * taps.row_words + weight
                if index not in holder:
                    if not free:
                        idle = max((w for w in holder if w < moved), key=lambda w: _next_use(order, place, w))
                        free.append(holder.pop(idle))
                    holder[index] = free.pop()
                    steps.append((WEIGHT, holder[index], index))
                steps.append((MULTIPLY, kind, output, i, holder[index], output not in begun, index))
                begun.add(output)
                place += 1
    return Schedule(outputs, tuple(steps), inputs, held, loads)


def _words(
    taps: Taps, outputs: int, backwards: bool
) -> Iterator[tuple[int, int, list[tuple[int, int, int]]]]:
    """(row, word of inputs, its products); the sum that begins last holds the bias till then."""
    begun: set[int] = set()
    for row in range(taps.rows):
        for word, uses in taps.products(outputs):
            going = [use for use in uses if use[0] in begun]
            new = [use for use in uses if use[0] not in begun]
            yield row, word, [*going[::-1], *new] if backwards else uses
            begun.update(output for output, _, _ in uses)


def overlapped(schedule: Schedule) -> Schedule:
    """The same products in the same order, for cores that issue two instructions at a time.

    Beside each product stands what one of the next ones needs: the load of a word, or a move. It comes
    behind the last product that reads the register's old value, and as late as no product waits for it, if
    there is a product that has no other beside it. The first product waits for its weights: another word and
    other weights are brought meanwhile. What sums are multiplied with, and what is added, follow in registers
    of inputs.
    """
    products = [step for step in schedule.steps if step[0] == MULTIPLY]
    beside: list[list[tuple[int, ...]]] = [[] for _ in range(len(products) + 1)]  # the first are before all
    done = 0
    moves: list[tuple[int, tuple[int, ...]]] = []  # with the number of products before it
    for step in schedule.steps:
        if step[0] == MULTIPLY:
            done += 1
        elif step[0] == LOAD_TWO:
            moves += [(done, (LOAD, step[1] + i, step[2], step[3] + i)) for i in range(2)]
        else:
            moves.append((done, step))
    last_reads = {product[3]: place for place, product in enumerate(products)}
    # The register that is free first, and another one.
    records = sorted(range(schedule.inputs), key=lambda register: last_reads.get(register, -1))[:2]
    moves += [(done, (RECORD, register, number)) for number, register in enumerate(records)]
    early = {LOAD: 1, WEIGHT: 1}
    for place, step in moves:
        operand = 4 if step[0] == WEIGHT else 3
        reads = [k for k, product in enumerate(products) if product[operand] == step[1]]
        needed = next((k for k in reads if k >= place), done)
        free = max((k + 1 for k in reads if k < place), default=0)
        if free == 0 < needed and early.get(step[0]):
            early[step[0]] -= 1
            beside[0].append(step)
            continue
        slots = [*range(needed - AHEAD, free - 1, -1), *range(max(free, needed - AHEAD + 1), needed + 1)]
        slot = next((k for k in slots if k and not beside[k]), free)
        beside[slot].append(step)
    steps = [*beside[0]]
    for product, others in zip(products, beside[1:], strict=True):
        steps += [product, *others]
    loads = sum(step[0] == LOAD for step in steps)
    return replace(schedule, steps=tuple(steps), loads=loads)


def _next_use(order: list[int], place: int, word: int) -> int:
    """Where in the order of products the word is needed next."""
    return order.index(word, place) if word in order[place:] else len(order)
