"""Names and texts that are valid in all ecosystems alike."""

from __future__ import annotations

import re

# Arduino: library-specification, "name", 63 characters. The others allow more.
_NAME_LENGTH = 63
_LABEL_LENGTH = 60


def package_name(model: str) -> str:
    """What the package of a model is called, e.g. ``microfold_kws``.

    The prefix keeps it apart from what an ecosystem has itself: a component ``log`` would replace ESP-IDF's,
    ``CONFIG_GPIO`` is Zephyr's, and names of Arduino libraries must not begin with ``arduino``.
    """
    return f"microfold_{model}"[:_NAME_LENGTH].rstrip("_")


def plain(text: str) -> str:
    """Text of a model that means nothing to JSON, YAML, XML, Kconfig, Make, CMake, C and Markdown."""
    return re.sub(r"[^A-Za-z0-9 .+-]", "_", text)[:_LABEL_LENGTH]


def vendor_name(author: str) -> str:
    """A vendor for CMSIS packs: `RestrictedString` and `CvendorType` of Open-CMSIS-Pack's PACK.xsd 1.7."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", author.partition("<")[0])[:32].strip("-")
    return words if len(words) > 1 else "microfold"


def why_not_version(version: str) -> str:
    """Why not every ecosystem allows this version; empty where all do."""
    if re.fullmatch(r"(0|[1-9]\d{0,5})(\.(0|[1-9]\d{0,5})){2}", version):
        return ""
    return f"a package's version has three numbers, e.g. 1.0.0; it is {version!r}"


def why_not_author(author: str) -> str:
    """Why nobody can be called so in a manifest; empty for one line of text that needs no quotes."""
    name_and_mail = r"[^\W_][\w .,'-]*( <[\w.+-]+@[\w-]+(\.[\w-]+)+>)?"
    if len(author) <= 80 and re.fullmatch(name_and_mail, author):
        return ""
    return f"an author is a name, or Name <mail@example.com>; it is {author!r}"


def why_not_url(url: str) -> str:
    """Why this is no web address; empty for none, and for visible ASCII that needs no quotes."""
    if not url or re.fullmatch(r"https?://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._~/?#@!&+,;=%-]*)?", url):
        return ""
    return f"a package's address begins with https:// or http://; it is {url!r}"
