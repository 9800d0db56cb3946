"""Whatever comes over the line, the parser finds the whole records in it, and says what it could not use."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from microfold.codegen.tensor_trace import FORMAT, HEAD, MAGIC, BuildText, Role
from microfold.verification.tensor_trace.records import LARGEST_TENSOR, RecordParser, TraceRecord
from tests.taps_device import encode

SEEDS = st.integers(0, 1 << 20)
FEW = settings(max_examples=60)


def of_payload(payload: bytes, **fields: int) -> TraceRecord:
    known = {"layer": 1, "index": 0, "run": 2, "ticks": 3, "build": 4} | fields
    crc = zlib.crc32(payload)
    return TraceRecord(Role.LAYER_OUTPUT, size=len(payload), crc=crc, payload=payload, **known)


def some_record(seed: int, run: int = 0) -> TraceRecord:
    """Any record; those of other runs are others."""
    rng = random.Random(seed)
    size = rng.choice((0, 1, 7, 40))
    payload = rng.choice((rng.randbytes(size), MAGIC.to_bytes(4, "little") * 9))
    layer, ticks, build, crc = (rng.getrandbits(32) for _ in range(4))
    record = TraceRecord(
        rng.choice(list(Role)), layer, rng.getrandbits(16), run, ticks, build,
        len(payload), zlib.crc32(payload), payload,
    )  # fmt: skip
    only = replace(record, size=rng.randrange(LARGEST_TENSOR + 1), crc=crc, payload=None)
    return rng.choice((record, record, only))


def parse(data: bytes, cuts: Sequence[int] = ()) -> tuple[list[TraceRecord], RecordParser]:
    """What is found in pieces of data that end at the cuts."""
    parser, found, begin = RecordParser(), list[TraceRecord](), 0
    for end in (*sorted(cuts), len(data)):
        found += parser.feed(data[begin:end])
        begin = max(begin, end)
    return found + list(parser.finish()), parser


# Noise has no beginning of a record: text of a log, and bytes of any kind.
NOISE = st.one_of(st.binary(max_size=60), st.text(max_size=40).map(str.encode))
CUTS = st.lists(st.integers(0, 2000), max_size=6)


@given(st.binary(max_size=300), CUTS)
@example(MAGIC.to_bytes(4, "little") * 20, [])
def test_any_bytes_are_read(data: bytes, cuts: list[int]) -> None:
    found, parser = parse(data, cuts)
    assert parser.total == len(data)
    assert parser.whole == sum(len(encode(record)) for record in found)


@FEW
@given(st.lists(st.tuples(NOISE, SEEDS), max_size=6), NOISE, CUTS)
def test_all_whole_records_are_found_among_noise(
    drawn: list[tuple[bytes, int]], last: bytes, cuts: list[int]
) -> None:
    parts = [(noise, some_record(seed)) for noise, seed in drawn]
    data = b"".join(noise + encode(record) for noise, record in parts) + last
    found, parser = parse(data, cuts)
    assert found == [record for _, record in parts]
    assert parser.total - parser.whole == sum(len(noise) for noise, _ in parts) + len(last)
    assert not parser.damaged and not parser.other_formats


@FEW
@given(SEEDS, st.integers(0, 200), st.sampled_from(("other", "lost", "text", "cut")), CUTS)
def test_what_is_damaged_hides_no_other_record(seed: int, place: int, damage: str, cuts: list[int]) -> None:
    """Bytes of the second are others, lost, or text comes between them."""
    records = [some_record(seed + run, run) for run in range(3)]
    first, second, third = map(encode, records)
    place %= len(second) - 4  # a checksum cut short may become right by what follows
    damaged = {
        "other": second[:place] + bytes([second[place] ^ 0x55]) + second[place + 1 :],
        "lost": second[:place] + second[place + 5 :],
        "text": second[:place] + b"warning: 42\r\n" + second[place:],
        "cut": second[:place],
    }[damage]
    found, parser = parse(first + damaged + third, cuts)
    untouched = place == 0 and damage == "text"
    assert found == (records if untouched else [records[0], records[2]])
    assert parser.whole == sum(len(encode(record)) for record in found)


def test_what_was_lost_is_said() -> None:
    one, other = of_payload(b"a" * 50, layer=7, run=9), of_payload(b"b" * 60)
    data = encode(one)
    found, parser = parse(data[:60] + data[65:] + encode(other) + encode(one)[:-1])
    assert found == [other]
    assert [(d.offset, d.reason, d.layer, d.run) for d in parser.damaged] == [
        (0, "its checksum is wrong", 7, 9),
        (81 + 96, "its end is lost", 7, 9),
    ]
    assert (parser.total, parser.whole) == (81 + 96 + 85, 96)


def test_other_formats_are_told() -> None:
    found, parser = parse(encode(of_payload(b"x"), version=FORMAT + 1))
    assert not found and parser.other_formats == {FORMAT + 1}


def test_nobody_waits_for_more_than_there_can_be() -> None:
    """A head of rubbish with a right checksum does not hold up what follows."""
    huge = encode(TraceRecord(Role.STATE, 0, 0, 0, 0, 0, LARGEST_TENSOR + 1, 0, b""))
    after = of_payload(b"there")
    parser = RecordParser()
    assert list(parser.feed(huge + encode(after))) == [after]


def test_a_long_dump_takes_time_in_proportion() -> None:
    """Fed byte by byte; the parser looks at what is new only."""
    rubbish = random.Random(1).randbytes(200_000)
    found, parser = parse(rubbish + encode(of_payload(rubbish)), range(0, 400_000, 97))
    assert len(found) == 1 and parser.whole == len(rubbish) + 36


@given(st.text(max_size=50), st.text(max_size=200))
def test_text_of_a_build(file: str, command: str) -> None:
    file, command = (" ".join(t.encode("utf-8", "replace").decode().splitlines()) for t in (file, command))
    text = BuildText("0.1.0", "ab" * 32, file, command)
    assert BuildText.parse(str(text).encode()) == text
    assert max(map(len, text.literals)) <= 92


@given(st.binary(max_size=100))
def test_any_text_of_a_build_is_read(payload: bytes) -> None:
    BuildText.parse(payload)


def test_heads_in_the_payloads_of_others_take_linear_time() -> None:
    """Each head is right, and tells of a payload of half the dump whose checksum is wrong."""
    head = encode(of_payload(bytes(40_000)))[: HEAD.size]
    dump = head * (80_000 // HEAD.size)
    found, parser = parse(dump)
    assert not found
    assert len(parser.damaged) == 80_000 // HEAD.size
    assert parser.checked <= 8 * len(dump)
    assert {damage.reason for damage in parser.damaged} == {
        "its checksum is wrong", "its end is lost", "it is nested in too many others to be checked",
    }  # fmt: skip
