"""Provenance of generated files, and the build id that they share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from msgspec import Struct

from microfold import __version__
from microfold.program import Program

# Version of the API for firmware: functions, macros and types of the header. A change that can break firmware
# increments it.
API_VERSION = 1

# Placeholder of the build id while the files are rendered. It has the same length, and is not valid C.
_PLACEHOLDER = "0xMF_BUILDu"


def facts(program: Program) -> dict[str, object]:
    """Return the template variables of a program's provenance."""
    return {
        "version": __version__,
        "api_version": API_VERSION,
        "license": program.options.license,
        "origin": program.origin,
        "build_id": _PLACEHOLDER,
    }


class Build(Struct, frozen=True):
    """All files of one build.

    Attributes:
        id: C integer constant in all files of the build; it differs between builds.
        files: name to text.
        blob: constants, if they are in a separate binary file.
    """

    id: str
    files: Mapping[str, str]
    blob: bytes | None = None


def identify(files: Mapping[str, str]) -> Build:
    """Return the files with the build id, the start of their SHA-256, in place of the placeholder."""
    digest = hashlib.sha256("".join(f"{name}\0{text}\0" for name, text in sorted(files.items())).encode())
    identity = f"0x{digest.hexdigest()[:8]}u"
    return Build(identity, {name: text.replace(_PLACEHOLDER, identity) for name, text in files.items()})
