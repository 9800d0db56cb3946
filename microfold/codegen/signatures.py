"""What the C of a template says of its functions."""

from __future__ import annotations

import re


def parameter_types(code: str, name: str) -> tuple[str, ...]:
    """Types of the parameters of a function that is defined in the code.

    Raises:
        ValueError: it is not.
    """
    found = re.search(rf"\b{name}\(([^)]*)\)\s*\{{", code)
    if found is None:
        raise ValueError(f"a template must define the function that it is given the name of; {name} is not")
    return tuple(re.sub(r"\w+$", "", part.strip()).strip() for part in found[1].split(","))
