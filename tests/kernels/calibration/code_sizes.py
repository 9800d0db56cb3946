"""Code sizes of kernel functions, as the target's compiler makes them; nothing is run.

Many functions are compiled as one file, each of them kept apart from its caller, so that its bytes are those
of its sections. A helper function that the compiler keeps apart has sections of its own: they are counted by
name, beside the functions that refer to it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from microfold.codegen import requirements
from microfold.codegen.functions import RenderedFunction, render_function
from microfold.codegen.heads import heads, kept_apart
from microfold.codegen.literals import c_type, literal
from microfold.codegen.structs import CStruct
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.support.scratch import scratch_folder
from microfold.support.tools import COMPILE_SECONDS, run_tool
from microfold.target import Target

# Functions of one file: more of them would change what the compiler makes part of its callers, whose limits
# count the whole file.
TOGETHER = 40
# Bytes between the addresses that a call is given. Source: any multiple of the arena's alignment.
_APART = 64
_HEADERS = ("stdint.h", "string.h", "math.h")
_PARTS = re.compile(r"\.(?:constprop|isra|part|cold|lto_priv)\b.*")
_SECTION = re.compile(r"^\s*\d+ (\S+)\s+([0-9a-f]{8}) .*\bALLOC\b.*READONLY")
_RELOCATIONS = re.compile(r"^RELOCATION RECORDS FOR \[(\S+)\]")
_RELOCATION = re.compile(r"^[0-9a-f]{8} R_ARM_\S+\s+(\S+)")
_KINDS = (".text.unlikely.", ".text.", ".rodata.")


class CodeCase(Struct, frozen=True):
    """A function, and calls of it by different layers."""

    function: CFunction
    calls: tuple[KernelCall, ...]


class CodeSize(Struct, frozen=True):
    """The bytes that a function takes.

    Attributes:
        call: whose numbers the function was made for; of a shared function the first one of its case.
        own: its own code, with that of its parts.
        parts: the code among it that does not depend on the layer's type: compilers merge it with that of
            other functions of one specification.
        helpers: helper functions that it refers to, directly or through others, with their bytes.
        library: functions that it refers to and the file lacks.
    """

    call: KernelCall
    own: int
    parts: int = 0
    helpers: Mapping[str, int] = field(default_factory=dict[str, int])
    library: frozenset[str] = frozenset()


def shared_sizes(cases: Sequence[CodeCase], target: Target, level: str) -> list[CodeSize]:
    """Return the sizes of functions that are to serve any layer with their specification, one for each case.

    Args:
        level: the compiler's level of optimisation, such as ``-O2``.
    """
    return _measured([(case.calls[0], case.calls) for case in cases], target, level, alone=False)


def alone_sizes(cases: Sequence[CodeCase], target: Target, level: str) -> list[CodeSize]:
    """Return the sizes of functions that are made for one layer, for each call of each case."""
    return _measured([(call, (call,)) for case in cases for call in case.calls], target, level, alone=True)


# The call that is compiled, and all calls whose values the layer struct must hold.
_Compiled = tuple[KernelCall, Sequence[KernelCall]]


def _measured(calls: Sequence[_Compiled], target: Target, level: str, *, alone: bool) -> list[CodeSize]:
    found: list[CodeSize] = []
    for start in range(0, len(calls), TOGETHER):
        together = [call for call, _ in calls[start : start + TOGETHER]]
        functions = [
            # A single call: no field that all have in common is put into the code.
            render_function(f"f{n}", "F", [call if alone else _widest(call, same)], narrow=True)
            for n, (call, same) in enumerate(calls[start : start + TOGETHER])
        ]
        with scratch_folder() as folder:
            (folder / "code.c").write_text(source(together, functions, alone=alone), encoding="utf-8")
            # Equal functions of different kernels must not be merged: each is to count.
            listing = compile_listing(folder, "code.c", target, [level, "-fno-ipa-icf"])
        parts = {name for function in functions for name in mergeable(function)}
        found += _sizes(together, parts, *read_listing(listing))
    return found


def mergeable(function: RenderedFunction) -> Iterator[str]:
    """Yield the functions within a function that are the same for all layers: none reads a layer."""
    for head in heads(function.code):
        body = function.code[head.start : function.code.find("\n}", head.start)]
        other = body.replace(head.name, "").replace(f"{function.name}_layer *layer", "")
        reads = "layer" in re.sub(r"\(void\)layer;|/\*.*?\*/", "", other, flags=re.DOTALL)
        assembly = "(void)layer;" in body
        if head.name != function.name and (assembly or not reads):
            yield head.name


def source(calls: Sequence[KernelCall], functions: Sequence[RenderedFunction], *, alone: bool) -> str:
    """Return a C file with functions, one for each call, and a caller of all of them.

    Args:
        alone: the compiler sees what the layers hold.
    """
    constants = [(n, c) for n, call in enumerate(calls) for c in call.constants.items()]
    records = requirements.helpers(
        sorted({constant.record for _, (_, constant) in constants if constant.record})
    )
    texts = [kept_apart(each.text, each.name, "mf_noinline") for each in functions]
    helpers = requirements.helpers([*texts, *(record.text for record in records), "mf_noinline"])
    headers = {*_HEADERS}.union(*(each.headers for each in functions), *(each.uses for each in helpers))
    lines = [
        *(f"#include <{header}>" for header in sorted(headers)),
        *(each.text for each in helpers),
        *texts,
    ]
    for number, (name, constant) in constants:
        kind = constant.record or c_type(constant.array)
        lines.append(f"extern const {kind} {_constant(number, name)}[1];")
    body: list[str] = []
    for number, (call, function) in enumerate(zip(calls, functions, strict=True)):
        arguments = [f"({kind})(void *)(arena + {_APART * i})" for i, kind in enumerate(function.parameters)]
        if function.structs:
            layer = f"layer_{number}"
            arguments.insert(0, f"&{layer}")
            values = _initializer(function.structs, number, call.parameters)
            kind = f"const {function.name}_layer {layer}"
            lines.append(f"static {kind} = {values};" if alone else f"extern {kind};")
        body.append(f"    {function.name}({', '.join(arguments)});")
    return "\n".join([*lines, "void use(uint8_t *arena)", "{", *body, "}", ""])


def _widest(call: KernelCall, same: Sequence[KernelCall]) -> KernelCall:
    """Return the call alone, with numbers that need types as wide as those of all calls."""
    values: dict[str, Parameter] = dict(call.parameters)
    for name, value in values.items():
        others = [each.parameters.get(name) for each in same]
        numbers = [other for other in others if isinstance(other, int)]
        if isinstance(value, int) and numbers:
            values[name] = max(numbers, key=abs)
    return KernelCall(call.function, values, call.scratch)


def _constant(number: int, name: str) -> str:
    return f"constant_{number}_{name.replace('.', '_')}"


def _initializer(
    structs: Sequence[CStruct], number: int, values: Mapping[str, Parameter], prefix: str = ""
) -> str:
    """Return the initializer of the last struct; those before it are types of its members."""
    inner = {struct.name: struct for struct in structs[:-1]}
    parts: list[str] = []
    for member in structs[-1].members:
        name = prefix + member.name
        if member.type in inner:
            parts.append(_initializer([inner[member.type]], number, values, f"{name}."))
            continue
        value = values[name]
        parts.append(_constant(number, name) if isinstance(value, Constant) else literal(value or 0))
    return f"{{{', '.join(parts)}}}"


def compile_listing(folder: Path, name: str, target: Target, flags: Sequence[str]) -> str:
    """Compile a file as builds do, and return what objdump lists of it: sections, and what each refers to."""
    common = [*target.cpu_flags, "-std=c99", "-ffunction-sections", "-fdata-sections", "-w"]
    command = [target.compiler, *common, *flags, "-c", name, "-o", "code.o"]
    done = run_tool(command, folder, COMPILE_SECONDS, "compiling kernel functions")
    assert done.returncode == 0, done.stderr[:4000]
    tool = run_tool(
        [target.compiler, "-print-prog-name=objdump"], folder, COMPILE_SECONDS, "asking for objdump"
    )
    listed = run_tool([tool.stdout.strip(), "-hrw", "code.o"], folder, COMPILE_SECONDS, "listing sections")
    return listed.stdout


def read_listing(listing: str) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Return the bytes of each section in flash, and the symbols that it refers to."""
    sizes: dict[str, int] = {}
    references: dict[str, set[str]] = defaultdict(set)
    section = ""
    for line in listing.splitlines():
        if match := _SECTION.match(line):
            sizes[match[1]] = int(match[2], 16)
        elif match := _RELOCATIONS.match(line):
            section = match[1]
        elif match := _RELOCATION.match(line):
            references[section].add(match[1].partition("+0x")[0])
    return sizes, references


