"""Names and texts that are valid in all ecosystems alike."""

from __future__ import annotations

import re

from microfold.errors import InputError

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


def check_version(version: str) -> None:
    """Versions are as PlatformIO, Arduino, ESP-IDF and CMSIS packs all have them."""
    if not re.fullmatch(r"(0|[1-9]\d{0,5})(\.(0|[1-9]\d{0,5})){2}", version):
        raise InputError(f"a package's version has three numbers, e.g. 1.0.0; it is {version!r}")


def check_author(author: str) -> None:
    """An author is one line of text that needs no quotes."""
    if len(author) > 80 or not re.fullmatch(r"[^\W_][\w .,'-]*( <[\w.+-]+@[\w-]+(\.[\w-]+)+>)?", author):
        raise InputError(f"an author is a name, or Name <mail@example.com>; it is {author!r}")


def check_url(url: str) -> None:
    """A web address of visible ASCII, without what quotes or ends strings."""
    if not re.fullmatch(r"https?://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._~/?#@!&+,;=%-]*)?", url):
        raise InputError(f"a package's address begins with https:// or http://; it is {url!r}")
