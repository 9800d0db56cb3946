"""A few cases of each fuzzer, the same in every run, and what longer runs have found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.engine import Case, Fault, Fuzzer, Outcome, Random, drawn, judge, minimise
from tests.fuzz.flatbuffer import parts
from tests.fuzz.kinds import KINDS
from tests.fuzz.sequences import Sequences, search
from tests.needs import need_modules, need_tools
from tests.sampling import quick

CORPUS = Path(__file__).with_name("corpus")
EXAMPLES = {"text": 100, "files": 150, "targets": 40, "mutants": 3}
FOUND = sorted(path for path in CORPUS.iterdir() if path.suffix not in ("", ".txt"))


def fuzzer(kind: str) -> Fuzzer:
    if kind == "mutants":
        need_modules("ai_edge_litert", "tflite_micro")
        need_tools("gcc")
    return KINDS[kind]()


@pytest.mark.parametrize("kind", quick(EXAMPLES, 2))
def test_no_fault(kind: str) -> None:
    tried = fuzzer(kind)

    @settings(
        max_examples=EXAMPLES[kind], deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(st.integers(0, 1 << 32))
    def check(seed: int) -> None:
        outcome = judge(tried, tried.payload(drawn(tried, seed, 0)))
        assert outcome.kind != "fault", outcome.text

    check()


def test_no_fault_in_sequences() -> None:
    search(seed=1, examples=15)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_found(path: Path) -> None:
    """What a fuzzer found once: ``KIND_what.suffix``."""
    outcome = judge(fuzzer(path.name.partition("_")[0]), path.read_bytes())
    assert outcome.kind != "fault", outcome.text


class Toy:
    """Case edits are numbers; a sum of more than 10 is a fault, 13 a hang, 14 too much memory."""

    suffix = ".toy"
    seconds = 1

    def draw(self, rng: Random) -> Case:
        return Case("", tuple(int(n) for n in rng.integers(1, 10, 5)))

    def payload(self, case: Case) -> bytes:
        return bytes(case.edits)

    def check(self, payload: bytes) -> str:
        if sum(payload) == 13:
            while True:
                pass
        if sum(payload) == 14:
            np.zeros(1 << 36, np.uint8)
        if sum(payload) == 15:
            raise KeyError
        if sum(payload) > 10:
            raise Fault("large")
        return "small"


def test_judgement() -> None:
    toy = Toy()
    assert judge(toy, b"\x02") == Outcome("small")
    assert judge(toy, b"\x0b") == Outcome("fault", "large")
    assert judge(toy, b"\x0d").text == "longer than 1 s"
    assert "MemoryError" in judge(toy, b"\x0e").text
    assert judge(toy, b"\x0f").text.startswith("KeyError in test_fuzz.py:check\n")


def test_failures_become_small() -> None:
    assert minimise(Toy(), Case("", (1, 2, 1, 11, 5)), "large").edits == (11,)
    assert sum(minimise(Toy(), Case("", (5, 4, 3, 6, 2)), "large").edits) in (11, 12)


def test_cases_are_the_same_for_the_same_seed() -> None:
    tried = KINDS["files"]()
    assert drawn(tried, 3, 5) == drawn(tried, 3, 5) != drawn(tried, 3, 6)


def test_sequences_are_read_back() -> None:
    payload = b"""// passes: canonicalize_ops, fuse_ops
graph @g(%x: float32[2]) -> (%b) {
  %a: float32[2] = clip(%x) {minimum=0.0, maximum=9.0}
  %b: float32[2] = clip(%a) {minimum=-inf, maximum=6.0}
}
"""
    assert judge(Sequences(), payload) == Outcome("a sequence")


def test_parts_cover_a_file() -> None:
    """Every offset leads into the file, every kind is there."""
    data = (Path(__file__).parents[1] / "models" / "made" / "ops" / "conv_int8.tflite").read_bytes()
    found = parts(data)
    kinds = {part.kind for part in found}
    assert kinds == {"offset", "vtable", "entry", "length", "float", "integer", "data"}
    for part in found:
        assert 0 <= part.position <= len(data) - part.size
        if part.kind == "offset":
            assert part.position + int.from_bytes(data[part.position : part.position + 4], "little") < len(
                data
            )
