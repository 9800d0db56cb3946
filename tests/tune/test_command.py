"""The command, on a simulated core."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_passes import CNN
from tests.command_line import refuse, succeed


@pytest.mark.slow
@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
def test_a_simulated_core(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    words = ("-t", "cortex-m7", "--optimize", "speed", "--database", path)
    (tuning,) = json.loads(succeed("tune", CNN, *words, "--workers", "1", "--candidates", "2", "--json"))
    assert tuning["total_after"] <= tuning["total_before"]
    assert tuning["left_out"] == []
    assert all(layer["cycles_after"] <= layer["cycles_before"] for layer in tuning["layers"])
    report = json.loads(succeed("build", CNN, *words, "-o", tmp_path, "--json"))
    assert report["measured_on"] == "simulated"
    assert [layer["measured_cycles"] for layer in report["layers"]] == [
        layer["cycles_after"] for layer in tuning["layers"]
    ]
    assert "measured on simulated: 5 of 5 layers" in succeed("build", CNN, *words, "-o", tmp_path)
    lines = succeed("tune", "--export", "--database", path).splitlines()
    assert lines[0].split("\t")[:2] == ["target", "board"]
    assert len([*filter(None, lines)]) == len({*filter(None, lines)}) > len(tuning["layers"])


def test_what_is_asked_for_must_make_sense(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    assert "requires a model" in refuse("tune", "--database", path)
    assert "either the model or --export" in refuse("tune", CNN, "--export", "--database", path)
    assert "does not exist" in refuse("tune", "--export", "--database", path)
    assert "a cycle model of the core" in refuse("tune", CNN, "-t", "host", "--database", path)
    path.write_bytes(b"nothing" * 1000)
    assert "delete it and measure again" in refuse("tune", CNN, "--database", path)
