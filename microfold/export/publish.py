"""Writer of a package to disk: completely or not at all, without touching foreign files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from microfold.errors import InputError
from microfold.support.files import is_inside, read_file, write_files

# List of the files of an export, in the format of `sha256sum`.
LISTING = "microfold.sha256"
_SHOWN = 8


def publish(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write a package to a folder: all files, or none.

    Files of an earlier export are replaced, or removed if the package no longer contains them. Other files
    stay.

    Raises:
        InputError: a file would be replaced that is not from an export, or was changed since; or the folder
            cannot be written.
    """
    content = {name: data.encode("utf-8") if isinstance(data, str) else data for name, data in files.items()}
    listed = _read_listing(folder / LISTING)
    obsolete = [name for name in listed if name not in content and (folder / name).is_file()]
    foreign = [
        f"{name} {'was changed since it was exported' if name in listed else 'is not from an export'}"
        for name in [*content, *obsolete]
        if _in_the_way(folder / name, content.get(name), listed.get(name))
    ]
    if (folder / LISTING).is_file() and not listed:
        foreign.append(f"{LISTING} is not from an export")
    if foreign:
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        raise InputError(
            f"an export may replace only unchanged files of an earlier export; in {folder} "
            f"{', '.join(foreign[:_SHOWN])}{more}: choose another --output, or move these files"
        )
    listing = "".join(f"{_digest(data)}  {name}\n" for name, data in sorted(content.items()))
    write_files(folder, {**content, LISTING: listing}, obsolete)


def _read_listing(path: Path) -> dict[str, str]:
    """Return names and digests of the files of an earlier export; empty if none is found."""
    if not path.is_file():
        return {}
    lines = read_file(path).decode("utf-8", errors="replace").splitlines()
    found = [re.fullmatch(r"([0-9a-f]{64})  (.+)", line) for line in lines]
    return {match[2]: match[1] for match in found if match is not None and is_inside(match[2])}


def _in_the_way(path: Path, new: bytes | None, digest: str | None) -> bool:
    """Return whether a foreign file would be lost. `write_files` rejects paths that are not files."""
    if not path.is_file():
        return False
    old = read_file(path)
    return old != new and _digest(old) != digest


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
