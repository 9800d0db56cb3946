"""The benchmark suite's figures and tables, without running anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from microfold import target
from microfold.errors import InputError
from microfold.verification.benchmark.suite import (
    FIGURES,
    compare,
    load_peers,
    models_with_peers,
    targets_with_peers,
)

REPORT = {
    "target": "cortex-m4",
    "model": "kws_int8",
    "instructions": 3_000_000,
    "estimated_cycles": None,
    "ram": {"arena": 9_568},
    "flash": {"code": 6_364},
}


def test_peers_name_targets_that_exist() -> None:
    peers = load_peers()
    assert set(targets_with_peers(peers)) <= set(target.available())
    for peer in peers:
        assert set(peer.figures) == set(FIGURES)
        for targets in peer.figures.values():
            assert set(targets) <= set(target.available())


def test_rows_of_a_report() -> None:
    rows = {row.figure: row for row in compare(REPORT, load_peers())}
    assert rows["instructions"].ours == 3_000_000
    assert rows["instructions"].peers == {"TFLM + CMSIS-NN": 7_212_792}
    assert rows["arena"].peers == {"TFLM + CMSIS-NN": 22_820}
    assert "estimated_cycles" not in rows  # not measured


def test_models_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("inner/kws_int8.tflite", "vww_int8.tflite", "other.tflite"):
        (tmp_path / name).touch()
    found = models_with_peers(tmp_path, load_peers())
    assert [path.stem for path in found] == ["vww_int8", "kws_int8"]


def test_a_folder_without_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must have one of the models vww_int8"):
        models_with_peers(tmp_path, load_peers())
    with pytest.raises(InputError, match="must be a folder"):
        models_with_peers(tmp_path / "nothing", load_peers())
