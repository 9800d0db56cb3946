"""Stack bound of linked Thumb code, found by following every path through its disassembly.

The bound holds for every input. Each branch is followed in both directions, and each call adds the depth of
the called function, including library functions. The depth is in bytes below the caller's stack pointer.
The analysis assumes that a computed jump inside a function, e.g. of a `switch`, does not change the stack
pointer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

# Maximum number of different depths at one instruction. With more, a loop probably pushes. Compiled code has
# one depth, and targets of computed jumps a few.
_MOST_DEPTHS = 64
_CONDITIONS = "eq|ne|cs|cc|hs|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|al"
_HEADING = re.compile(r"^([0-9a-f]+) <(.+)>:$", re.MULTILINE)
# Address, bytes, the mnemonic up to its first point and its rest, operands up to a comment.
_LINE = re.compile(
    r"^[ \t]*([0-9a-f]+):\t([0-9a-f ]+)\t(?=\S)([^.\s]*)(\S*)(?:\t([^@;\n]*).*)?$", re.MULTILINE
)
_UNKNOWN = re.compile(r"^[ \t]*([0-9a-f]+):\t([0-9a-f ]+)\t.*<UNDEFINED>", re.MULTILINE)
_ADDRESS = re.compile(r"\b([0-9a-f]+) <[^>]*>")
_BRANCH = re.compile(rf"b(?P<condition>{_CONDITIONS})?|cbn?z|le|letp|wls|wlstp")
_CONDITIONAL = re.compile(rf"(bx|blx|pop|push|ldmia|ldr|mov|add|sub)({_CONDITIONS})")
_CALL = re.compile(rf"blx?|bl({_CONDITIONS})")
# All other instructions that use neither the stack pointer nor the program counter only fall through.
_TELLING = re.compile(
    rf"{_CALL.pattern}|{_BRANCH.pattern}|bxn?s?|{_CONDITIONAL.pattern}|v?push|v?pop|tb[bh]|undefined|udf|bkpt"
)
_LOADS_PC = re.compile(r"\{[^}]*\bpc\b|^pc\b")
_MOVES_BASE = re.compile(r"\[sp, #(-?\d+)\]!|\[sp\], #(-?\d+)")
_MOVES_BASE_SOMEHOW = re.compile(r"\[sp[^\]]*\]!|\[sp\], ")
_IS_STACK_POINTER = re.compile(r"sp\b")
_MOVE = re.compile(r"sp,(?: sp,)? (?:#(-?\d+)|(r\d+|ip|sl|fp))")
_WRITERS = re.compile(r"(mov|mvn|movw|movt|ldr|add|adds|addw|sub|subs|subw|bic|and|orr|rsb|adr|lsl|lsr)")
# Calls by which Armv6-M jumps via a table right after the call.
_TABLE_CALL = re.compile(r"<__gnu_thumb1_case_\w+>")


class UnboundedStackError(Exception):
    """Error: no stack bound can be derived from the code. The message states the place and the reason."""


class _Instruction(NamedTuple):
    """Instruction, from one line of a disassembly.

    Attributes:
        function: symbol before the instruction.
        name: mnemonic, without width and data type.
    """

    address: int
    size: int
    function: str
    name: str
    operands: str

    @property
    def only_goes_on(self) -> bool:
        """Whether the instruction keeps the stack pointer and continues at the next instruction."""
        return not ("sp" in self.operands or "pc" in self.operands or _is_telling(self.name))

    @property
    def target(self) -> int | None:
        found = _ADDRESS.search(self.operands)
        return int(found[1], 16) if found else None


class _Step(NamedTuple):
    """Effect of an instruction.

    Attributes:
        depth: growth of the stack, in bytes; negative if it shrinks.
        next: addresses at which control can continue in the same frame.
        call: address of a called function.
        computed: whether control can continue anywhere in the function.
    """

    depth: int = 0
    next: tuple[int, ...] = ()
    call: int | None = None
    computed: bool = False


def stack_bound(listing: str, functions: Iterable[str]) -> int:
    """Return the maximum stack of several functions with their callees, in bytes.

    Args:
        listing: output of ``objdump -d`` for a linked Cortex-M image.
        functions: names of the functions called from outside; missing functions are ignored.

    Raises:
        UnboundedStackError: the code is recursive, calls functions by pointers, changes its stack pointer by
            numbers that are not in the code, or has instructions that objdump does not know.
    """
    return _Image(listing).bound(functions)


class _Image:
    def __init__(self, listing: str):
        self.entries: dict[str, int] = {}
        self.code: dict[int, _Instruction] = {}
        self.words: dict[int, int] = {}
        self.functions: dict[str, list[int]] = {}
        self._read(listing)
        self.starts = frozenset(self.entries.values())
        self.depths: dict[int, int] = {}

    def _read(self, listing: str) -> None:
        _, *parts = _HEADING.split(listing)
        for entry, function, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            self.entries.setdefault(function, int(entry, 16))
            found: list[_Instruction] = []
            for place, code, name, rest, operands in _LINE.findall(body):
                address = int(place, 16)
                if name:
                    found.append(_Instruction(address, _size(code), function, name, operands.strip()))
                elif rest == ".word":
                    self.words[address] = int(code, 16)
            for place, code in _UNKNOWN.findall(body) if "<UNDEFINED>" in body else ():
                found.append(_Instruction(int(place, 16), _size(code), function, "undefined", ""))
            found.sort()
            self.code |= {each.address: each for each in found}
            self.functions.setdefault(function, []).extend([each.address for each in found])

    def bound(self, functions: Iterable[str]) -> int:
        entries = [self.entries[name] for name in functions if name in self.entries]
        return max(map(self._depth_of, entries), default=0)

    def _depth_of(self, entry: int) -> int:
        """Return the depth of the function at an address, after analysing the functions that it calls."""
        calls: dict[int, dict[int, int]] = {}
        own: dict[int, int] = {}
        open_functions: list[int] = [entry]
        while open_functions:
            address = open_functions[-1]
            if address in self.depths:
                open_functions.pop()
                continue
            if address not in own:
                own[address], calls[address] = self._traverse(address)
            missing = [callee for callee in calls[address] if callee not in self.depths]
            for callee in missing:
                if callee in open_functions:
                    raise UnboundedStackError(f"{self._where(callee)} is recursive")
            if missing:
                open_functions.append(missing[0])
                continue
            below = (depth + self.depths[callee] for callee, depth in calls[address].items())
            self.depths[address] = max([own[address], *below])
        return self.depths[entry]

    def _where(self, address: int) -> str:
        return self.code[address].function if address in self.code else f"{address:#x}"

    def _traverse(self, entry: int) -> tuple[int, dict[int, int]]:
        """Follow every path from an entry to the returns.

        Returns:
            The maximum depth of the frame, and the depth of the frame at each called function.
        """
        if entry not in self.code:
            raise UnboundedStackError(f"a function is called at {entry:#x}, which has no code")
        depths: dict[int, int] = {}
        visits: dict[int, int] = {}
        calls: dict[int, int] = {}
        deepest = 0
        pending = [(entry, 0)]
        while pending:
            address, depth = pending.pop()
            if depths.get(address, -1) >= depth or address not in self.code:
                continue
            instruction = self.code[address]
            visits[address] = visits.get(address, 0) + 1
            if visits[address] > _MOST_DEPTHS:
                raise UnboundedStackError(f"{instruction.function} moves the stack pointer in a loop")
            depths[address] = depth
            if instruction.only_goes_on:
                pending.append((address + instruction.size, depth))
                continue
            step = self._step(instruction)
            depth = max(depth + step.depth, 0)
            deepest = max(deepest, depth)
            if step.call is not None:
                calls[step.call] = max(calls.get(step.call, 0), depth)
            pending += [(each, depth) for each in step.next]
            if step.computed:
                # Continue at all instructions that are not reached otherwise, with the same stack pointer.
                others = [a for a in self._body(instruction.function) if a not in depths]
                if not others:
                    raise UnboundedStackError(f"{instruction.function} jumps by an address")
                pending += [(other, depth) for other in others]
        return deepest, calls

    def _body(self, function: str) -> list[int]:
        addresses = self.functions[function]
        end = len(addresses)
        while end and self.code[addresses[end - 1]].name == "nop":
            end -= 1
        return addresses[:end]

    def _step(self, i: _Instruction) -> _Step:
        after = (i.address + i.size,)
        conditional = _CONDITIONAL.fullmatch(i.name)
        name = conditional[1] if conditional else i.name
        goes_on = after if name != i.name else ()  # after a conditional return or jump
        if _CALL.fullmatch(name):
            if i.target is None:
                raise UnboundedStackError(f"{i.function} calls a function by its address")
            if _TABLE_CALL.search(i.operands):
                return _Step(call=i.target, computed=True)
            if i.target not in self.starts and i.target in self.code:
                # Into a function: GCC's long jump on Armv6-M, or a subroutine in assembly.
                return _Step(next=(i.target, *after))
            return _Step(next=after, call=i.target)
        if name in ("bx", "bxns"):
            if i.operands != "lr":
                raise UnboundedStackError(f"{i.function} goes to a function by its address")
            return _Step(next=goes_on)
        if name in ("tbb", "tbh"):
            return _Step(computed=True)
        if name == "undefined":
            raise UnboundedStackError(f"{i.function} has an instruction that objdump does not know")
        if name in ("udf", "bkpt"):
            return _Step()
        found = _BRANCH.fullmatch(i.name)
        if found and i.target is not None:
            return _Step(next=(i.target,) if i.name == "b" else (i.target, *after))
        grows = self._growth(i, name)
        if _LOADS_PC.search(i.operands) and name in ("pop", "ldmia", "ldr", "mov", "add"):
            restored = name in ("pop", "ldmia") or "[sp]" in i.operands or i.operands.endswith(", lr")
            return _Step(grows if restored and not goes_on else 0, next=goes_on, computed=not restored)
        return _Step(grows if not goes_on or grows > 0 else 0, next=after)

    def _growth(self, i: _Instruction, name: str) -> int:
        operands = i.operands
        if name in ("push", "vpush"):
            return _register_bytes(operands)
        if name in ("pop", "vpop"):
            return -_register_bytes(operands)
        if operands.startswith("sp!"):
            size = _register_bytes(operands)
            return size if name.endswith("db") else -size
        if found := _MOVES_BASE.search(operands):
            return -int(found[1] or found[2])
        if not _IS_STACK_POINTER.match(operands) or not _WRITERS.fullmatch(name):
            if _MOVES_BASE_SOMEHOW.search(operands):
                raise UnboundedStackError(f"{i.function}: {i.name} {operands}")
            return 0
        sign = {"add": -1, "addw": -1, "sub": 1, "subw": 1}.get(name)
        if sign is not None and (found := _MOVE.fullmatch(operands)):
            return sign * (int(found[1]) if found[1] else self._constant(i, found[2]))
        raise UnboundedStackError(f"{i.function}: {i.name} {operands} moves the stack pointer")

    def _constant(self, i: _Instruction, register: str) -> int:
        """Return the constant in a register, from the last write before an instruction."""
        addresses = self.functions[i.function]
        for address in reversed(addresses[: addresses.index(i.address)]):
            earlier = self.code[address]
            if not re.match(rf"{register}\b", earlier.operands) or earlier.name in ("cmp", "str", "tst"):
                continue
            literal = re.fullmatch(rf"{register}, \[pc, #(\d+)\]", earlier.operands)
            if earlier.name == "ldr" and literal:
                word = self.words.get((address + 4 & ~3) + int(literal[1]))
                if word is not None:
                    return word - (1 << 32) if word >> 31 else word
            plain = re.fullmatch(rf"{register}, #(\d+)", earlier.operands)
            if earlier.name in ("mov", "movs", "movw") and plain:
                return int(plain[1])
            break
        raise UnboundedStackError(f"{i.function} moves the stack pointer by the content of {register}")


def _size(code: str) -> int:
    return len(code.replace(" ", "")) // 2


@cache
def _is_telling(name: str) -> bool:
    return _TELLING.fullmatch(name) is not None


def _register_bytes(operands: str) -> int:
    """Return the size of the registers in braces, in bytes: 8 for ``d8``, 16 for ``q4``, else 4."""
    sizes = {"d": 8, "q": 16}
    listed = operands[operands.find("{") + 1 : operands.find("}")]
    total = 0
    for part in listed.split(","):
        first, _, last = part.strip().partition("-")
        count = int(last[1:]) - int(first[1:]) + 1 if last else 1
        total += count * sizes.get(first[0], 4)
    return total


def deepest(listings: Sequence[str], functions: Sequence[str]) -> int | None:
    """Return the stack bound for several images; None if one of them has no bound."""
    try:
        return max((stack_bound(listing, functions) for listing in listings), default=None)
    except UnboundedStackError:
        return None
