"""Golden files: expected texts kept beside the tests, written anew with `pytest --update-golden`."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class Golden(Struct, frozen=True):
    """Compares texts with files.

    Attributes:
        folder: where the files are.
        update: write them instead.
        tests: which ones to run for that.
    """

    folder: Path
    update: bool
    tests: str = ""

    def check(self, name: str, text: str) -> None:
        """The text must be that of the file."""
        path = self.folder / name
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        command = " ".join(filter(None, ("pytest", self.tests, "--update-golden")))
        assert path.is_file(), f"{path} is missing; run `{command}`"
        expected = path.read_text(encoding="utf-8")
        assert text == expected, f"{path.name} differs; run `{command}` and review the diff"
