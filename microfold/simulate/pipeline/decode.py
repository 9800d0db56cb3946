"""Decoder of disassembled instructions of the core and of its floating-point unit.

Mnemonics: Armv7-M Architecture Reference Manual (Arm DDI 0403), chapter A7.
"""

from __future__ import annotations

import re

from microfold.simulate.pipeline.instruction import FLAGS, Instruction
from microfold.simulate.pipeline.operands import (
    address,
    is_core,
    listed,
    offset,
    register,
    registers,
    singles,
    split,
)
from microfold.simulate.pipeline.vector import is_vector, vector_instruction

_CONDITION = "eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|hs|lo"
_CONDITIONAL = re.compile(rf"(.+?)({_CONDITION})")
_SHIFT = re.compile(r"(lsl|lsr|asr|ror|rrx)\b.*")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LONG = _names("smull umull smlal umlal smlald smlaldx umaal smlalbb smlaltt smlalbt smlaltb")
_LONG_SUMS = _LONG - {"smull", "umull"}
_PRODUCTS = _names("mul smmul smmulr smuad smuadx smusd smusdx smulbb smulbt smultb smultt smulwb smulwt")
_SUMS = _names(
    "mla mls smlad smladx smlsd smlsdx smmla smmlar smmls smlabb smlabt smlatb smlatt smlawb smlawt"
)
_MULTIPLY = _LONG | _PRODUCTS | _SUMS
_EXTEND = _names("uxtb uxth sxtb sxth")
_BIT_FIELD = _names("ubfx sbfx bfi bfc rbit rev rev16 revsh")
# Mnemonics that shift their last or only operand, or extract a field from it, before its use.
_EXTRACTS = _BIT_FIELD - {"bfc"} | _names("uxtab uxtah sxtab sxtah uxtab16 sxtab16 pkhbt pkhtb")
_SATURATE = _names("ssat usat ssat16 usat16 qadd qsub qdadd qdsub qadd8 qsub8 qadd16 qsub16 uqadd8 uqsub8")
_PARALLEL = _names(
    "uxtb16 sxtb16 sadd8 ssub8 sadd16 ssub16 uadd8 usub8 uadd16 usub16 shadd8 shadd16 shsub16 uhadd8 "
    "uhadd16 sel clz usad8 usada8"
)
_DSP = _EXTEND | _BIT_FIELD | _EXTRACTS | _SATURATE | _PARALLEL
_COMPARE = _names("cmp cmn tst teq")
_SELECT = _names("csel csinc csinv csneg cset csetm cinc cinv cneg")
_PLAIN = _names("and orr eor bic orn add addw sub subw rsb neg adc sbc mov movw movt mvn adr")
_SHIFTS = _names("lsl lsr asr ror rrx")
_KNOWN = _MULTIPLY | _DSP | _COMPARE | _SELECT | _PLAIN | _SHIFTS | {"sdiv", "udiv"}
_ELEMENT = re.compile(r"d(\d+)\[(\d)\]")
_LONG_SHIFTS = _names("asrl lsll lsrl sqrshrl sqshll srshrl uqrshll uqshll urshrl")
_LOOPS = {"le": "loop_end", "letp": "loop_end"}


def decode(address: int, size: int, mnemonic: str, operands: str) -> Instruction:
    """Decode one line of a disassembly.

    Unknown mnemonics count as plain instructions that write their first register and read the others.
    """
    name = re.sub(r"\.[nw]$", "", mnemonic)
    parts = split(operands)
    fields = _fields(name, parts, operands)
    return Instruction(address, size, text=f"{mnemonic} {operands}".strip(), **fields)  # type: ignore[arg-type]


