"""The Jinja2 environment of all templates."""

from __future__ import annotations

from functools import cache

import jinja2

from microfold import resources
from microfold.codegen import literals


@cache
def environment() -> jinja2.Environment:
    """Strict: an undefined name in a template is an error, never an empty string."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.template_dir()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    env.filters["literal"] = literals.literal
    env.filters["array_lines"] = literals.array_lines
    env.filters["c_comment"] = comment_text
    return env


def comment_text(text: str) -> str:
    """Text that is safe inside a C comment: printable ASCII, and no comment delimiters."""
    plain = "".join(c if " " <= c <= "~" else "?" for c in text)
    plain = plain.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")
    return plain if len(plain) <= 120 else plain[:57] + "..." + plain[-60:]
