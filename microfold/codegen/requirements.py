"""Requirements of generated code: helpers, standard headers, and instructions of the core."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from microfold.codegen.declarations import Rendered, split
from microfold.codegen.environment import environment, template_source
from microfold.codegen.layout import without_comments
from microfold.codegen.names import HELPERS, names_in
from microfold.codegen.stack_size import compile_command
from microfold.program import Program
from microfold.target.description import close_features

# In order of definition: helpers may use helpers of earlier files.
HELPER_FILES = (
    "simd/assembly.j2",
    "simd/c.j2",
    "simd/copies.j2",
    "simd/divisions.j2",
    "simd/bits.j2",
    "simd/fft.j2",
    "simd/pairs.j2",
    "simd/dsp.j2",
    "simd/dsp_products.j2",
    "simd/dsp_products_late.j2",
    "simd/fft_dsp.j2",
    "simd/planes.j2",
    "simd/winograd.j2",
    "simd/mve.j2",
    "simd/mve_scale.j2",
    "simd/mve_sums.j2",
    "simd/mve_eights.j2",
    "simd/float16.j2",
    "simd/fpu.j2",
    "simd/dynamic_quantize.j2",
    "simd/dynamic_scale.j2",
    "simd/float_sums.j2",
    "simd/float_blocks.j2",
    "simd/float16_mve.j2",
    "simd/int4.j2",
    "simd/int4_dsp.j2",
    "simd/int4_mve.j2",
)

# Preprocessor lines that delimit conditional code.
_BRANCHES = re.compile(r"^(#(?:if|else|endif).*)$", re.MULTILINE)
_DEFINED = re.compile(rf" macro ({HELPERS}\w+)\(")

# Features that predefined macros announce: description, and preprocessor condition.
_FEATURE_CHECKS = {
    "thumb2": ("Thumb-2 instructions", "defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB >= 2"),
    "dsp": ("DSP instructions", "defined(__ARM_FEATURE_DSP)"),
    "mve": ("integer vectors (MVE)", "defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)"),
    "mve_fp": ("float vectors (MVE)", "defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)"),
}


def feature_checks(features: Iterable[str]) -> list[tuple[str, str]]:
    """Return the checks for kernels with these features: description, and preprocessor condition."""
    needed = set(features)
    return [check for feature, check in _FEATURE_CHECKS.items() if feature in needed]


def uses_fpu(program: Program) -> bool:
    """Return whether the code is generated for a floating-point unit.

    It then computes floats, or keeps other numbers in the registers of the unit.
    """
    target = program.target
    if not (target.has("fpu") and target.has("thumb2")):
        return False
    return any(
        "fpu" in close_features(list(layer.kernel.features), layer.kernel.name)
        or any(value.type.dtype.is_float for value in (*layer.node.operands, *layer.node.outputs))
        for layer in program.calls
    )


def needs(program: Program, stack: int | None = None) -> list[str]:
    """List the code's requirements on a core and on its compiler, in words.

    Args:
        stack: maximum stack in bytes; None: name the macro of the header instead.
    """
    target = program.target
    features = {feature for layer in program.calls for feature in layer.kernel.features}
    found = [what for what, _ in feature_checks(features)]
    if uses_fpu(program):
        found.append(
            "an FPU is recommended (without one the results are identical but slower, and the compiler warns)"
        )
    if target.has("thumb2"):
        found.append(
            "unaligned word accesses (if they fault, e.g. because CCR.UNALIGN_TRP is set, compile with "
            "-mno-unaligned-access; the code is then slower)"
        )
    if target.board:
        macro = f"{program.name.upper()}_STACK_SIZE"
        size = macro if stack is None else f"{stack:,} ({macro})"
        found.append(f"at most {size} bytes of stack, excluding interrupts")
        found.append(f"figures are for {compile_command(program)}")
    return found or ["a C99 compiler"]


@cache
def _files() -> dict[str, str]:
    """Return the file of each helper, in order of definition."""
    return {name: path for path in HELPER_FILES for name in _DEFINED.findall(template_source(path))}


@cache
def _helper(name: str) -> Rendered:
    macros: Any = environment().get_template(_files()[name]).module
    helper = split(str(getattr(macros, name)()))
    return Rendered(helper.text.strip(), helper.uses)


def helper_names() -> list[str]:
    """Return the names of all helpers, in order of definition. Only helpers are called ``mf_…``."""
    return list(_files())


def helpers(code: Iterable[str]) -> list[Rendered]:
    """Return the helpers that the code uses, directly or through other helpers, in order of definition.

    The code uses a helper if its name occurs outside comments.

    Some helpers only replace assembly. They are hidden from compilers that support the assembly, because some
    compilers warn about unused functions.
    """
    texts = list(code)
    used = _closure(texts)
    with_assembly = _closure(texts, _without(_assembly()))
    lacking = {condition: _closure(texts, _without(_assembly(lost))) for condition, lost in _LACKING.items()}
    lacking[_NEITHER] -= lacking["!mf_unaligned_assembly"] | lacking["!mf_fpu_assembly"]
    shown: list[Rendered] = []
    for name in _files():
        if name in with_assembly:
            shown.append(_helper(name))
        elif name in used:
            helper = _helper(name)
            conditions = [condition for condition, names in lacking.items() if name in names]
            # If no condition explains the helper, it replaces an extension of GNU C.
            conditions = conditions or ["!defined(__GNUC__)"]
            text = f"#if {' || '.join(conditions)}\n{helper.text}\n#endif"
            shown.append(Rendered(text, helper.uses))
    return shown


# For helpers used only where both kinds of assembly are replaced.
_NEITHER = "!(mf_unaligned_assembly || mf_fpu_assembly)"
# Preprocessor conditions of simd/assembly.j2. All of them hold with GNU C and everything that assembly needs.
_CONDITIONS = ("defined(__GNUC__)", "mf_assembly", "mf_unaligned_assembly", "mf_fpu_assembly")
# Conditions that guard some helpers, and the conditions above that then fail with GNU C.
_LACKING = {
    "!mf_assembly": ("mf_assembly", "mf_unaligned_assembly", "mf_fpu_assembly"),
    "!mf_unaligned_assembly": ("mf_unaligned_assembly",),
    "!mf_fpu_assembly": ("mf_fpu_assembly",),
    _NEITHER: ("mf_unaligned_assembly", "mf_fpu_assembly"),
}


def _assembly(lost: Iterable[str] = ()) -> dict[str, bool]:
    """Return the values of all conditions and their negations, with the conditions in `lost` false."""
    holds = dict.fromkeys(_CONDITIONS, True) | dict.fromkeys(lost, False)
    return holds | {f"!{condition}": not value for condition, value in holds.items()}


def _without(known: Mapping[str, bool]) -> Callable[[str], str]:
    """Return a function that removes lines of code whose preprocessor condition is known to be false."""

    def view(text: str) -> str:
        if "#if" not in text:
            return text
        # For each #if around a line: whether the condition is known, and whether the line is kept.
        around: list[tuple[bool, bool]] = []
        kept: list[str] = []
        for line in _BRANCHES.split(text):
            if line.startswith("#if"):
                # The condition may use a helper.
                kept.append(line)
                condition = line.removeprefix("#if ").strip()
                around.append((condition in known, known.get(condition, True)))
            elif line.startswith("#else") and around[-1][0]:
                around[-1] = (True, not around[-1][1])
            elif line.startswith("#endif"):
                around.pop()
            elif all(keep for _, keep in around):
                kept.append(line)
        return "\n".join(kept)

    return view


def closure_names(code: Iterable[str]) -> set[str]:
    """Return the names of the helpers that the code uses, directly or through other helpers."""
    return _closure(code)


def _closure(code: Iterable[str], view: Callable[[str], str] = str) -> set[str]:
    """Return the names of the helpers that the code uses, after `view` has filtered it."""
    used: set[str] = set()
    pending = list(code)
    while pending:
        for name in names_in(without_comments(view(pending.pop())), HELPERS) & _files().keys():
            if name not in used:
                used.add(name)
                pending.append(_helper(name).text)
    return used
