"""Writing output files: all or nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from microfold.errors import InputError


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write text files into a folder, which is made if needed.

    Every file is complete under a temporary name before the first gets its own.

    Raises:
        InputError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".microfold-") as staging:
            for name, text in files.items():
                (Path(staging) / name).write_text(text, encoding="utf-8", newline="\n")
            for name in files:
                os.replace(Path(staging) / name, folder / name)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
