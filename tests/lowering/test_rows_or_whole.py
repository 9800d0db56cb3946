"""Rows where whole tensors would do as well: only where they pay, and found without a search where not."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_file
from microfold.errors import InputError
from microfold.lowering import streamed_or_whole
from microfold.options import Options
from microfold.passes.choices import Choices
from microfold.passes.context import PassContext
from microfold.program import Program
from microfold.target.memories import TargetMemory
from microfold.verification.verify import input_sets, verify
from tests.needs import CROSS_TOOLS, need_tools

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / "tests" / "models" / "made"
# Its first convolution's tensors are most of the arena, and their rows take as long.
SMALLER = MADE / "cnn_dyn.tflite"


# For so small a model, the code that rows take is worth more than the RAM that they save.
FREE_FLASH = Options(objective="cycles=3,ram=1")


def build(model: Path = SMALLER, options: Options = FREE_FLASH, way: str = "") -> Program:
    choices = Choices({"layers": way}) if way else None
    return compile_file(model, target.load("cortex-m4"), options, context=PassContext(choices=choices))


def test_rows_for_less_ram_and_no_time() -> None:
    rows, whole = build(), build(options=replace(FREE_FLASH, rows="never"))
    assert rows.stream is not None
    assert whole.stream is None
    assert rows.arena.size < whole.arena.size
    assert (rows.estimated_cycles or 0) + rows.stream.moved <= (whole.estimated_cycles or 0)


def test_the_same_bits() -> None:
    """On a core of these instructions; of the host's kernels it is the tests of rows that say so."""
    need_tools(*CROSS_TOOLS)
    program = build()
    assert verify(program, input_sets([buffer.type for buffer in program.inputs], 2)).exact


def test_nothing_is_prefetched_by_rows() -> None:
    slow = TargetMemory("qspi", 1 << 20, 20, ("constants",), "", "QSPI", prefetch=True)
    fast = TargetMemory("ram", 65536, 1, ("data",), "", "RAM")
    core = replace(target.load("cortex-m4"), memories=(fast, slow))
    assert compile_file(SMALLER, core, FREE_FLASH).stream is None


@pytest.mark.parametrize(
    "options",
    [
        replace(FREE_FLASH, rows="never"),
        replace(FREE_FLASH, step=True),
        replace(FREE_FLASH, taps=True),
        replace(FREE_FLASH, flash=1 << 20),
    ],
)
def test_what_is_asked_for_leaves_tensors_whole(options: Options) -> None:
    assert build(options=options).stream is None


def test_measured_choices_come_first() -> None:
    assert build(way="whole").stream is None
    assert build(MADE / "dscnn_bn_int8.tflite", Options(ram=1600), "by rows").stream is not None


def test_rows_that_are_refused() -> None:
    with pytest.raises(InputError, match="with rows=never: rows=never requires whole tensors"):
        Options(io="rows", rows="never")
    with pytest.raises(InputError, match="by rows, rows=never requires whole tensors"):
        build(MADE / "dscnn_bn_int8.tflite", Options(rows="never", ram=512))


@pytest.mark.parametrize("model", ["cnn_int8", "gru_unrolled_int8", "attn_int8"])
def test_nothing_is_searched_in_vain(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of layers whose rows take longer, and of such as have none."""

    def search(*_: object) -> None:
        raise AssertionError("it cannot be better")

    monkeypatch.setattr(streamed_or_whole, "best_streamed", search)
    assert build(MADE / f"{model}.tflite").stream is None