def _sizes(
    calls: Sequence[KernelCall],
    parts: Collection[str],
    sizes: Mapping[str, int],
    references: Mapping[str, Iterable[str]],
) -> list[CodeSize]:
    """Return the sizes of the functions of one file.

    Args:
        parts: names of functions within these that are merged with equal ones.
    """
    merged: dict[str, int] = defaultdict(int)
    own: dict[str, int] = defaultdict(int)
    refers: dict[str, set[str]] = defaultdict(set)
    for section, size in sizes.items():
        if section.startswith(".text."):
            own[_owner(section)] += size
            if _base(section) in parts:
                merged[_owner(section)] += size
            refers[_owner(section)] |= {_owner(symbol) for symbol in references.get(section, ())}
    for section, size in sizes.items():
        if section.startswith(".rodata."):
            read = _owner(section)
            users = sorted(name for name, others in refers.items() if read in others)
            # The description of a layer is there if its function still reads it.
            users = [read.replace("layer_", "f")] if read.startswith("layer_") else users
            # A table of a helper is a part of it, whoever else reads it.
            users.sort(key=lambda name: not name.startswith("mf_"))
            own[users[0] if users else ""] += size
    found: list[CodeSize] = []
    for number, call in enumerate(calls):
        used = set(_closure(f"f{number}", refers))
        helpers = {name: own[name] for name in used if name.startswith("mf_") and name in own}
        library = {name for name in used if name not in own and f".rodata.{name}" not in sizes}
        library = {name for name in library if not name.startswith(("constant_", "layer_", "."))}
        name = f"f{number}"
        found.append(CodeSize(call, own[name], merged[name], helpers, frozenset(library)))
    return found


def _owner(symbol: str) -> str:
    """Return what a symbol or section is a part of: ``f3`` of ``f3_row.isra.0``, the name of others."""
    base = _base(symbol)
    match = re.match(r"f\d+(?=_|$)", base)
    return match[0] if match else base


def _base(symbol: str) -> str:
    """Return the function that a symbol or a section is of, whatever the compiler has made of it."""
    for kind in _KINDS:
        symbol = symbol.removeprefix(kind)
    return _PARTS.sub("", symbol)


def _closure(name: str, refers: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield all that a function refers to, directly or through helpers."""
    seen, waiting = {name}, [name]
    while waiting:
        for other in refers.get(waiting.pop(), set()) - seen:
            seen.add(other)
            waiting.append(other)
            yield other
