"""A second opinion by llvm-mca: what it is given, and what is made of its answer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from microfold.target import load
from tests.tools import compare_llvm_mca
from tests.tools.compare_llvm_mca import Block, Timed, assembly, judged, llvm_cycles, llvm_flags

from .test_scoreboard import assembled


def test_jumps_and_the_program_counter_are_left_out() -> None:
    block = assembled(
        "ldr.w r0, [r1, #4]; ldr.w r2, [r1, #-4]; ldr.w r3, [pc, #8]; smlad r0, r1, r2, r0; bne.n 40"
    )
    assert assembly(block).splitlines() == [
        ".syntax unified",
        ".thumb",
        "ldr.w r0, [r1, #4]",
        "ldr r2, [r1, #-4]",
        "smlad r0, r1, r2, r0",
    ]


# Instead of llvm-mca: two cycles for each instruction, none of them vectors.
FAKE = """
import sys
lines = sys.stdin.read().splitlines()[2:]
if any(line.startswith("v") for line in lines):
    sys.exit("error: instruction requires: mve")
rounds = int(sys.argv[-1].removeprefix("-iterations="))
print(f"Iterations: {rounds}\\nTotal Cycles:      {rounds * 2 * len(lines)}")
"""


@pytest.fixture
def fake(tmp_path: Path) -> list[str]:
    tool = tmp_path / "llvm_mca.py"
    tool.write_text(FAKE)
    return [sys.executable, str(tool), "-mcpu=cortex-m55"]


def test_cycles_of_a_block(fake: list[str]) -> None:
    assert llvm_cycles(fake, assembled("add.w r0, r1, r2; add.w r3, r4, r5; bne.n 40")) == 4
    assert llvm_cycles(fake, assembled("vadd.i32 q0, q0, q1")) is None


@pytest.mark.parametrize(
    ("target", "flags"),
    [
        ("cortex-m7", "-mtriple=thumbv7em-none-eabi -mcpu=cortex-m7"),
        ("cortex-m85", "-mtriple=thumbv8.1m.main-none-eabi -mcpu=cortex-m85"),
        ("cortex-m33-nodsp", "-mtriple=thumbv7em-none-eabi -mcpu=cortex-m33 -mattr=-dsp"),
        (
            "cortex-m55-nomve",
            "-mtriple=thumbv8.1m.main-none-eabi -mcpu=cortex-m55 -mattr=-mve,-mve.fp",
        ),
        ("cortex-m0plus", "-mtriple=thumbv6m-none-eabi -mcpu=cortex-m0plus"),
    ],
)
def test_cores_in_the_words_of_llvm(target: str, flags: str) -> None:
    assert llvm_flags(target, load(target).cpu_flags) == flags.split()


def test_cores_that_llvm_has_no_words_for() -> None:
    with pytest.raises(ValueError, match="own: LLVM must know the core"):
        llvm_flags("own", ["-march=armv7e-m"])
    with pytest.raises(ValueError, match="LLVM has no cortex-m33 with nothing"):
        llvm_flags("own", ["-mcpu=cortex-m33+nothing"])


def test_what_llvm_refuses_counts_as_ours() -> None:
    block = tuple(assembled("nop"))
    found = Timed((Block(block, 10, 6, 4.0), Block(block, 5, 4, None)), 20)
    assert (found.ours, found.theirs, found.share) == (100, 80, 0.6)


@pytest.mark.parametrize(
    ("ours", "theirs", "share", "text", "agreed"),
    [
        (90, 95, 1.0, "m: -10.0 % cycles by our model, -5.0 % by LLVM's: both see a gain", True),
        (90, 101, 1.0, "they disagree", False),
        (90, 99.8, 1.0, "they disagree", False),
        (110, 101, 1.0, "both see a loss", True),
        (100.4, 99.7, 1.0, "neither sees a change", True),
        (90, 90, 0.4, "LLVM timed 40 % of it only", False),
    ],
)
def test_verdicts(ours: float, theirs: float, share: float, text: str, agreed: bool) -> None:
    before = {"m": {"ours": 100.0, "theirs": 100.0, "share": 1.0}}
    ((found, verdict),) = judged(before, {"m": {"ours": ours, "theirs": theirs, "share": share}})
    assert found.endswith(text) and verdict == agreed


def test_two_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What one version saves, another one is judged by; the exit code tells whether both models agree."""
    block = tuple(assembled("nop"))
    file = tmp_path / "before.json"
    cycles = iter([(8, 8.0), (6, 7.0), (6, 9.0)])
    monkeypatch.setattr(compare_llvm_mca.shutil, "which", lambda name: name)
    monkeypatch.setattr(compare_llvm_mca, "compile_file", lambda *_: None)
    monkeypatch.setattr(
        compare_llvm_mca, "timed_blocks", lambda *_: Timed((Block(block, 1, *next(cycles)),), 0)
    )

    def run(*arguments: object) -> None:
        words = ["compare_llvm_mca", "-t", "cortex-m7", *map(str, arguments), "model.tflite"]
        monkeypatch.setattr(sys, "argv", words)
        compare_llvm_mca.main()

    run("--save", file)
    for status, verdict in ((False, "both see a gain"), (True, "they disagree")):
        with pytest.raises(SystemExit) as ended:
            run("--before", file)
        assert ended.value.code == status
        assert verdict in capsys.readouterr().out
