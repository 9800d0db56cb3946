"""Targets are data: one TOML each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from microfold import resources
from microfold.errors import TargetError
from microfold.timing import OTHERS, Timing
from microfold.toml import read_toml

# Each feature and what it implies.
FEATURES: Mapping[str, tuple[str, ...]] = {
    "thumb1": (),  # Armv6-M: 16-bit Thumb, 32-bit multiply only
    "thumb2": (),  # Armv7-M and later: long multiply, divide, bit fields
    "dsp": ("thumb2",),  # SIMD within a register: SMLAD, SXTB16, SMMLA, SSAT
    "mve": ("dsp",),  # Helium integer vectors
    "mve_fp": ("mve", "fpu"),  # Helium float vectors
    "fpu": (),  # single precision in hardware
}


@dataclass(frozen=True)
class Target:
    """A core that code is generated for.

    Attributes:
        name: e.g. ``cortex-m4``.
        features: closed under implication.
        compiler: the C compiler's executable, e.g. ``arm-none-eabi-gcc``.
        cpu_flags: compiler flags that select the core.
        board: the simulated board that runs it, or empty.
        description: one line for people.
        timing: cycles of its instructions; None if no table is known.
    """

    name: str
    features: frozenset[str]
    compiler: str
    cpu_flags: tuple[str, ...]
    board: str
    description: str
    timing: Timing | None = None

    def has(self, feature: str) -> bool:
        return feature in self.features

    @property
    def half_precision(self) -> bool:
        """Whether it computes float16 faster than float32."""
        return self.has("mve_fp")

    @property
    def channel_block(self) -> int:
        """How many channels of an image are computed at once: the words of a vector."""
        return 4 if self.has("mve") else 1


def close_features(features: Mapping[str, object] | list[str], where: str) -> frozenset[str]:
    """Features with all that they imply.

    Raises:
        TargetError: a feature is unknown.
    """
    closed: set[str] = set()
    pending = list(features)
    while pending:
        feature = pending.pop()
        if feature not in FEATURES:
            raise TargetError(f"{where}: unknown feature {feature!r}; known are {', '.join(FEATURES)}")
        if feature not in closed:
            closed.add(feature)
            pending += FEATURES[feature]
    return frozenset(closed)


def available() -> list[str]:
    """Names of the targets that ship with microfold."""
    return sorted(path.stem for path in resources.target_dir().glob("*.toml"))


def load(name_or_path: str) -> Target:
    """A target by its name, or from a TOML file of the user's.

    Raises:
        TargetError: unknown name, unreadable file, unknown key or feature.
    """
    if name_or_path.endswith(".toml"):
        path = Path(name_or_path)
        if not path.is_file():
            raise TargetError(f"a target file must exist; {name_or_path} does not")
    else:
        path = resources.target_dir() / f"{name_or_path}.toml"
        if name_or_path not in available():
            raise TargetError(
                f"unknown target {name_or_path!r}; known are {', '.join(available())}; "
                "a path to a .toml gives your own"
            )
    try:
        table = read_toml(path)
    except (ValueError, OSError) as error:
        raise TargetError(f"{path.name} is not a readable TOML file: {error}") from None
    return _from_table(table, path)


def _from_table(table: dict[str, Any], path: Path) -> Target:
    keys: dict[str, type] = {
        "name": str,
        "description": str,
        "features": list,
        "compiler": str,
        "cpu_flags": list,
        "board": str,
        "timing": dict,
    }
    for key, value in table.items():
        if key not in keys:
            raise TargetError(f"{path.name}: unknown key {key!r}; known are {', '.join(keys)}")
        if not isinstance(value, keys[key]):
            raise TargetError(f"{path.name}: {key} must be a {keys[key].__name__}; it is {value!r}")
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            raise TargetError(f"{path.name}: {key} must be a list of strings; it is {value!r}")
    if "features" not in table:
        raise TargetError(f"{path.name}: a target needs a list of features (it may be empty)")
    return Target(
        name=table.get("name", path.stem),
        features=close_features(table["features"], path.name),
        compiler=table.get("compiler", "cc"),
        cpu_flags=tuple(table.get("cpu_flags", ())),
        board=table.get("board", ""),
        description=table.get("description", ""),
        timing=_timing(table["timing"], path) if "timing" in table else None,
    )


def _timing(table: dict[str, Any], path: Path) -> Timing:
    table = dict(table)
    factors = table.pop("cycles_per_instruction", {})
    known = {field.name: str if field.name == "source" else int for field in fields(Timing)}
    for key, value in table.items():
        if key not in known:
            raise TargetError(f"{path.name}: unknown key timing.{key}; known are {', '.join(known)}")
        if type(value) is not known[key] or (isinstance(value, int) and value < 0):
            raise TargetError(
                f"{path.name}: timing.{key} must be {'a text' if key == 'source' else 'a number of cycles'}; "
                f"it is {value!r}"
            )
    if "source" not in table:
        raise TargetError(f"{path.name}: timing needs its source")
    return Timing(**table, cycles_per_instruction=_cycles_per_instruction(factors, path))


def _cycles_per_instruction(table: Any, path: Path) -> Mapping[str, float]:
    where = f"{path.name}: timing.cycles_per_instruction"
    if not isinstance(table, dict):
        raise TargetError(f"{where} must be a table; it is {table!r}")
    factors: dict[str, float] = {}
    for key, value in table.items():  # type: ignore[reportUnknownVariableType]
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise TargetError(f"{where}.{key} must be a positive number; it is {value!r}")
        factors[str(key)] = float(value)  # type: ignore[reportUnknownArgumentType]
    if factors and OTHERS not in factors:
        raise TargetError(f"{where} needs {OTHERS}, for operators that it does not name")
    return factors
