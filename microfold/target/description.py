"""Target descriptions, read from one TOML file per target."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from microfold.errors import InputError, TargetError
from microfold.support import resources
from microfold.support.frozen import frozen
from microfold.support.toml import read_toml
from microfold.target.memories import Memory, read_memories
from microfold.target.pipeline import Pipeline
from microfold.target.pipeline_table import read_pipeline
from microfold.target.timing import Timing

# Features, each with the features that it implies.
FEATURES: Mapping[str, tuple[str, ...]] = {
    "thumb1": (),  # Armv6-M: 16-bit Thumb, 32-bit multiply only
    "thumb2": (),  # Armv7-M and later: long multiply, divide, bit fields
    "dsp": ("thumb2",),  # SIMD within a register: SMLAD, SXTB16, SMMLA, SSAT
    "mve": ("dsp",),  # Helium integer vectors
    "mve_fp": ("mve", "fpu"),  # Helium float vectors
    "fpu": (),  # single precision in hardware
    "late_loads": ("thumb2",),  # other instructions should separate a load from the use of its result
    "dual_issue": ("late_loads",),  # two instructions of 32 bits per cycle; at most one is a load
}

# Maximum cycles of an instruction, far above the real ones of a core without wait states.
MOST_CYCLES = 1000


@frozen
class Target:
    """Core for which code is generated.

    Attributes:
        name: name of the target, e.g. ``cortex-m4``.
        features: features of the core, closed under implication.
        compiler: executable of the C compiler, e.g. ``arm-none-eabi-gcc``.
        cpu_flags: compiler flags that select the core.
        board: simulated board with this core, or empty.
        timing: cycles of instructions; None if unknown.
        pipeline: pipeline model of a core whose instructions overlap; None if unknown.
        memories: memories for contexts, arenas, constants and code; empty: the firmware decides.
    """

    name: str
    features: frozenset[str]
    compiler: str
    cpu_flags: tuple[str, ...]
    board: str
    description: str
    timing: Timing | None = None
    pipeline: Pipeline | None = None
    memories: tuple[Memory, ...] = ()

    def has(self, feature: str) -> bool:
        """Return whether the core has a feature."""
        return feature in self.features

    def __repr__(self) -> str:
        features = ", ".join(sorted(self.features))
        return f"<Target {self.name}: {features or 'no features'}>"

    def _repr_html_(self) -> str:
        from microfold.support.notebook import html_table  # only notebooks need it

        rows = [
            ("description", self.description),
            ("features", ", ".join(sorted(self.features))),
            ("compiler", " ".join([self.compiler, *self.cpu_flags])),
            ("simulated board", self.board or "none"),
            ("memories", ", ".join(memory.name for memory in self.memories) or "chosen by the firmware"),
        ]
        return html_table(f"target {self.name}", ("property", "value"), rows)

    @property
    def cycle_model(self) -> Timing | Pipeline | None:
        """Model that converts executed instructions to cycles; None if the core has none."""
        return self.pipeline or self.timing

    @property
    def half_precision(self) -> bool:
        """Whether the core computes float16 faster than float32."""
        return self.has("mve_fp")

    @property
    def channel_block(self) -> int:
        """Number of channels that kernels compute at once: the words of a vector."""
        return 4 if self.has("mve") else 1


def close_features(features: Mapping[str, object] | list[str], where: str) -> frozenset[str]:
    """Return the features with all features that they imply.

    Raises:
        TargetError: a feature is unknown, or two exclude each other.
    """
    closed: set[str] = set()
    pending = list(features)
    while pending:
        feature = pending.pop()
        if feature not in FEATURES:
            raise TargetError(f"{where}: unknown feature {_shown(feature)}; known are {', '.join(FEATURES)}")
        if feature not in closed:
            closed.add(feature)
            pending += FEATURES[feature]
    others = sorted(closed - {"thumb1"})
    if "thumb1" in closed and others:
        raise TargetError(
            f"{where}: thumb1 (Armv6-M) must be the only feature; they are {', '.join(sorted(closed))}"
        )
    return frozenset(closed)


def available() -> list[str]:
    """Return the names of the built-in targets."""
    return sorted(path.stem for path in resources.target_dir().glob("*.toml"))


def load(name_or_path: str) -> Target:
    """Load a target by name, or from a TOML file of the user.

    Raises:
        TargetError: unknown name, unreadable file, unknown key or feature, or invalid value.
    """
    if name_or_path.endswith(".toml"):
        path = Path(name_or_path)
        if not os.path.exists(path):
            raise TargetError(f"a target file must exist; {name_or_path!r} does not")
    else:
        path = resources.target_dir() / f"{name_or_path}.toml"
        if name_or_path not in available():
            raise TargetError(
                f"unknown target {name_or_path!r}; known are {', '.join(available())}, "
                "or the path of a .toml file"
            )
    try:
        table = read_toml(path)
    except InputError as error:
        raise TargetError(str(error)) from None
    except ValueError as error:
        raise TargetError(f"{path.name} is not a readable TOML file: {error}") from None
    return _from_table(table, path)


def _from_table(table: dict[str, Any], path: Path) -> Target:
    for key, value in table.items():
        if key not in _KEYS:
            raise TargetError(f"{path.name}: unknown key {_shown(key)}; known are {', '.join(_KEYS)}")
        kind, what = _KEYS[key]
        if not isinstance(value, kind):
            raise TargetError(f"{path.name}: {key} must be {what}; it is {_shown(value)}")
        _check_texts(key, value, path)
    if "features" not in table:
        raise TargetError(f"{path.name}: a target must have a list of features (which may be empty)")
    name = table.get("name", path.stem)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", name):
        raise TargetError(
            f"{path.name}: a name must have 1 to 64 letters, digits, '.', '_', '+', '-', and begin with a "
            f"letter or digit; it is {_shown(name)}"
        )
    features = close_features(table["features"], path.name)
    compiler = table.get("compiler", "cc")
    if not compiler:
        raise TargetError(f"{path.name}: compiler must name an executable; it is empty")
    return Target(
        name=name,
        features=features,
        compiler=compiler,
        cpu_flags=tuple(table.get("cpu_flags", ())),
        board=table.get("board", ""),
        description=table.get("description", ""),
        timing=_timing(table["timing"], path) if "timing" in table else None,
        pipeline=_pipeline(table["pipeline"], path) if "pipeline" in table else None,
        memories=read_memories(table.get("memory", {}), path.name),
    )


# Type of each key's value, and its name in messages.
_KEYS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "name": (str, "a text"),
    "description": (str, "a text"),
    "features": (list, "a list of strings"),
    "compiler": (str, "a text"),
    "cpu_flags": (list, "a list of strings"),
    "board": (str, "a text"),
    "timing": ((dict, str), "a table, or the name of the target that has it"),
    "pipeline": ((dict, str), "a table, or the name of the target that has it"),
    "memory": (dict, "tables, [memory.NAME]"),
}


def _check_texts(key: str, value: Any, path: Path) -> None:
    """Check that texts are printable, because they go into command lines, C comments and tables."""
    for text in value if isinstance(value, list) else [value] if isinstance(value, str) else []:  # type: ignore[reportUnknownVariableType]
        if not isinstance(text, str):
            raise TargetError(f"{path.name}: {key} must be {_KEYS[key][1]}; it is {_shown(value)}")
        if not text.isprintable():
            raise TargetError(f"{path.name}: {key} must be printable, on one line; it is {_shown(text)}")


def _shown(value: Any) -> str:
    return reprlib.repr(value)


def _timing(table: dict[str, Any] | str, path: Path) -> Timing:
    if isinstance(table, str):
        return _shared(table, "timing", path)
    known = {field.name: str if field.name == "source" else int for field in fields(Timing)}
    for key, value in table.items():
        if key not in known:
            raise TargetError(f"{path.name}: unknown key timing.{key}; known are {', '.join(known)}")
        if type(value) is not known[key] or (isinstance(value, int) and not 0 <= value <= MOST_CYCLES):
            kinds = {"source": "a text", "error": f"percent, 0 to {MOST_CYCLES}"}
            kind = kinds.get(key, f"a number of cycles, 0 to {MOST_CYCLES}")
            raise TargetError(f"{path.name}: timing.{key} must be {kind}; it is {_shown(value)}")
    _check_texts("timing.source", table.get("source"), path)
    if "source" not in table:
        raise TargetError(f"{path.name}: timing must have a source")
    return Timing(**table)


def _pipeline(table: dict[str, Any] | str, path: Path) -> Pipeline:
    return _shared(table, "pipeline", path) if isinstance(table, str) else read_pipeline(table, path.name)


def _shared(name: str, key: str, path: Path) -> Any:
    found = getattr(load(name), key) if name in available() and name != path.stem else None
    if found is None:
        raise TargetError(
            f"{path.name}: {key} must name another target that has one; it is {_shown(name)}; "
            f"targets are {', '.join(available())}"
        )
    return found
