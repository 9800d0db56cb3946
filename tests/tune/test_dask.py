"""Tuning by the workers of a Dask scheduler: the same database as by one process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from microfold.errors import InputError
from microfold.tune.database import Database
from microfold.tune.tune import Tuner, Tuning
from microfold.workers.dispatch import Dispatcher
from microfold.workers.executor import DaskExecutor, Executor, ExecutorLost, LocalExecutor
from tests.kernels import graphs
from tests.tune.stubs import StubRunner, slowly, subject

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


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1", "tcp://127.0.0.1:99999", "127.0.0.1:1"])
def test_schedulers_that_are_not_there(address: str) -> None:
    begin = time.monotonic()
    with pytest.raises(InputError, match="must be the address"):
        DaskExecutor(address)
    assert time.monotonic() - begin < 10


CLUSTER = """\
import time
from distributed import LocalCluster

if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    print(cluster.scheduler_address, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_scheduler_that_is_lost_ends_the_work(tmp_path: Path) -> None:
    path = tmp_path / "cluster.py"
    path.write_text(CLUSTER, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        executor = DaskExecutor(process.stdout.readline().strip())
        work = Dispatcher(executor, partial(slowly, 0.1), ["a"])
        work.add(range(10_000))
        results = work.results()
        assert next(results).result is not None
        os.killpg(process.pid, signal.SIGKILL)
        with pytest.raises(ExecutorLost, match="can no longer be reached"):
            list(results)
        executor.close()
    finally:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
