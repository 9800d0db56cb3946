"""Damaged and hostile files end in one `MicrofoldError`: no traceback, no hang, no flood of memory."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.frontend.mutations import mutate

MODELS = Path(__file__).parents[1] / "models" / "made"
MEMORY_BYTES = 2 << 30
SECONDS_PER_FILE = 5
FAST_MODELS = (
    "cnn_int8", "cnn_f16", "cnn_aeq_w4a8", "dscnn_bn_int16x8", "zoo_int8", "stream_int8", "gru_unrolled_int8",
    "lt_attn_aeq_w8a8", "tcn1d_int8", "lstm_f32", "ops/conv_int8", "ops/sslice_int8", "ops/pad_int8",
    "ops/tconv_same_int8", "ops/mirror_int8", "ops/split_int8", "control_flow/if_int8",
    "control_flow/while_variable_f32", "control_flow/call_f32",
)  # fmt: skip


def all_models() -> list[Path]:
    """Every model at hand: the repository's, and those of the folder MICROFOLD_MODELS."""
    folders = [MODELS]
    if os.environ.get("MICROFOLD_MODELS"):
        folders.append(Path(os.environ["MICROFOLD_MODELS"]))
    return sorted(path for folder in folders for path in folder.rglob("*.tflite"))


class _Timeout(BaseException):
    """Not an `Exception`, so that nothing on the way can swallow it."""


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    def expire(_signal: int, _frame: object) -> None:
        raise _Timeout

    signal.signal(signal.SIGALRM, expire)


def import_damaged(path: str, seeds: list[int]) -> list[str]:
    """Import damaged versions of a file; returns what went wrong, best of all nothing."""
    from microfold.errors import MicrofoldError
    from microfold.frontend.tflite import import_model
    from microfold.ir.graph import verify

    data = Path(path).read_bytes()
    faults: list[str] = []
    for seed in seeds:
        signal.alarm(SECONDS_PER_FILE)
        try:
            verify(import_model(mutate(data, seed)))
        except MicrofoldError as error:
            if type(error).__name__ == "GraphError":
                faults.append(f"seed {seed}: {error}")
            if len(str(error)) > 1 << 20:
                faults.append(f"seed {seed}: a message of {len(str(error))} characters")
        except _Timeout:
            faults.append(f"seed {seed}: longer than {SECONDS_PER_FILE} s")
        except BaseException:
            faults.append(f"seed {seed}: {traceback.format_exc(limit=-4)}")
        finally:
            signal.alarm(0)
    return faults


@pytest.fixture(scope="module")
def pool():
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), initializer=_limit) as executor:
        yield executor


def _check(pool: ProcessPoolExecutor, path: Path, seeds: list[int]) -> None:
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    faults = pool.submit(import_damaged, str(path), seeds).result()
    assert not faults, f"{path.name}\n" + "\n".join(faults)


@pytest.mark.parametrize("name", FAST_MODELS)
def test_damaged_files_are_refused(pool: ProcessPoolExecutor, name: str) -> None:
    _check(pool, MODELS / f"{name}.tflite", list(range(120)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", all_models(), ids=lambda path: path.stem)
def test_every_model_damaged(pool: ProcessPoolExecutor, path: Path) -> None:
    _check(pool, path, list(range(1000, 1060)))
