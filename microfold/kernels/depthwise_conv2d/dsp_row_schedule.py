"""Instruction schedule of adjacent outputs of a row, computed from pairs of inputs and of weights.

Two int16 inputs share a word, (element 2t, element 2t + 1), and so do two weights of a row of taps. SMLAD
multiplies two by two, and adds both products to a sum. SMLAxy multiplies one half by one half. A row of
weights is

    (k0, k1), (k2, k3)...   for outputs whose window begins at the bottom of a word of inputs;
    (k1, k2), (k3, k4)...   for outputs whose window begins at the top of a word, if any do;
    (k, -)                  the last tap, if it is in none of these words.

The core has few registers. Sums and addresses leave some of them for inputs and weights. The last words of
weights stay in core registers. The others are moved from FPU registers whenever they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property

from msgspec import Struct
from msgspec.structs import replace

# Number of core registers that do not hold addresses.
REGISTERS = 12
# Kinds of steps.
LOAD, WEIGHT, MULTIPLY, LOAD_TWO, RECORD = range(5)
# Distance in products between the load of an operand and the product that reads it.
AHEAD = 1
# Kinds of products: both halves, or one half of the inputs and one half of the weights (bottom or top).
BOTH, BOTTOM_BOTTOM, BOTTOM_TOP, TOP_BOTTOM, TOP_TOP = range(5)


class Taps(Struct, frozen=True, dict=True):
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
        """Number of words of weights in a row."""
        alone = self.count % 2 and not self.odd_words
        return self.even_words + self.odd_words + alone

    @cached_property
    def words(self) -> int:
        return self.rows * self.row_words

    def pairs(self) -> list[tuple[int, int | None]]:
        """Return the taps in each word of a row of weights."""
        found: list[tuple[int, int | None]] = [(2 * i, 2 * i + 1) for i in range(self.even_words)]
        found += [(2 * i + 1, 2 * i + 2) for i in range(self.odd_words)]
        return found if len(found) == self.row_words else [*found, (self.count - 1, None)]

    def products(self, outputs: int) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
        """Yield each word of inputs of a row, with its products as (output, kind, word of weights)."""
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
        """Return the kind of product of a single tap, and the word of its weight.

        Args:
            with_bottom: kind of the product if the weight is in the bottom half of its word.
        """
        for word, (bottom, top) in enumerate(self.pairs()):
            if tap == bottom:
                return with_bottom, word
            if tap == top:
                return with_bottom + 1, word
        raise AssertionError


class RowSchedule(Struct, frozen=True):
    """Steps that compute adjacent outputs.

    Registers are numbered from 0: first the weights that stay, then other weights, then inputs. Sums are in
    the last registers. All schedules of a function have the same `inputs` and `held`.

    Attributes:
        outputs: number of outputs.
        steps: (LOAD, register of inputs, row, word);
            (LOAD_TWO, register of inputs, row, word), which loads the next word to the next register;
            (WEIGHT, register of weights, word of all weights);
            (MULTIPLY, kind, output, register of inputs, register of weights, 1 if the sum begins, word of
            all weights);
            (RECORD, register of inputs, 0 or 1) for the multiplier or the addend, only after `overlapped`.
        inputs: number of registers for inputs.
        held: number of words of weights that stay in registers.
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
        """Number of instructions, without the requantisation."""
        return sum(step[0] != RECORD for step in self.steps)

    @property
    def cycles(self) -> int:
        """Number of cycles: n + 1 for a group of n loads, 1 for every other instruction."""
        return self.loads + sum(step[0] in (WEIGHT, MULTIPLY) for step in self.steps)


@cache
def best_schedule(taps: Taps, outputs: int, temporaries: int, backwards: bool = False) -> RowSchedule:
    """Return the schedule with the fewest cycles.

    Args:
        temporaries: registers in addition to the sums that the requantisation needs.
        backwards: see `_schedule`.
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
def rest_schedule(taps: Taps, outputs: int, main: RowSchedule, backwards: bool = False) -> RowSchedule:
    """Return the schedule of fewer outputs, with the registers of the main schedule."""
    weights = REGISTERS - main.outputs - main.inputs
    return _schedule(taps, outputs, main.inputs, main.held, weights, backwards)


def _schedule(taps: Taps, outputs: int, inputs: int, held: int, weights: int, backwards: bool) -> RowSchedule:
    """Return the schedule of products, word by word of the inputs, and for each word by output.

    Args:
        backwards: whether sums that have begun are in reverse order. They then first read the weights that
            were loaded first, whose registers become free earlier.
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
    return RowSchedule(outputs, tuple(steps), inputs, held, loads)


def _words(
    taps: Taps, outputs: int, backwards: bool
) -> Iterator[tuple[int, int, list[tuple[int, int, int]]]]:
    """Yield (row, word of inputs, products). The sum that begins last holds the bias until then."""
    begun: set[int] = set()
    for row in range(taps.rows):
        for word, uses in taps.products(outputs):
            going = [use for use in uses if use[0] in begun]
            new = [use for use in uses if use[0] not in begun]
            yield row, word, [*going[::-1], *new] if backwards else uses
            begun.update(output for output, _, _ in uses)


def overlapped(schedule: RowSchedule) -> RowSchedule:
    """Return the schedule with the same products in the same order, for cores that issue two instructions.

    Each product is paired with a load or a move for a later product. The load or move must follow the last
    product that reads the old value of its register. It is placed as late as possible without a stall, at a
    product without partner if one exists. The first product waits for its weights, and meanwhile another word
    and other weights are loaded. Multiplier and addend follow in registers of inputs.
    """
    products = [step for step in schedule.steps if step[0] == MULTIPLY]
    beside: list[list[tuple[int, ...]]] = [[] for _ in range(len(products) + 1)]  # Item 0 precedes all.
    done = 0
    moves: list[tuple[int, tuple[int, ...]]] = []  # Each has the number of products before it.
    for step in schedule.steps:
        if step[0] == MULTIPLY:
            done += 1
        elif step[0] == LOAD_TWO:
            moves += [(done, (LOAD, step[1] + i, step[2], step[3] + i)) for i in range(2)]
        else:
            moves.append((done, step))
    last_reads = {product[3]: place for place, product in enumerate(products)}
    # The two registers that become free first.
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
    """Return the position of the next product that needs the word."""
    return order.index(word, place) if word in order[place:] else len(order)
