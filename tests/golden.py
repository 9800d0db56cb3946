"""Golden files: expected texts kept beside the tests, written anew with `pytest --update-golden`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Golden:
    """Compares texts with files.

    Attributes:
        folder: where the files are.
        update: write them instead.
    """

    folder: Path
    update: bool

    def check(self, name: str, text: str) -> None:
        """The text must be that of the file."""
        path = self.folder / name
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.is_file(), f"{path} is missing; run pytest with --update-golden"
        expected = path.read_text(encoding="utf-8")
        assert text == expected, f"{path.name} differs; run pytest with --update-golden and review the diff"
