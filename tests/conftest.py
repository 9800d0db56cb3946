"""Options and fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

from tests.golden import Golden

# The same examples in every run; `--hypothesis-profile=default` draws new ones.
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.load_profile("same")

MADE = Path(__file__).resolve().parent / "models" / "made"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew; review them as a diff"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares texts with the files in `golden/` beside the test."""
    return Golden(request.path.parent / "golden", bool(request.config.getoption("--update-golden")))


@pytest.fixture(scope="session")
def made_models() -> Path:
    """The folder of bundled models."""
    return MADE


@pytest.fixture(scope="session", autouse=True)
def strict_host_compiler() -> None:
    """Host runs compile generated C as strictly as its promise says; users' compilers may warn."""
    flags = "-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
    os.environ["CC"] = f"{os.environ.get('CC', 'cc')} {flags}"
