"""Rows where whole tensors would do as well: only where they pay, and found without a search where not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from microfold import target
from microfold.compiler import compile_file
from microfold.errors import InputError
from microfold.kernels.selection.peak_relief import FEWEST_BYTES
from microfold.kernels.selection.smaller_arena import ROWS_CODE, most_arena, rows_pay
from microfold.lowering import rows_or_whole
from microfold.options import Options
from microfold.passes.choices import Choices
from microfold.passes.context import PassContext
from microfold.program import Program
from microfold.target.memories import Memory
from microfold.verification.verify import input_sets, verify
from tests.needs import CROSS_TOOLS, need_tools

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / "tests" / "models" / "made"
# Its first convolution's tensors are most of the arena, and their rows take as long.
SMALLER = MADE / "cnn_dyn.tflite"


def build(model: Path = SMALLER, options: Options | None = None, way: str = "") -> Program:
    choices = Choices({"layers": way}) if way else None
    return compile_file(model, target.load("cortex-m4"), options, context=PassContext(choices=choices))


def test_rows_for_less_ram_and_no_time() -> None:
    rows, whole = build(), build(options=Options(rows="never"))
    assert rows.stream is not None
    assert whole.stream is None
    assert rows.arena.size <= most_arena(whole.arena.size)
    assert (rows.estimated_cycles or 0) + rows.stream.moved <= (whole.estimated_cycles or 0)


def test_the_same_bits() -> None:
    """On a core of these instructions; of the host's kernels it is the tests of rows that say so."""
    need_tools(*CROSS_TOOLS)
    program = build()
    assert verify(program, input_sets([buffer.type for buffer in program.inputs], 2)).exact


def test_nothing_is_prefetched_by_rows() -> None:
    slow = Memory("qspi", 1 << 20, 20, ("constants",), "", "QSPI", prefetch=True)
    fast = Memory("ram", 65536, 1, ("data",), "", "RAM")
    core = replace(target.load("cortex-m4"), memories=(fast, slow))
    assert compile_file(SMALLER, core).stream is None


@pytest.mark.parametrize(
    "options",
    [
        Options(rows="never"),
        Options(step=True),
        Options(taps=True),
        Options(optimize="speed"),
        Options(flash=1 << 20),
    ],
)
def test_what_is_asked_for_leaves_tensors_whole(options: Options) -> None:
    assert build(options=options).stream is None


def test_measured_choices_come_first() -> None:
    assert build(way="whole").stream is None
    assert build(MADE / "dscnn_bn_int8.tflite", way="by rows").stream is not None


def test_rows_that_are_refused() -> None:
    with pytest.raises(InputError, match="with io=rows, rows=never asks for whole tensors"):
        Options(io="rows", rows="never")
    with pytest.raises(InputError, match="by rows, rows=never asks for whole tensors"):
        build(MADE / "dscnn_bn_int8.tflite", Options(rows="never", ram=512))


@pytest.mark.parametrize("model", ["cnn_int8", "gru_unrolled_int8", "attn_int8"])
def test_nothing_is_searched_in_vain(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of layers whose rows take longer, and of such as have none."""

    def search(*_: object) -> None:
        raise AssertionError("it cannot be better")

    monkeypatch.setattr(rows_or_whole, "in_rows", search)
    assert build(MADE / f"{model}.tflite").stream is None


def test_what_rows_must_save() -> None:
    assert most_arena(20_000) == 18_000
    assert most_arena(2_000) == 2_000 - FEWEST_BYTES
    flash = 60_000
    for less, added in ((18_000, 2_000), (16_000, 4_000)):
        more = flash + added - ROWS_CODE
        assert rows_pay(20_000, less, flash, more, "balanced")
        assert not rows_pay(20_000, less, flash, more + 1, "balanced")
        assert not rows_pay(20_000, less, flash, more, "size")
    assert not rows_pay(20_000, 18_001, flash, 0, "balanced")
    assert rows_pay(20_000, 18_000, flash, flash - ROWS_CODE, "size")