def _fields(name: str, parts: list[str], operands: str) -> dict[str, object]:
    if name.startswith("v") and name not in ("vmrs", "vmsr"):
        if is_vector(name, operands):
            return vector_instruction(name, parts, operands)
        return _float(name, parts, operands)
    loop = name.split(".")[0]
    if loop in ("le", "letp", "dls", "wls", "dlstp", "wlstp"):
        kind = _LOOPS.get(loop, "loop_start")
        counted = parts[:1] if kind == "loop_end" else parts[1:2]
        return {"name": kind, "reads": tuple(registers(counted)), "writes": ("lr",)}
    if name.startswith("nop"):
        return {"name": "nop"}
    if re.fullmatch(r"it[te]*", name):
        return {"name": "it"}
    if name in ("bl", "b"):
        return {"name": "branch", "writes": ("lr",) if name == "bl" else ()}
    if re.fullmatch(rf"b({_CONDITION})", name):
        return {"name": "branch_conditional"}
    if name in ("cbz", "cbnz"):
        return {"name": "branch_conditional", "reads": (register(parts[0]),)}
    if name in ("bx", "blx"):
        return {"name": "branch_indirect", "reads": (register(parts[0]),)}
    if name in ("tbb", "tbh"):
        return {"name": "branch_indirect", "reads": tuple(address_of(parts))}
    transfer = re.fullmatch(rf"(ldr|str)(d|b|h|sb|sh)?t?({_CONDITION})?", name)
    if transfer:
        return _transfer(transfer[1] == "ldr", transfer[2] or "", parts)
    if re.match(r"(ldm|stm|push|pop)", name):
        return _multiple(name, parts, operands)
    return _plain(name, parts)


def address_of(parts: list[str]) -> list[str]:
    """Return the registers of the operand in brackets, or an empty list."""
    return next((address(part) for part in parts if part.startswith("[")), [])


def place_of(parts: list[str]) -> dict[str, object]:
    """Return the instruction fields of an address: registers, base, offset and updated register."""
    position = next((i for i, part in enumerate(parts) if part.startswith("[")), -1)
    if position < 0:
        return {}
    part = parts[position]
    inner = address(part)
    behind = position + 1 < len(parts)
    return {
        "addresses": singles(inner),
        "base": inner[0] if inner[0] != "pc" else "",
        "offset": 0 if behind else offset(part.rstrip("!")),
        "updates": inner[0] if behind or part.endswith("!") else "",
        "indexed": len(inner) > 1,
    }


def _transfer(loads: bool, width: str, parts: list[str]) -> dict[str, object]:
    count = 2 if width == "d" else 1
    moved = tuple(registers(parts[:count]))
    if loads:
        name = "load_double" if count == 2 else "load_narrow" if width else "load"
        name = "load_branch" if "pc" in moved else name
        return {"name": name, "writes": moved, "words": count, **place_of(parts)}
    name = "store_double" if count == 2 else "store"
    return {"name": name, "stores": moved, "words": count, **place_of(parts)}


def _multiple(name: str, parts: list[str], operands: str) -> dict[str, object]:
    stack = name.startswith(("push", "pop"))
    base = "sp" if stack else register(parts[0])
    moved = tuple(listed(operands))
    loads = name.startswith(("ldm", "pop"))
    return {
        "name": "load_multiple" if loads else "store_multiple",
        "writes" if loads else "stores": moved,
        "addresses": (base,),
        "base": base,
        "updates": base if stack or parts[0].endswith("!") else "",
        "words": len(moved),
    }


def _plain(name: str, parts: list[str]) -> dict[str, object]:
    """Decode arithmetic. All operands but the first are read; with two operands, also the first."""
    stem, conditional, sets_flags = _stem(name)
    used = registers(parts)
    found: dict[str, object] = {"reads_flags": conditional or stem in ("adc", "sbc") or stem in _SELECT}
    writes, reads = used[:1], used[1:] if len(parts) > 2 else used
    if stem in _MULTIPLY:
        found |= _product(stem, used)
        writes = list(found["writes"])  # type: ignore[arg-type]
        reads = list(found["reads"])  # type: ignore[arg-type]
    elif stem in ("sdiv", "udiv"):
        found["name"] = "divide"
    elif stem in _COMPARE:
        found["name"] = "alu"
        writes, reads = [], used
    elif stem in _DSP:
        found["name"] = "extend" if stem in _EXTEND else "bit_field" if stem in _BIT_FIELD else "dsp"
        reads = used if stem in ("bfi", "bfc") else used[1:] or used
        if stem in _EXTRACTS:
            found["shifted"] = tuple(reads if len(reads) == 1 else used[-1:])
    elif stem in ("mov", "mvn", "movw", "movt", "adr"):
        found["name"] = "move"
        reads = [*used[1:], *(used[:1] if stem == "movt" else [])]
    elif stem in ("mrs", "vmrs", "dmb", "dsb", "isb"):
        found["name"] = "system"
        reads = []
    elif stem in ("msr", "vmsr"):
        found["name"] = "system"
        writes, reads = ["p0"] if parts[0] == "p0" else [], used
    elif stem in _LONG_SHIFTS:
        found["name"] = "alu"
        writes, reads = used[:2], used
    else:
        found["name"] = _arithmetic(stem, parts)
    if any(_SHIFT.fullmatch(part) for part in parts[1:]) and stem not in _DSP:
        found |= {"name": "shifted_operand", "shifted": tuple(used[-1:])}
    if writes == ["pc"]:
        found["name"] = "branch_indirect"
    if conditional:
        reads = [*reads, *writes]
    flags = (FLAGS,) if sets_flags or stem in _COMPARE else ()
    return {**found, "reads": tuple(reads), "writes": (*writes, *flags)}


