"""What generated files say of where they come from, and that they belong together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from microfold import __version__
from microfold.program import Program
from microfold.support.frozen import frozen

# Of what firmware uses: functions, macros and types of the header. Counted up where a change can break it.
API_VERSION = 1

# Stands for the identity of a build while its files are made: as long, and nothing that C has.
_PLACEHOLDER = "0xMF_BUILDu"


def facts(program: Program) -> dict[str, object]:
    """What the templates print of it."""
    return {
        "version": __version__,
        "api_version": API_VERSION,
        "license": program.options.license,
        "origin": program.origin,
        "build_id": _PLACEHOLDER,
    }


@frozen
class Build:
    """All files of one build.

    Attributes:
        id: C integer constant that all of them name; files of different builds differ in it.
        files: name to text.
        blob: the constants, where they are in a file of their own.
    """

    id: str
    files: Mapping[str, str]
    blob: bytes | None = None


def identify(files: Mapping[str, str]) -> Build:
    """The files with the build's identity in place of the placeholder: the beginning of their SHA-256."""
    digest = hashlib.sha256("".join(f"{name}\0{text}\0" for name, text in sorted(files.items())).encode())
    identity = f"0x{digest.hexdigest()[:8]}u"
    return Build(identity, {name: text.replace(_PLACEHOLDER, identity) for name, text in files.items()})
