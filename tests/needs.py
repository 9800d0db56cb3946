"""What a test needs from outside: missing, it fails in CI and is skipped, with the reason, elsewhere."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

CROSS_TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm")


def need_tools(*tools: str) -> None:
    """Every one of these commands must be on the PATH."""
    _need([tool for tool in tools if shutil.which(tool) is None], "not on the PATH")


def need_modules(*modules: str) -> None:
    """Every one of these Python modules must be importable."""
    _need([m for m in modules if importlib.util.find_spec(m) is None], "not installed")


def _need(missing: list[str], what: str) -> None:
    if not missing:
        return
    reason = f"{what}: {', '.join(missing)}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
