"""Dump of trace records: the builds that wrote it, and the runs of one build."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec import Struct, field

from microfold.codegen.tensor_trace import BuildText, Role, TracedTensor, schedule
from microfold.program import Program
from microfold.verification.tensor_trace.records import RecordParser, TraceRecord

# Bytes passed to the parser at a time, so that it can release parsed bytes.
_CHUNK = 1 << 20

Key = tuple[Role, int, int]


@dataclass
class BuildRecords:
    """Description of a build from its records.

    Attributes:
        text: description of the build; None without a record of a run's start.
    """

    text: BuildText | None = None
    records: int = 0


class RecordedRun(Struct, frozen=True):
    """Records of one run.

    Attributes:
        number: number of complete runs before it, since init or reset.
        records: records by the keys of their taps.
        ended: whether the dump has the record of the run's end.
    """

    number: int
    records: dict[Key, TraceRecord] = field(default_factory=dict[Key, TraceRecord])
    ended: bool = False


class Dump:
    """Bytes received from a device.

    Attributes:
        parser: parser after reading all records; it describes lost records.
        builds: builds by their identity, in the order of their first records.
    """

    def __init__(self, data: bytes):
        self._data = data
        self.parser = RecordParser()
        self.builds: dict[int, BuildRecords] = {}
        for record in self._parse(self.parser):
            build = self.builds.setdefault(record.build, BuildRecords())
            build.records += 1
            if record.role is Role.RUN_BEGIN and record.payload is not None:
                build.text = build.text or BuildText.parse(record.payload)

    def _parse(self, parser: RecordParser) -> Iterator[TraceRecord]:
        for begin in range(0, len(self._data), _CHUNK):
            yield from parser.feed(self._data[begin : begin + _CHUNK])
        yield from parser.finish()

    def runs(self, program: Program, build: int) -> Iterator[RecordedRun]:
        """Yield the runs of one build, in order.

        Because first records can be lost, a run begins with its first record, with a change of the run
        number, or when the schedule goes back.

        Args:
            program: program of the build.
        """
        taps = list(schedule(program))
        places = {tap.key: place for place, tap in enumerate(taps)}
        sizes: Mapping[Key, int] = {tap.key: tap.buffer.type.nbytes for tap in taps}
        run: RecordedRun | None = None
        last = -1
        for record in self._parse(RecordParser()):
            if record.build != build:
                continue
            place = _place(record, places)
            if place is None or record.size != sizes.get(record.key, record.size):
                continue
            if run is None or record.run != run.number or place <= last:
                if run is not None:
                    yield run
                run = RecordedRun(record.run)
            last = place
            if record.key in sizes:
                run.records[record.key] = record
            if record.role is Role.RUN_END:
                yield RecordedRun(run.number, run.records, ended=True)
                run, last = None, -1
        if run is not None:
            yield run


def _place(record: TraceRecord, places: Mapping[Key, int]) -> int | None:
    if record.role is Role.RUN_BEGIN:
        return -1
    return len(places) if record.role is Role.RUN_END else places.get(record.key)


def missing(program: Program, run: RecordedRun) -> list[TracedTensor]:
    """Return the taps of a run without a record."""
    return [tap for tap in schedule(program) if tap.key not in run.records]
