"""Benchmark suite: figures for a folder of models on all cores, next to figures of other runtimes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from microfold.errors import InputError
from microfold.support.toml import read_toml

# Compared figures in the order of columns, each with its path in a bench report.
FIGURES: Mapping[str, tuple[str, ...]] = {
    "instructions": ("instructions",),
    "estimated_cycles": ("estimated_cycles",),
    "arena": ("ram", "arena"),
    "code": ("flash", "code"),
}


class Peer(Struct, frozen=True):
    """Figures of another runtime.

    Attributes:
        figures: values by figure, target and model.
    """

    name: str
    figures: Mapping[str, Mapping[str, Mapping[str, int]]]

    def figure(self, figure: str, target: str, model: str) -> int | None:
        return self.figures.get(figure, {}).get(target, {}).get(model)


class BenchmarkRow(Struct, frozen=True):
    """Figure of one model on one target.

    Attributes:
        ours: value for microfold.
        peers: known values of peers, by name.
    """

    target: str
    model: str
    figure: str
    ours: int
    peers: Mapping[str, int]


def load_peers() -> tuple[Peer, ...]:
    """Return the figures of other runtimes that ship with microfold."""
    return tuple(
        Peer(table["name"], {figure: table.get(figure, {}) for figure in FIGURES})
        for table in read_toml(Path(__file__).parent / "peers.toml")["peers"].values()
    )


def models_with_peers(folder: Path, peers: Sequence[Peer]) -> list[Path]:
    """Return the models in a folder and its subfolders that have figures of a peer, in the peers' order.

    Raises:
        InputError: the folder has no such models.
    """
    names = dict.fromkeys(
        model
        for peer in peers
        for targets in peer.figures.values()
        for models in targets.values()
        for model in models
    )
    if not folder.is_dir():
        raise InputError(f"the suite must be a folder of models; {folder} is not a folder")
    found = {path.stem: path for path in sorted(folder.rglob("*.tflite"), reverse=True)}
    chosen = [found[name] for name in names if name in found]
    if not chosen:
        raise InputError(
            f"the suite must have one of the models {', '.join(names)} (.tflite); {folder} has none"
        )
    return chosen


def targets_with_peers(peers: Sequence[Peer]) -> list[str]:
    """Return the targets for which a peer has instruction counts."""
    return list(dict.fromkeys(target for peer in peers for target in peer.figures["instructions"]))


def compare(report: Mapping[str, Any], peers: Sequence[Peer]) -> Iterator[BenchmarkRow]:
    """Yield the rows of one bench report."""
    target, model = report["target"], report["model"]
    for figure, path in FIGURES.items():
        ours: Any = report
        for key in path:
            ours = ours[key]
        known = {peer.name: peer.figure(figure, target, model) for peer in peers}
        theirs = {name: value for name, value in known.items() if value is not None}
        if ours is not None and theirs:
            yield BenchmarkRow(target, model, figure, ours, theirs)
