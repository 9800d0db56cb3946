"""Parser of trace records in a byte stream that can contain other data."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from microfold.codegen.tensor_trace import CHECKSUM_ONLY, FORMAT, HEAD, MAGIC, Role

_MAGIC = MAGIC.to_bytes(4, "little")
_TAIL = 4
_ROLES = frozenset(Role)
# Maximum bytes of a tensor. A larger size is a chance match, for which a reader would wait forever.
LARGEST_TENSOR = 1 << 28
# Maximum bytes of payloads whose checksums are computed, as a multiple of the stream's bytes. Consecutive
# records need 1, damaged ones 1 more. Heads nested in each other's payloads would need their product.
_MOST_CHECKED = 8


class TraceRecord(Struct, frozen=True):
    """Complete record, all of whose checksums are correct.

    Attributes:
        size: size of the tensor, in bytes.
        crc: CRC-32 of the tensor.
        payload: bytes of the tensor; None if only their checksum was sent.
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
        """Key of the record's tap, see `TracedTensor.key`."""
        return self.role, self.layer, self.index


class Damage(Struct, frozen=True):
    """Damaged record with a valid head.

    Attributes:
        offset: offset of the head from the start of the stream, in bytes.
        reason: description of the damage.
    """

    offset: int
    reason: str
    role: Role
    layer: int
    run: int
    build: int


@dataclass
class RecordParser:
    """Parser that finds records in a stream of arbitrary data.

    After a damaged record, the search continues right after its head. Bytes can be lost, so the next
    record may start in the expected payload.

    Attributes:
        total: bytes parsed so far.
        whole: bytes of complete records.
        damaged: damaged records with a valid head.
        other_formats: formats of records that this version cannot read.
        checked: bytes of payloads whose checksums were computed.
    """

    total: int = 0
    whole: int = 0
    damaged: list[Damage] = field(default_factory=list[Damage])
    other_formats: set[int] = field(default_factory=set[int])
    checked: int = 0
    _buffer: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[TraceRecord]:
        """Append bytes, and yield the records that they complete."""
        self._buffer += data
        self.total += len(data)
        yield from self._scan(final=False)

    def finish(self) -> Iterator[TraceRecord]:
        """Yield the remaining records at the end of the stream, after a record that has lost its end."""
        yield from self._scan(final=True)

    def _scan(self, final: bool) -> Iterator[TraceRecord]:
        buffer, start = self._buffer, self.total - len(self._buffer)
        position = 0
        while True:
            found = buffer.find(_MAGIC, position)
            if found < 0:
                # Keep a possible start of a magic number.
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
                reason = "it is nested in too many others to be checked"
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

    def _head(self, head: bytes) -> tuple[TraceRecord, int] | None:
        """Return a record without its payload, and the payload's size in bytes; None if this is no head."""
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
        return TraceRecord(Role(role), layer, index, run, ticks, build, size, 0, payload), 4 if only else size


def _with_payload(head: TraceRecord, payload: bytes) -> TraceRecord:
    if head.payload is None:
        return replace(head, crc=int.from_bytes(payload, "little"))
    return replace(head, crc=zlib.crc32(payload), payload=payload)
