"""Target descriptions, read from one TOML file per target."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType

from microfold.errors import InputError, TargetError
from microfold.support import resources
from microfold.support.decode import decode, refuse, rule, shown
from microfold.support.toml import read_toml
from microfold.target.memories import MemoryName, MemoryTable, TargetMemory, read_memories
from microfold.target.pipeline import Pipeline
from microfold.target.pipeline_table import read_pipeline
from microfold.target.timing import CoreTiming

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

# Rules of values in messages.
_NAME = "1 to 64 letters, digits, '.', '_', '+', '-', and begin with a letter or digit"
_TABLE = "a table, or the name of the target that has it"


class Target(Struct, frozen=True):
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
    timing: CoreTiming | None = None
    pipeline: Pipeline | None = None
    memories: tuple[TargetMemory, ...] = ()

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
    def cycle_model(self) -> CoreTiming | Pipeline | None:
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
            raise TargetError(
                f"{where}: unknown feature {shown(feature)}; known are {', '.join(FEATURES)}, which kernels "
                "for Arm cores require; for another core, such as RISC-V, use features = []: the portable "
                "kernels run on it"
            )
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


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    """Keys of a target's file, see `Target`."""

    features: Annotated[tuple[str, ...], rule("a list of features, which may be empty")]
    name: Annotated[str, rule(_NAME, pattern=r"\A[A-Za-z0-9][A-Za-z0-9._+-]{0,63}\Z")] | UnsetType = UNSET
    description: str = ""
    compiler: Annotated[str, rule("the name of an executable", min_length=1)] = "cc"
    cpu_flags: Annotated[tuple[str, ...], rule("a list of texts")] = ()
    board: str = ""
    timing: Annotated[CoreTiming | str | UnsetType, rule(_TABLE)] = UNSET
    pipeline: Annotated[dict[str, Any] | str | UnsetType, rule(_TABLE)] = UNSET
    memory: Annotated[
        dict[MemoryName, Annotated[MemoryTable, rule("a table")]], rule("tables, [memory.NAME]")
    ] = {}


def _from_table(table: dict[str, Any], path: Path) -> Target:
    try:
        file = decode(_File, table, path.name, root="")
        memories, faults = read_memories(file.memory)
        refuse(path.name, [*_unprintable(file), *faults])
    except InputError as error:
        raise TargetError(str(error)) from None
    name = path.stem if file.name is UNSET else file.name
    return Target(
        name=name,
        features=close_features([*file.features], path.name),
        compiler=file.compiler,
        cpu_flags=file.cpu_flags,
        board=file.board,
        description=file.description,
        timing=_shared(file.timing, "timing", path) if isinstance(file.timing, str) else file.timing or None,
        pipeline=_pipeline(file.pipeline, path) if file.pipeline is not UNSET else None,
        memories=memories,
    )


def _unprintable(file: _File) -> Iterator[str]:
    """Yield the faults of texts, because they go into command lines, C comments and tables."""
    source = file.timing.source if isinstance(file.timing, CoreTiming) else ""
    texts = [("description", file.description), ("compiler", file.compiler), ("board", file.board)]
    texts += [("cpu_flags", flag) for flag in file.cpu_flags] + [("timing.source", source)]
    for key, text in texts:
        if not text.isprintable():
            yield f"{key} must be printable, on one line; it is {shown(text)}"


def _pipeline(table: dict[str, Any] | str, path: Path) -> Pipeline:
    return _shared(table, "pipeline", path) if isinstance(table, str) else read_pipeline(table, path.name)


def _shared(name: str, key: str, path: Path) -> Any:
    found = getattr(load(name), key) if name in available() and name != path.stem else None
    if found is None:
        raise TargetError(
            f"{path.name}: {key} must name another target that has one; it is {shown(name)}; "
            f"targets are {', '.join(available())}"
        )
    return found
