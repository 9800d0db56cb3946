"""A dump as a whole: which builds wrote it, and the runs of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from microfold.codegen.taps import BuildText, Role, Tap, schedule
from microfold.program import Program
from microfold.support.frozen import frozen
from microfold.verification.taps.records import Record, RecordParser

# Bytes that the parser is given at a time: what it has looked at it can let go.
_CHUNK = 1 << 20

Key = tuple[Role, int, int]


@dataclass
class BuildRecords:
    """What is known of a build from its records.

    Attributes:
        text: None if no beginning of a run is there.
        records: how many there are.
    """

    text: BuildText | None = None
    records: int = 0


@frozen
class Run:
    """The records of one run.

    Attributes:
        number: runs that were complete before, since init or reset.
        records: by the keys of their taps.
        ended: the record of the run's end is there.
    """

    number: int
    records: dict[Key, Record] = field(default_factory=dict[Key, Record])
    ended: bool = False


class Dump:
    """The bytes that came from a device.

    Attributes:
        parser: after all records were read: what was lost.
        builds: by their identity, in the order in which they turn up.
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

    def _parse(self, parser: RecordParser) -> Iterator[Record]:
        for begin in range(0, len(self._data), _CHUNK):
            yield from parser.feed(self._data[begin : begin + _CHUNK])
        yield from parser.finish()

    def runs(self, program: Program, build: int) -> Iterator[Run]:
        """The runs of one build, in order.

        A run begins where its first record is, where the number changes, or where the schedule goes back:
        first records may be lost.

        Args:
            program: what the build was made of.
        """
        taps = list(schedule(program))
        places = {tap.key: place for place, tap in enumerate(taps)}
        sizes: Mapping[Key, int] = {tap.key: tap.buffer.type.nbytes for tap in taps}
        run: Run | None = None
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
                run = Run(record.run)
            last = place
            if record.key in sizes:
                run.records[record.key] = record
            if record.role is Role.RUN_END:
                yield Run(run.number, run.records, ended=True)
                run, last = None, -1
        if run is not None:
            yield run


def _place(record: Record, places: Mapping[Key, int]) -> int | None:
    """Where a record stands in the schedule; None if nothing of the program writes it."""
    if record.role is Role.RUN_BEGIN:
        return -1
    return len(places) if record.role is Role.RUN_END else places.get(record.key)


def missing(program: Program, run: Run) -> list[Tap]:
    """Tensors of a run whose records are not there."""
    return [tap for tap in schedule(program) if tap.key not in run.records]
