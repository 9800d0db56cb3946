"""Expressions of float32 elements for floating-point units: four elements at a time, in registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from microfold.ir.types import DType
from microfold.kernels.call import SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.expression import NARROW, ExpressionPart, ExpressionPortable, parts
from microfold.kernels.kernel import ResourceTradeoff, register
from microfold.kernels.layer import LayerContext

# Number of values of four elements that are in registers at a time: s0 to s15, which calls do not preserve.
_BLOCKS = 4
# Maximum number of operands with step 0 plus numbers, and of operands with a step plus zero points.
_SAME = 8
_STREAMS = 4


# Generates instructions for four elements, from the registers of results, of operands, and of numbers.
Lines = Callable[[Sequence[str], Sequence[Sequence[str]], Sequence[str]], Sequence[str]]


def _each(*patterns: str) -> Lines:
    """Return a generator of instructions for result `y`, operands `a` and `b`, and numbers `p` and `q`."""

    def lines(results: Sequence[str], taken: Sequence[Sequence[str]], numbers: Sequence[str]) -> list[str]:
        found: list[str] = []
        for result, operands in zip(results, taken, strict=True):
            names = {"y": result} | dict(zip("ab", operands, strict=False))
            names |= dict(zip("pq", numbers, strict=False))
            written = (pattern.format_map(names) for pattern in patterns)
            found += [line for line in written if line != f"vmov.f32 {result}, {result}"]
        return found

    return lines


def _bounded(condition: str, number: str) -> tuple[str, ...]:
    """Return instructions that replace the result by a number if the comparison holds; NaN stays."""
    return (
        f"vcmp.f32 {{y}}, {{{number}}}",
        "vmrs APSR_nzcv, FPSCR",
        f"it {condition}",
        f"vmov{condition}.f32 {{y}}, {{{number}}}",
    )


def _relu(results: Sequence[str], taken: Sequence[Sequence[str]], numbers: Sequence[str]) -> Sequence[str]:
    """Clamp the bits, whose order is that of non-negative floats; a number is the upper limit."""
    first, second, third, fourth = (operands[0] for operands in taken)
    found = [f"vmov r2, r3, {first}, {second}", f"vmov r4, r5, {third}, {fourth}"]
    found += [f"vmov r6, {number}" for number in numbers]
    for k in range(2, 6):
        found.append(f"bic r{k}, r{k}, r{k}, asr #31")
        if numbers:
            found += [f"cmp r{k}, r6", "it gt", f"movgt r{k}, r6"]
    return [
        *found,
        f"vmov {results[0]}, {results[1]}, r2, r3",
        f"vmov {results[2]}, {results[3]}, r4, r5",
    ]


_LINES: Mapping[str, Lines] = {
    "abs": _each("vabs.f32 {y}, {a}"),
    "add": _each("vadd.f32 {y}, {a}, {b}"),
    "clip": _each("vmov.f32 {y}, {a}", *_bounded("mi", "p"), *_bounded("gt", "q")),
    "div": _each("vdiv.f32 {y}, {a}, {b}"),
    "limited": _relu,
    "lower": _each("vmov.f32 {y}, {a}", *_bounded("mi", "p")),
    "mul": _each("vmul.f32 {y}, {a}, {b}"),
    "neg": _each("vneg.f32 {y}, {a}"),
    "relu": _relu,
    "sqrt": _each("vsqrt.f32 {y}, {a}"),
    "square": _each("vmul.f32 {y}, {a}, {a}"),
    "squared_difference": _each("vsub.f32 {y}, {a}, {b}", "vmul.f32 {y}, {y}, {y}"),
    "sub": _each("vsub.f32 {y}, {a}, {b}"),
    "upper": _each("vmov.f32 {y}, {a}", *_bounded("gt", "p")),
}
# Functions with results that may be NaN, which `_relu` would replace by a number.
_PARTIAL = frozenset({"div", "sqrt"})
_BY_BITS = frozenset({"relu", "limited"})
_IN_INTEGERS = _BY_BITS | {"dequantize"}
# Load instructions of the integer types.
_LOADS = {DType.INT8: "ldrsb", DType.UINT8: "ldrb", DType.INT16: "ldrsh"}


def _dequantized(part: ExpressionPart, type: DType, first: int) -> list[str]:
    """Return the instructions that dequantise four elements into the registers from `first` on."""
    (value,), (scale,) = part.taken, part.numbers
    loads = [f"{_LOADS[type]} r{k}, [%[in{value}]], #{type.itemsize}" for k in range(2, 6)]
    centred = [f"sub r{k}, r{k}, %[z{part.zero_point}]" for k in range(2, 6)]
    moved = [f"vmov s{first}, s{first + 1}, r2, r3", f"vmov s{first + 2}, s{first + 3}, r4, r5"]
    registers = [f"s{k}" for k in range(first, first + 4)]
    converted = [f"vcvt.f32.s32 {k}, {k}" for k in registers]
    return [*loads, *centred, *moved, *converted, *(f"vmul.f32 {k}, {k}, %[n{scale}]" for k in registers)]


@register
class ExpressionFpu(ExpressionPortable):
    """Expression of four elements between VLDMs and a VSTM; the remaining elements one by one.

    Each function is one instruction or a few of them. Each instruction rounds once, like the operation in C;
    therefore VMLA and VFMA are not used.
    """

    name = "f32_expression__fpu"
    template = "elementwise/expression_fpu.c.j2"
    features = frozenset({"fpu", "thumb2"})
    trades = frozenset({ResourceTradeoff.UNROLLED})
    code = 300
    integers = NARROW

    def supports(self, layer: LayerContext) -> str | None:
        for part in self.parts(layer):
            if part.function not in _LINES and part.zero_point is None:
                return f"it has no instructions for {part.function}"
        steps = self.loops(layer)[-1][1:]
        if layer.node.output.type.dtype is not DType.FLOAT32:
            return "it does not support quantised results"
        if any(part.zero_point is not None and not steps[part.taken[0]] for part in self.parts(layer)):
            return "it does not dequantise operands with step 0"
        streams = sum(step != 0 for step in steps)
        _, numbers, zero_points = parts(layer.node)
        same = len(steps) - streams + len(numbers)
        functions = {part.function for part in self.parts(layer)}
        if not (functions.isdisjoint(_BY_BITS) or functions.isdisjoint(_PARTIAL)):
            return "it clamps the bits of floats, but 0 / 0 is NaN"
        if streams + len(zero_points) > _STREAMS or same > _SAME:
            return f"it has too few registers for {streams} operands and {same} numbers"
        if self._lines(layer) is None:
            return f"more than {_BLOCKS} values are live at a time"
        return super().supports(layer)

    def _lines(self, layer: LayerContext) -> list[str] | None:
        types = [value.type.dtype for value in layer.node.operands]
        return assembly(self.parts(layer), self.loops(layer)[-1][1:], types)

    def spec(self, layer: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        lines = self._lines(layer)
        assert lines is not None
        clobbered = [f"s{k}" for k in range(4 * _BLOCKS)]
        if any(part.function in _IN_INTEGERS for part in self.parts(layer)):
            clobbered = [*(f"r{k}" for k in range(2, 7)), *clobbered]
        return (("lines", ";".join(lines)), ("clobbered", " ".join(clobbered)))

    def terms(self, layer: LayerContext) -> Terms:
        *outer, (length, *steps) = self.loops(layer)
        size = layer.node.outputs[0].type.size
        runs = size // length
        found, read = self.parts(layer), sum(step != 0 for step in steps)
        last = runs * (length % 4)
        each = Terms(call=1, run=runs if outer else 0, element=size, read=size * read)
        for part in found:
            each += Terms({part.function: size})
        # The last 0 to 3 elements of a run are computed one by one.
        return each + Terms(rest=last, rest_step=last * (len(found) + read))

    def default_coefficient(self, term: str) -> float:
        if term not in _LINES:
            return 4.5 if term == "dequantize" else 2.0
        return len(_LINES[term](["y"] * 4, [["a", "b"]] * 4, ["p", "q"])) / 4


def assembly(
    found: Sequence[ExpressionPart], steps: Sequence[int], types: Sequence[DType]
) -> list[str] | None:
    """Return instructions for four elements of each operand that has a step; None if registers are too few.

    Operands are loaded when they are first read. The registers of a value are free after the last function
    that reads it. Names in brackets are operands of the inline assembly.
    """
    last = {index: place for place, part in enumerate(found) for index in part.taken}
    blocks: dict[int, int] = {}
    lines: list[str] = []

    def claim(value: int) -> bool:
        free = [block for block in range(_BLOCKS) if block not in blocks.values()]
        if free:
            blocks[value] = free[0]
        return bool(free)

    def register(value: int, element: int) -> str:
        return f"s{4 * blocks[value] + element}" if value in blocks else f"%[v{value}]"

    for place, part in enumerate(found):
        if part.zero_point is not None:
            if not claim(len(steps) + place):
                return None
            first = 4 * blocks[len(steps) + place]
            lines += _dequantized(part, types[part.taken[0]], first)
            continue
        for value in dict.fromkeys(part.taken):
            if value < len(steps) and steps[value] and value not in blocks:
                if not claim(value):
                    return None
                first = 4 * blocks[value]
                lines.append(f"vldmia %[in{value}]!, {{s{first}-s{first + 3}}}")
        taken = [[register(value, k) for value in part.taken] for k in range(4)]
        result = len(steps) + place
        for value in set(part.taken):
            if last[value] == place:
                blocks.pop(value, None)
        if not claim(result):
            return None
        numbers = [f"%[n{index}]" for index in part.numbers]
        lines += _LINES[part.function]([register(result, k) for k in range(4)], taken, numbers)
    first = 4 * blocks[len(steps) + len(found) - 1]
    return [*lines, f"vstmia %[output]!, {{s{first}-s{first + 3}}}"]
