"""Options and fixtures that all tests share."""

from __future__ import annotations

import functools
import gc
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from microfold.host import library
from microfold.kernels.loading import load_all_kernels
from microfold.simulate import toolchain
from microfold.simulate.program import simulator
from microfold.verification import verify
from tests.golden import Golden
from tests.needs import missing, need_tools
from tests.object_cache import ObjectCache
from tests.sampling import is_optimized, runs, turn

# The same examples in every run, however busy the machine; `--hypothesis-profile=default` draws new ones.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.load_profile("same")

# Many tests go through the list of all kernels.
load_all_kernels()

# Workers of pytest-xdist import readline, which sets it: tables would be as wide as that.
os.environ.pop("COLUMNS", None)

MADE = Path(__file__).resolve().parent / "models" / "made"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew; review them as a diff"
    )
    parser.addoption(
        "--part", default="1/1", help="run a part of the tests: 2/3 is the second of three parts"
    )


def pytest_report_header() -> str:
    return f"sampled tests: MICROFOLD_TURN={turn()}"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests as exhaustive ones that other commits run."""
    marks = {mark.name for mark in item.iter_markers()}
    if not runs(item.nodeid, marks):
        item.add_marker(pytest.mark.exhaustive)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the part of what the marks leave. A test is in the same part whatever the others are."""
    part, parts = map(int, str(config.getoption("--part")).split("/"))
    kept = [item for item in items if zlib.crc32(item.nodeid.encode()) % parts == part - 1]
    others = set(items) - set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item in others])
    items[:] = kept


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the garbage collector need not look through them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        need_tools(*mark.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What is not installed, once each, instead of a line for every test that needs it."""
    reasons: list[str] = []
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple):
            reasons.append(report.longrepr[2].removeprefix("Skipped: "))
    lines = missing(reasons)
    if lines:
        terminalreporter.section("not run")
        for line in lines:
            terminalreporter.write_line(line)


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


@pytest.fixture(autouse=True)
def quick_host_builds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick tests run unoptimised code on this machine: the values are the same, and GCC takes a third.

    Slow ones, and those that ask for `optimized_host_code`, run what users do.
    """
    marks = {mark.name for mark in request.node.iter_markers()}
    if marks.isdisjoint(("slow", "exhaustive")) and "optimized_host_code" not in request.fixturenames:
        monkeypatch.setattr(library, "FLAGS", ("-O0",))


@pytest.fixture
def optimized_host_code() -> None:
    """Code on this machine is optimised as users have it."""


@pytest.fixture(autouse=True)
def quick_simulated_builds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify code on simulated cores compiled with -Og: the values are the same, and GCC takes half.

    Some tests (`is_optimized`), exhaustive ones, and those that request `optimized_core_code`, run what
    users have.
    """
    marks = {mark.name for mark in request.node.iter_markers()}
    if (
        "exhaustive" not in marks
        and "optimized_core_code" not in request.fixturenames
        and not is_optimized(request.node.nodeid)
    ):
        monkeypatch.setattr(verify, "simulator", functools.partial(simulator, optimize="-Og"))


@pytest.fixture
def optimized_core_code() -> None:
    """Code on simulated cores is optimised as users have it."""


@pytest.fixture(scope="session", autouse=True)
def kept_objects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Most of the processor time of tests goes into compilers; the same files are compiled once."""
    kept: pytest.Cache | None = getattr(request.config, "cache", None)  # None with `-p no:cacheprovider`
    cache = ObjectCache(kept.mkdir("objects") if kept else tmp_path_factory.mktemp("objects"))
    if not hasattr(request.config, "workerinput"):
        cache.delete_unused()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toolchain, "compile_object", cache.objects(toolchain.compile_object))
        patch.setattr(library, "run_compiler", cache.libraries(library.run_compiler))
        yield
