"""Figures of bundled models that must not grow: files that hold them, by core and model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from microfold.simulate.toolchain import ARM_COMPILER
from microfold.support.toml import read_toml
from microfold.support.tools import run_tool

_HEAD_ROOM = 0.02


class Recorded(Struct, frozen=True):
    """A file of figures.

    Attributes:
        header: its first line.
        figure: what is counted.
        other_compiler: by how much figures may be larger where the compiler is another one than that which
            they are from: it chooses other instructions.
    """

    file: Path
    header: str
    figure: str
    other_compiler: float

    def larger(self, core: str, found: Mapping[str, int], *, update: bool) -> list[str]:
        """What is said of the models whose figures are too large.

        Args:
            core: the file's table, a core with or without a level.
            found: by model.
            update: first lower the file's figures to these, and add those that are missing.
        """
        bounds: dict[str, Any] = read_toml(self.file) if self.file.is_file() else {}
        compiler = _compiler()
        recorded = bounds.pop("compiler", compiler)
        known: dict[str, int] = bounds.setdefault(core, {})
        if update:
            known |= {model: min(n, known.get(model, n)) for model, n in found.items()}
            self._save(compiler, bounds)
        room = 1 + (_HEAD_ROOM if recorded == compiler else self.other_compiler)
        return [
            f"{model} on {core}: at most {limit:,} {self.figure} are allowed; there are {count:,}"
            for model, count in found.items()
            if count > (limit := int(known.get(model, 0) * room))
        ]

    def _save(self, compiler: str, bounds: Mapping[str, Mapping[str, int]]) -> None:
        text = f'{self.header}\ncompiler = "{compiler}"\n'
        for core, models in bounds.items():
            text += f"\n[{core}]\n" + "".join(f"{model} = {n:_}\n" for model, n in sorted(models.items()))
        self.file.write_text(text, encoding="utf-8")


def _compiler() -> str:
    done = run_tool([ARM_COMPILER, "-dumpfullversion"], Path.cwd(), 10.0, "asking for its version")
    return done.stdout.strip()
