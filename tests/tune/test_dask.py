"""Tuning by the workers of a Dask scheduler: the same database as by one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from microfold.errors import InputError
from microfold.tune.database import Database
from microfold.tune.tune import Tuner, Tuning
from microfold.workers.executor import DaskExecutor, Executor, LocalExecutor
from tests.kernels import graphs
from tests.tune.stubs import StubRunner, subject

distributed: Any = pytest.importorskip("distributed", reason="dask.distributed is not installed")

pytestmark = pytest.mark.slow
MODEL = subject(graphs.conv2d_graph(8, 8, 8, 8, padding=((1, 1), (1, 1))))


def tune(path: Path, executor: Executor, runner: StubRunner) -> Tuning:
    lanes = [f"worker {number}" for number in range(executor.lanes)]
    try:
        with Database(path, create=True) as database:
            return Tuner(executor, runner, lanes, database).tune(MODEL)
    finally:
        executor.close()


def text(path: Path) -> str:
    with Database(path) as database:
        return database.export()


@pytest.fixture
def cluster() -> Any:
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None
    ) as found:
        yield found


def test_three_workers_of_which_one_dies(tmp_path: Path, cluster: Any) -> None:
    alone = tune(tmp_path / "one.db", LocalExecutor(1), StubRunner())
    executor = DaskExecutor(cluster.scheduler_address)
    assert executor.lanes == 3
    mark = tmp_path / "died"
    together = tune(tmp_path / "three.db", executor, StubRunner(die_once=mark))
    assert mark.exists()
    assert together == alone
    assert text(tmp_path / "one.db") == text(tmp_path / "three.db")


def test_schedulers_that_are_not_there() -> None:
    with pytest.raises(InputError, match="must be the address"):
        DaskExecutor("not an address")
