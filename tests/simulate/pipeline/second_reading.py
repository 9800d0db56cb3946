"""Disassembly as the second model reads it: mnemonics of the held traces, and no others.

Which registers an instruction reads and writes: Armv7-M and Armv8-M Architecture Reference Manuals (Arm DDI
0403, DDI 0553).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

# Roles of operands, in the order of the text: `w` is written; `r` read, `x` read to be shifted or cut;
# `a` what a product is added to; `s` stored; `b` both read and written; `c` added to and written; `@` an
# address; `-` none of these. The last role holds for all operands that follow.
_MNEMONICS = [
    (r"smla(d|bb|bt|tb|tt)|smmla|mla|mls", "multiply", "w r r a"),
    (r"smuad|muls?", "multiply", "w r r"),
    (r"smlal", "multiply_long", "c c r r"),
    (r"[us]mull", "multiply_long", "w w r r"),
    (r"sxtb16|ssat", "dsp", "w r"),
    (r"pkhbt|pkhtb", "dsp", "w r x -"),
    (r"[su]xt[bh]", "extend", "w r"),
    (r"sbfx|ubfx", "bit_field", "w x -"),
    (r"(lsl|lsr|asr)s?", "shift", "w r"),
    (r"asrl", "alu", "b b"),
    (r"adds?|subs?", "add", "w r"),
    (r"(and|bic|orr|rsb)s?", "alu", "w r"),
    (r"adcs?", "alu", "w r"),
    (r"cmp|tst", "alu", "r"),
    (r"movs?|mvns?", "move", "w r"),
    (r"it[te]*", "it", "-"),
    (r"b", "branch", "-"),
    (r"bl", "branch", "-"),
    (r"cbn?z", "branch_conditional", "r -"),
    (r"bx", "branch_indirect", "r"),
    (r"dls|wlstp\.8", "loop_start", "w r -"),
    (r"le|letp", "loop_end", "b -"),
    (r"ldr", "load", "w @"),
    (r"ldrs?[bh]", "load_narrow", "w @"),
    (r"ldrd", "load_double", "w w @"),
    (r"str[bh]?", "store", "s @"),
    (r"strd", "store_double", "s s @"),
    (r"ldmia", "load_multiple", "@ w"),
    (r"stmdb", "store_multiple", "@ s"),
    (r"pop", "load_multiple", "w"),
    (r"push", "store_multiple", "s"),
    (r"vldr", "float_load", "w @"),
    (r"vstr", "float_store", "s @"),
    (r"vldmia", "float_load_multiple", "@ w"),
    (r"vstmia", "float_store_multiple", "@ s"),
    (r"vmla\.f32", "float_multiply_add", "c r r"),
    (r"vadd\.f32", "float_add", "w r r"),
    (r"vpop", "float_load_multiple", "w"),
    (r"vpush", "float_store_multiple", "s"),
    (r"vmrs", "system", "w -"),
    (r"vmsr", "system", "w r"),
    (r"vmlav\.s8", "vector_sum", "w r r"),
    (r"vaddva\.u32", "vector_sum", "c r"),
    (r"vctp\.\d+", "vector_predicate", "r"),
    (r"vpst", "vector_predicate", "-"),
    (r"vpsel", "vector_predicate", "w r r"),
    (r"vdup\.\d+", "vector_from_core", "w r"),
    (r"v(add|sub|qadd|max|min|shl|shr|orr|eor)\.\w+", "vector_integer", "w r"),
    (r"v(q?rshl|qshl|rshr)\.\w+", "vector_round_shift", "w r"),
    (r"vqrdmulh\.s32", "vector_multiply", "w r r"),
    (r"vcmp\.\w+", "vector_compare", "- r r"),
    (r"vqmovn[bt]\.\w+", "vector_narrow", "b r"),
    (r"vmaxv\.s8", "vector_extreme", "b r"),
    (r"vldr[bhw]\.\w+", "vector_load", "w @"),
    (r"vstr[bhw]\.\w+", "vector_store", "s @"),
    (r"vst4[0-3]\.\w+", "vector_store_interleaved", "s @"),
]
_CONDITION = "(eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)"
_SETS_FLAGS = re.compile(r"(add|sub|and|asr|lsl|lsr|mov|mul|bic|orr)s(\.w)?|cmp|tst")
_OTHER_NAMES = {"sl": "r10", "fp": "r11", "ip": "r12", "sb": "r9"}
_NAME = re.compile(r"\b(?:r\d+|sl|fp|ip|sb|lr|sp|pc|p0|[sdq]\d+)\b")


@dataclass
class Step:
    """One instruction: its class, and what it does with which registers.

    Attributes:
        sources: the role and the register of each operand that is read.
        targets: registers that are written.
        stepped: the register of an address that is moved on.
        base: register and offset of an address, None where they are not known.
    """

    address: int
    size: int
    kind: str
    sources: list[tuple[str, str]] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    stepped: str = ""
    words: int = 1
    base: tuple[str, int] | None = None
    conditional: bool = False

    @property
    def reads_operands(self) -> Iterator[str]:
        return (name for role, name in self.sources if role in "rx")


def step(address: int, size: int, mnemonic: str, operands: str) -> Step:
    """A line of a disassembly.

    Raises:
        KeyError: no held trace had the mnemonic when this was written.
    """
    name = re.sub(r"\.[nw]$", "", mnemonic)
    # `b` and `bl` with a condition, and vectors under a predicate, are the same without.
    branch = re.fullmatch(rf"b{_CONDITION}", name)
    if branch:
        return Step(address, size, "branch_conditional")
    kind, roles, conditional = _entry(name)
    parts = re.findall(r"\[[^\]]*\](?:!|, #-?\d+)?|\s*[dq]\d+\[\d\]|\{[^}]*\}!?|[^,\[\{]+", operands)
    parts = [part.strip() for part in parts if part.strip()]
    found = Step(address, size, kind, conditional=conditional)
    if kind == "branch" and name == "bl":
        found.targets.append("lr")
    if name.startswith("vmov"):
        _lanes(found, parts)
        return found
    _fill(found, parts, roles.split())
    if kind in ("load_multiple", "store_multiple", "float_load_multiple", "float_store_multiple"):
        found.sources += [("@", "sp")] if name in ("push", "pop", "vpush", "vpop") else []
        found.stepped = "sp" if name in ("push", "pop", "vpush", "vpop") else found.stepped
    _refine(found, name, parts)
    return found


def _entry(name: str) -> tuple[str, str, bool]:
    if name.startswith("vmov"):
        return "lane", "-", False
    predicated = re.sub(r"^(v\w+?)t(\.\w+)$", r"\1\2", name) if not name.startswith("vqmovnt") else name
    for form, conditional in (
        (name, False),
        (re.sub(rf"{_CONDITION}$", "", name), True),
        (predicated, False),
    ):
        for pattern, kind, roles in _MNEMONICS:
            if re.fullmatch(pattern, form):
                return kind, roles, conditional
    raise KeyError(name)


def _fill(found: Step, parts: Sequence[str], roles: Sequence[str]) -> None:
    words = 0
    for part, role in zip(parts, itertools.chain(roles, itertools.repeat(roles[-1])), strict=False):
        if role == "@":
            _place(found, part)
            continue
        names = list(_named(part))
        words += len(names)
        for register in names:
            if role in "wbc":
                found.targets.append(register)
            if role in "rxas":
                found.sources.append((role, register))
            if role in "bc":
                found.sources.append(("r" if role == "b" else "a", register))
    if any(role in "s@" for role in roles) or found.kind.startswith(("load", "float_load", "store")):
        found.words = words


def _place(found: Step, part: str) -> None:
    """An address: what it is made of, and whether it steps."""
    inside = part[part.find("[") + 1 : part.find("]")] if "[" in part else part.rstrip("!")
    names = [_plain(name) for name in _NAME.findall(inside)]
    for name in names:
        found.sources += [("i" if name[0] == "q" else "@", each) for each in _named(name)]
    if part.endswith("!") or "], #" in part:
        found.stepped = names[0]
    elif "[" in part and len(names) == 1 and names[0] != "pc":
        number = re.search(r"#(-?\d+)", inside)
        found.base = (names[0], int(number[1]) if number else 0)


def _lanes(found: Step, parts: Sequence[str]) -> None:
    """VMOV between registers of the core and elements, or between vectors."""
    if len(parts) == 2 and all(part[0] in "q" and "[" not in part for part in parts):
        found.kind = "vector_move"
        found.targets, found.sources = list(_named(parts[0])), [("r", name) for name in _named(parts[1])]
        return
    if len(parts) == 3 and parts[0][0] == "d":
        found.kind = "float_pair_from_core"
        found.targets = list(_named(parts[0]))
        found.sources = [("r", _plain(part)) for part in parts[1:]]
        return
    elements = [re.fullmatch(r"([dq])(\d+)\[(\d)\]", part) for part in parts]
    names = [
        f"s{int(each[2]) * (4 if each[1] == 'q' else 2) + int(each[3])}" if each else _plain(part)
        for each, part in zip(elements, parts, strict=True)
    ]
    half = len(parts) // 2
    found.targets, found.sources = names[:half], [("r", name) for name in names[half:]]
    found.words = half
    if any(each and each[1] == "q" for each in elements):
        found.kind = "lane_from_core" if elements[0] else "core_from_lane"
    elif parts[1].startswith("#"):
        found.kind, found.sources = "float_constant", []
    else:
        to_float, from_float = names[0][0] == "s" and names[0] != "sp", names[1][0] == "s"
        within = "float_move" if from_float else "float_from_core"
        found.kind = within if to_float else "core_from_float"


def _refine(found: Step, name: str, parts: Sequence[str]) -> None:
    """What operands say of the class, and what is read and written besides them."""
    two_operands = len(parts) == 2 and found.kind in ("add", "alu", "shift", "multiply", "vector_round_shift")
    if two_operands and found.targets and _NAME.fullmatch(parts[1]):
        found.sources = [("r", each) for each in found.targets] + found.sources
    if found.kind == "add" and any(part.startswith("#") for part in parts):
        found.kind = "add_immediate"
        if len(parts) == 2:
            found.sources += [("r", each) for each in found.targets]
    shifted = any(re.match(r"(lsl|lsr|asr|ror) #", part) for part in parts)
    if shifted and found.kind in ("alu", "add", "move"):
        found.kind = "shifted_operand"
        last = max(i for i, (role, _) in enumerate(found.sources) if role == "r")
        found.sources[last] = ("x", found.sources[last][1])
    if found.kind in ("float_load", "float_store") and found.words == 2:
        found.kind += "_double"
    if found.kind == "vector_load" and any(role == "i" for role, _ in found.sources):
        found.kind = "vector_gather"
    if found.kind == "vector_store" and any(role == "i" for role, _ in found.sources):
        found.kind = "vector_scatter"
    if "pc" in found.targets and found.kind in ("load", "move"):
        found.kind = {"load": "load_branch", "move": "branch_indirect"}[found.kind]
    if found.conditional:
        found.sources += [("f", "flags")] + [("r", each) for each in found.targets]
    if name.startswith("adc"):
        found.sources.append(("f", "flags"))
        found.conditional = True
    if _SETS_FLAGS.fullmatch(name):
        found.targets.append("flags")


def _plain(name: str) -> str:
    return _OTHER_NAMES.get(name, name)


def _named(part: str) -> Iterator[str]:
    """The registers of an operand; of vectors and doubles, the single ones."""
    text = part.strip("{}!")
    for each in text.split(","):
        first, _, last = each.strip().partition("-")
        if not _NAME.fullmatch(first.rstrip("!")):
            continue
        letter, width = first[0], {"d": 2, "q": 4}.get(first[0], 1)
        if width == 1 and not last:
            yield _plain(first.rstrip("!"))
            continue
        low, high = int(first[1:]), int((last or first)[1:])
        letter = "s" if width > 1 else letter
        yield from (f"{letter}{n}" for n in range(low * width, (high + 1) * width))
