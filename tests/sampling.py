"""Sampling: a run of the tests makes a part of some sweeps, chosen by the commit; `.ci/run` makes the rest.

Tests that a run leaves out are exhaustive ones. `.ci/run` makes a part of those for every commit, too.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

# Of the slow tests, a run makes one of this many.
SLOW_PARTS = 4
# Of the tests on simulated cores, one of this many verifies code as users have it, optimised.
OPTIMIZED_PARTS = 4
# Folders whose slow tests run for every commit: comparisons with oracles, proofs, independent checkers.
_ALWAYS = ("tests/analysis/", "tests/frontend/", "tests/plan/", "tests/verification/")
# Cost data, and what the measured figures follow from.
_FIGURES = ("microfold/kernels", "microfold/simulate", "templates", "targets", "tests/kernels/calibration")
_ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def turn() -> int:
    """Return the number that chooses the samples: $MICROFOLD_TURN, else a number of the commit, else 0."""
    given = os.environ.get("MICROFOLD_TURN", "")
    if given:
        if not given.isdecimal():
            raise pytest.UsageError(f"MICROFOLD_TURN must be a whole number; it is {given!r}")
        return int(given)
    done = _git("rev-parse", "--short=7", "HEAD")
    return int(done.stdout, 16) if done.returncode == 0 else 0


def runs(name: str, marks: Collection[str]) -> bool:
    """Return whether a run makes the test, as far as its marks decide.

    Args:
        name: pytest's name of the test, which begins with its file.
    """
    if "figures" in marks:
        return _are_figures_changed()
    whole = "slow" not in marks or "always" in marks or name.startswith(_ALWAYS)
    return whole or (zlib.crc32(name.encode()) + turn()) % SLOW_PARTS == 0


def is_optimized(name: str) -> bool:
    """Return whether a test on simulated cores, if it runs, verifies code as users have it."""
    return (zlib.crc32(name.encode()) + turn() // 64) % OPTIMIZED_PARTS == 0


@functools.cache
def _are_figures_changed() -> bool:
    """Return whether the last commit or the working tree changes what tests marked `figures` check.

    The last commit is compared with its first parent, so a merge counts as all that it brings. In a clone
    without that parent, nothing counts as changed.
    """
    return _git("diff", "--quiet", "HEAD~1", "--", *_FIGURES).returncode == 1


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(_ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", "git is not on PATH")


def quick(items: Iterable[Any], every: int = sys.maxsize) -> list[Any]:
    """Return values of one parameter. The first, and every so many after it, stand for all in quick runs.

    The others are slow. Items may be what `sampled` gives.
    """
    return [_slow(item) if index % every else item for index, item in enumerate(items)]


def _slow(item: Any) -> Any:
    if hasattr(item, "marks"):  # a `pytest.param`
        return pytest.param(*item.values, marks=[*item.marks, pytest.mark.slow])
    return pytest.param(item, marks=pytest.mark.slow)


def sampled(items: Iterable[Any], every: int = sys.maxsize) -> list[Any]:
    """Return values of one parameter. A run makes every so many; the others are exhaustive tests.

    Args:
        every: by default, a run makes a single value.
    """
    return sampled_rows(((item,) for item in items), every)


def sampled_rows(rows: Iterable[Iterable[Any]], every: int = sys.maxsize) -> list[Any]:
    """Return the same for several parameters.

    The number should share no divisor with the length of an inner list.
    """
    rows = list(rows)
    every = max(1, min(every, len(rows)))
    # Not in step with the turns of slow tests: every value meets its turn.
    number = turn() // SLOW_PARTS
    return [
        pytest.param(*row, marks=pytest.mark.exhaustive)
        if index % every != number % every
        else pytest.param(*row)
        for index, row in enumerate(rows)
    ]
