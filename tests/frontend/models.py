"""The models that tests run over."""

from __future__ import annotations

import os
from pathlib import Path

MADE = Path(__file__).resolve().parents[1] / "models" / "made"
GOLDENS = Path(__file__).resolve().parents[1] / "goldens"


def made() -> list[str]:
    """Names of the repository's models: paths below `MADE` without suffix."""
    return sorted(str(path.relative_to(MADE).with_suffix("")) for path in MADE.rglob("*.tflite"))


def elsewhere() -> list[Path]:
    """Models of the folder that MICROFOLD_MODELS names."""
    folder = os.environ.get("MICROFOLD_MODELS")
    return sorted(Path(folder).rglob("*.tflite")) if folder else []
