"""Where the linker puts code: attributes of functions, on a line of their own before them."""

from __future__ import annotations

import re

# What follows in a definition, up to the brace of its body; in a constant there is an equals sign before.
_REST = r"[^;={}]*\)\n\{"


def in_section(code: str, section: str) -> str:
    """The code with an attribute of every function that it defines.

    Args:
        section: what gives a function its section, e.g. a macro.
    """
    return re.sub(rf"^static (?={_REST})", f"{section}\nstatic ", code, flags=re.MULTILINE)


def kept_apart(code: str, name: str, attribute: str) -> str:
    """The code with an attribute that keeps a function from being made part of its callers."""
    return re.sub(
        rf"^static (?=[^;={{}}(]*\b{name}\({_REST})", f"static {attribute} ", code, flags=re.MULTILINE
    )
