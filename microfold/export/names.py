"""Names and texts that are valid in all ecosystems."""

from __future__ import annotations

import re

# Arduino: library-specification, "name", 63 characters. The others allow more.
_NAME_LENGTH = 63
_LABEL_LENGTH = 60


def package_name(model: str) -> str:
    """Return the name of a model's package, e.g. ``microfold_kws``.

    The prefix avoids collisions with names of the ecosystem: a component ``log`` would replace ESP-IDF's
    component, ``CONFIG_GPIO`` belongs to Zephyr, and Arduino libraries must not start with ``arduino``.
    """
    return f"microfold_{model}"[:_NAME_LENGTH].rstrip("_")


def plain(text: str) -> str:
    """Return text without special characters of JSON, YAML, XML, Kconfig, Make, CMake, C and Markdown."""
    return re.sub(r"[^A-Za-z0-9 .+-]", "_", text)[:_LABEL_LENGTH]


def vendor_name(author: str) -> str:
    """Return a CMSIS pack vendor (`RestrictedString`, `CvendorType` in Open-CMSIS-Pack's PACK.xsd 1.7)."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", author.partition("<")[0])[:32].strip("-")
    return words if len(words) > 1 else "microfold"


def why_not_vendor(vendor: str) -> str:
    """Return why a CMSIS pack cannot have this vendor; empty if it can, or if the vendor is not given."""
    if not vendor or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{1,31}", vendor):
        return ""
    return f"the vendor must have 2 to 32 letters, digits and '-', e.g. Acme-Devices; got {vendor!r}"


def why_not_version(version: str) -> str:
    """Return why some ecosystem does not allow this version; empty if all allow it."""
    if re.fullmatch(r"(0|[1-9]\d{0,5})(\.(0|[1-9]\d{0,5})){2}", version):
        return ""
    return f"the package version must have three numbers, e.g. 1.0.0; got {version!r}"


def why_not_author(author: str) -> str:
    """Return why a manifest cannot contain this author; empty for one line of text without quotes."""
    name_and_mail = r"[^\W_][\w .,'-]*( <[\w.+-]+@[\w-]+(\.[\w-]+)+>)?"
    if len(author) <= 80 and re.fullmatch(name_and_mail, author):
        return ""
    return f"the author must be a name, or Name <mail@example.com>; got {author!r}"


def why_not_url(url: str) -> str:
    """Return why this is not a web address; empty if it is one of visible ASCII without quotes, or empty."""
    if not url or re.fullmatch(r"https?://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._~/?#@!&+,;=%-]*)?", url):
        return ""
    return f"the url must start with https:// or http://; got {url!r}"
