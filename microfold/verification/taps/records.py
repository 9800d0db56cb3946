"""Records among whatever else came over the line."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from microfold.codegen.taps import CHECKSUM_ONLY, FORMAT, HEAD, MAGIC, Role
from microfold.support.frozen import frozen

_MAGIC = MAGIC.to_bytes(4, "little")
_TAIL = 4
_ROLES = frozenset(Role)
# A head that tells of more has come about by chance, or would have the reader wait for good.
LARGEST_TENSOR = 1 << 28
# Bytes of payloads whose checksums are computed, as a multiple of the bytes of the stream. Records that
# follow each other take 1, and damaged ones 1 more; heads within each other's payloads would take their
# product.
_MOST_CHECKED = 8


@frozen
class Record:
    """A record that is whole: all its checksums are right.

    Attributes:
        size: bytes of the tensor.
        crc: CRC-32 of the tensor.
        payload: the tensor's bytes; None if only their checksum was sent.
    """

    role: Role
    layer: int
    index: int
    run: int
    ticks: int
    build: int
    size: int
    crc: int
    payload: bytes | None

    @property
    def key(self) -> tuple[Role, int, int]:
        """As `Tap.key`."""
        return self.role, self.layer, self.index


@frozen
class Damage:
    """A head that is right, of a record that is not.

    Attributes:
        offset: of the head, bytes from the beginning.
        reason: what is wrong.
    """

    offset: int
    reason: str
    role: Role
    layer: int
    run: int
    build: int


@dataclass
class RecordParser:
    """Finds the records in a stream, whatever lies between them.

    Where a record is damaged, the search goes on right behind its head: bytes may be lost, and the next
    record lie where its payload was to be.

    Attributes:
        total: bytes seen so far.
        whole: of these, bytes of whole records.
        damaged: records of which only the head is right.
        other_formats: formats of records that this version does not read.
        checked: bytes of payloads whose checksums were computed.
    """

    total: int = 0
    whole: int = 0
    damaged: list[Damage] = field(default_factory=list[Damage])
    other_formats: set[int] = field(default_factory=set[int])
    checked: int = 0
    _buffer: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[Record]:
        """The records that are complete with these bytes."""
        self._buffer += data
        self.total += len(data)
        yield from self._scan(final=False)

    def finish(self) -> Iterator[Record]:
        """The records that turn up when nothing more comes: behind one that has lost its end."""
        yield from self._scan(final=True)

    def _scan(self, final: bool) -> Iterator[Record]:
        buffer, start = self._buffer, self.total - len(self._buffer)
        position = 0
        while True:
            found = buffer.find(_MAGIC, position)
            if found < 0:
                # The first bytes of a magic may be there.
                position = len(buffer) if final else max(position, len(buffer) - len(_MAGIC) + 1)
                break
            position = found
            if len(buffer) - position < HEAD.size and not final:
                break
            head = self._head(bytes(buffer[position : position + HEAD.size]))
            if head is None:
                position += 1
                continue
            record, stored = head
            begin = position + HEAD.size
            end = begin + stored + _TAIL
            if end > len(buffer) and not final:
                break
            reason = ""
            payload = b""
            if end > len(buffer):
                reason = "its end is lost"
            elif self.checked + stored > _MOST_CHECKED * self.total:
                reason = "it lies in too many others to be checked"
            else:
                self.checked += stored
                payload, tail = bytes(buffer[begin : end - _TAIL]), buffer[end - _TAIL : end]
                if zlib.crc32(payload) != int.from_bytes(tail, "little"):
                    reason = "its checksum is wrong"
            if reason:
                self.damaged.append(
                    Damage(start + position, reason, record.role, record.layer, record.run, record.build)
                )
                position = begin
                continue
            self.whole += end - position
            position = end
            yield _with_payload(record, payload)
        del buffer[:position]

    def _head(self, head: bytes) -> tuple[Record, int] | None:
        """A record without its payload, and the bytes of that; None if it is no head."""
        if len(head) < HEAD.size or zlib.crc32(head[:-4]) != int.from_bytes(head[-4:], "little"):
            return None
        _, version, role, index, layer, run, ticks, build, size, _ = HEAD.unpack(head)
        if version != FORMAT:
            self.other_formats.add(version)
            return None
        only, role = bool(role & CHECKSUM_ONLY), role & ~CHECKSUM_ONLY
        if role not in _ROLES or size > LARGEST_TENSOR:
            return None
        payload = None if only else b""
        return Record(Role(role), layer, index, run, ticks, build, size, 0, payload), 4 if only else size


def _with_payload(head: Record, payload: bytes) -> Record:
    if head.payload is None:
        return replace(head, crc=int.from_bytes(payload, "little"))
    return replace(head, crc=zlib.crc32(payload), payload=payload)