def _arithmetic(stem: str, parts: list[str]) -> str:
    if stem in _SHIFTS:
        return "shift"
    if stem in ("add", "sub", "addw", "subw"):
        return "add_immediate" if any(part.startswith("#") for part in parts) else "add"
    return "alu"


def _product(stem: str, used: list[str]) -> dict[str, object]:
    if stem in _LONG:
        sums = used[:2] if stem in _LONG_SUMS else []
        return {
            "name": "multiply_long",
            "writes": tuple(used[:2]),
            "reads": tuple(used[2:4]),
            "accumulates": tuple(sums),
        }
    factors = used[1:] if len(used) > 2 else used
    return {
        "name": "multiply",
        "writes": tuple(used[:1]),
        "reads": tuple(factors[:2]),
        "accumulates": tuple(factors[2:3]),
    }


def _stem(name: str) -> tuple[str, bool, bool]:
    """Split a mnemonic: the stem, whether it has a condition, and whether it sets flags."""
    conditional = _CONDITIONAL.fullmatch(name)
    for stem, has_condition in ((name, False), (conditional[1] if conditional else name, True)):
        if stem in _KNOWN:
            return stem, has_condition, False
        if stem[-1] == "s" and stem[:-1] in _KNOWN:
            return stem[:-1], has_condition, True
    return name, False, False


def _float(name: str, parts: list[str], operands: str) -> dict[str, object]:
    stem = name.split(".")[0]
    if re.match(r"v(ld|st)(m|r)|vpush|vpop", stem):
        return _float_transfer(stem, parts, operands)
    used = registers(_ELEMENT.sub(_single, part) for part in parts)
    if stem == "vmov":
        return _float_move(parts, used)
    found: dict[str, object] = {"name": "float", "reads": singles(used[1:]), "writes": singles(used[:1])}
    if re.match(r"v(n?ml[as]|fn?m[as])", stem):
        found |= {"name": "float_multiply_add", "accumulates": singles(used[:1])}
    elif stem in ("vcmp", "vcmpe"):
        found |= {"reads": singles(used), "writes": ("fpscr",)}
    elif stem in ("vadd", "vsub"):
        found["name"] = "float_add"
    elif stem in ("vdiv", "vsqrt"):
        found["name"] = "float_divide" if stem == "vdiv" else "float_root"
    return found


def _single(element: re.Match[str]) -> str:
    return f"s{2 * int(element[1]) + int(element[2])}"


def _float_transfer(stem: str, parts: list[str], operands: str) -> dict[str, object]:
    loads = stem.startswith("vld") or stem == "vpop"
    kind = "load" if loads else "store"
    if "{" in operands:
        stack = stem in ("vpush", "vpop")
        moved = singles(listed(operands))
        base = "sp" if stack else register(parts[0])
        name = f"float_{kind}_multiple"
        place: dict[str, object] = {
            "addresses": (base,),
            "base": base,
            "updates": base if stack or parts[0].endswith("!") else "",
        }
    else:
        moved = singles(registers(parts[:1]))
        name = f"float_{kind}_double" if len(moved) == 2 else f"float_{kind}"
        place = place_of(parts)
    return {"name": name, "writes" if loads else "stores": moved, "words": len(moved), **place}


def _float_move(parts: list[str], used: list[str]) -> dict[str, object]:
    to_core = is_core(used[0])
    if len(parts) > 2:
        count = 2 if to_core or used[0][0] == "s" else 1
        name = "core_pair_from_float" if to_core else "float_pair_from_core"
    else:
        count = 1
        from_core = len(used) > 1 and is_core(used[1])
        within = "float_move" if len(used) > 1 else "float_constant"
        name = "core_from_float" if to_core else "float_from_core" if from_core else within
    return {"name": name, "writes": singles(used[:count]), "reads": singles(used[count:])}
