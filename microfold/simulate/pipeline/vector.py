"""Decoder of disassembled Helium instructions.

Mnemonics: Armv8-M Architecture Reference Manual (Arm DDI 0553), chapter C2. Execution units: LLVM's schedule
model of Cortex-M55 (llvm/lib/Target/ARM/ARMScheduleM55.td).
"""

from __future__ import annotations

import re

from microfold.simulate.pipeline.operands import (
    address,
    is_core,
    listed,
    offset,
    register,
    registers,
    singles,
)

_TRANSFER = re.compile(r"v(ld|st)(r|[24])")
_PREDICATE = re.compile(r"vctp|vpst|vpnot|vpt|vpsel")
_SUM = re.compile(r"v(ml[as]da?v|addv|mlav)")
_LONG_SUM = re.compile(r"v(r?ml[as]lda?v|mlalv|addlv)")
# The suffixes t and e give the position in a predicated block.
_ACCUMULATES = re.compile(r"v\w+vh?ax?[te]?")
_EXTREME = re.compile(r"v(max|min)(nm)?a?v")
_MULTIPLY = re.compile(r"v(mul|qd?mul|qrdmul|rmul|mla|mls|fma|fms|qrdmla|qdmla|cvt|cmul|cmla|rint)")
_FLOAT_ADD = re.compile(r"v(add|sub|abs|neg|abd|maxnm|minnm)")
_ADDS = re.compile(r"v(mlas?|mls|fmas?|fms|qrdmlash|qrdmlah|qdmlah|cmla)")
# Instructions that keep a part of the result register.
_INSERTS = re.compile(r"v(movn|qmovu?n|q?r?shru?n|sli|sri|mov[bt])")
_NARROW = re.compile(r"v(q?movu?n|q?r?shru?n)")
_ROUND = re.compile(r"v(rshr|qshl|rshl|qrshl|adc|sbc)")
_SHIFTS_IN_PLACE = frozenset(["vqrshl", "vrshl", "vshl", "vqshl"])


def is_vector(name: str, operands: str) -> bool:
    """Return whether a mnemonic with v belongs to Helium, and not to the floating-point unit."""
    return bool(re.search(r"\bq\d", operands) or _PREDICATE.match(name) or re.match(r"v(ld|st)[24]", name))


def vector_instruction(name: str, parts: list[str], operands: str) -> dict[str, object]:
    """Return the fields of an `Instruction`."""
    stem, kind = name.split(".")[0], name.partition(".")[2]
    if _TRANSFER.match(stem):
        return _transfer(stem, parts, operands)
    if stem == "vmov" and "[" in operands:
        return _lanes(parts, kind)
    used = registers(parts)
    if stem.startswith("vpsel"):
        return {"name": "vector_predicate", "reads": singles(used[1:]), "writes": singles(used[:1])}
    if _PREDICATE.match(stem):
        return {"name": "vector_predicate", "reads": singles(used), "writes": ("p0",)}
    if stem in ("vmov", "vdup"):
        from_core = len(used) > 1 and is_core(used[1])
        several = len(used) > 1 and not from_core
        name = "vector_move" if several else "vector_from_core"
        return {"name": name, "writes": singles(used[:1]), "reads": singles(used[1:])}
    if _LONG_SUM.match(stem):
        sums = tuple(used[:2]) if _ACCUMULATES.fullmatch(stem) else ()
        return {
            "name": "vector_sum",
            "writes": tuple(used[:2]),
            "reads": singles(used[2:]),
            "accumulates": sums,
        }
    if _SUM.match(stem):
        sums = tuple(used[:1]) if _ACCUMULATES.fullmatch(stem) else ()
        return {
            "name": "vector_sum",
            "writes": tuple(used[:1]),
            "reads": singles(used[1:]),
            "accumulates": sums,
        }
    if stem.startswith("vcmp"):
        return {"name": "vector_compare", "reads": singles(used), "writes": ("p0",)}
    in_place = _INSERTS.match(stem) or _EXTREME.match(stem) or (stem in _SHIFTS_IN_PLACE and len(parts) == 2)
    reads = used if in_place else used[1:]
    return {
        "name": _arithmetic(stem, kind),
        "writes": singles(used[:1]),
        "reads": singles(reads),
        "accumulates": singles(used[:1]) if _ADDS.fullmatch(stem) else (),
    }


def _arithmetic(stem: str, kind: str) -> str:
    if kind.startswith("f") and _FLOAT_ADD.match(stem):
        return "vector_float_add"
    if _MULTIPLY.match(stem):
        return "vector_multiply"
    if _NARROW.match(stem):
        return "vector_narrow"
    if _ROUND.match(stem):
        return "vector_round_shift"
    if _EXTREME.match(stem):
        return "vector_extreme"
    return "vector_integer"


def _transfer(stem: str, parts: list[str], operands: str) -> dict[str, object]:
    loads = stem.startswith("vld")
    place = next(part for part in parts if part.startswith("["))
    inner = address(place)
    moved = singles(listed(operands) if "{" in operands else registers(parts[:1]))
    kind = "vector_load" if loads else "vector_store"
    if any(name[0] == "q" for name in inner):
        kind = "vector_gather" if loads else "vector_scatter"
    elif stem[3] in "24":
        kind += "_interleaved"
    stepped = place.endswith("!") or parts[-1] != place
    return {
        "name": kind,
        "writes" if loads else "stores": moved,
        "addresses": singles(inner),
        "base": inner[0],
        "offset": 0 if parts[-1] != place else offset(place.rstrip("!")),
        "updates": inner[0] if stepped and inner[0][0] != "q" else "",
        "words": 4,
    }


def _lanes(parts: list[str], kind: str) -> dict[str, object]:
    vectors = sum(part.startswith("q") for part in parts)
    to_vector = parts[0].startswith("q")
    count = vectors if to_vector else len(parts) - vectors
    names = [_lane(part, kind) for part in parts]
    return {
        "name": "lane_from_core" if to_vector else "core_from_lane",
        "writes": tuple(names[:count]),
        "reads": tuple(names[count:]),
        "words": count,
    }


def _lane(part: str, kind: str) -> str:
    """Return the single-precision register of an element; for narrow elements, the vector's first one."""
    vector, bracket, index = part.partition("[")
    if not bracket:
        return register(part)
    narrow = kind.endswith(("8", "16"))
    return f"s{4 * int(vector[1:]) + (0 if narrow else int(index.rstrip(']')))}"
