"""What classes are called: from a file of the user, or from those that a `.tflite` file carries along.

The format of these: https://ai.google.dev/edge/litert/models/metadata, "associated files".
"""

from __future__ import annotations

import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from microfold.errors import InputError
from microfold.ir.types import TensorType
from microfold.support.files import read_file
from microfold.support.frozen import frozen

MAX_LABELS = 100_000
MAX_LABEL = 256  # bytes
MAX_BYTES = 1 << 22  # of a file of labels
MAX_DIRECTORY = 1 << 16  # bytes of the archive's directory: some hundred files

# What reading an archive raises that is broken, or has a password (RuntimeError).
_UNREADABLE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError)

# The end of an archive's directory: its signature, and its longest form with the comment behind it.
_END = b"PK\x05\x06"
_END_64 = b"PK\x06\x07"  # 20 bytes before it, if another record has the sizes
_END_BYTES = 22
_END_REACH = _END_BYTES + 0xFFFF


@frozen
class LabelFile:
    """Labels, one per class in order.

    Attributes:
        name: of the file, for messages.
    """

    name: str
    labels: tuple[str, ...]


@frozen
class Labels:
    """Labels that a model's outputs may get.

    Attributes:
        files: an output gets those of the first file with as many as its last axis is long.
        required: some output must get them.
        ignored: why there are none where a model seems to carry some; empty if that is not so.
    """

    files: tuple[LabelFile, ...] = ()
    required: bool = False
    ignored: str = ""

    def of_outputs(self, types: Sequence[TensorType]) -> tuple[tuple[str, ...], ...]:
        """The labels of each output of a model; empty where there are none.

        Raises:
            InputError: they are required, and fit no output.
        """
        by_count = {len(file.labels): file.labels for file in reversed(self.files)}
        found = tuple(by_count.get(t.shape[-1], ()) if t.shape else () for t in types)
        if self.required and not any(found):
            have = ", ".join(str(t) for t in types)
            raise InputError(
                "there must be as many labels as an output has scores, along its last axis; "
                f"{self.files[0].name} has {len(self.files[0].labels)} labels, the outputs are {have}: "
                "give a label for each score, one on a line"
            )
        return found


NO_LABELS = Labels()


def read_labels(path: Path) -> Labels:
    """The labels of a user's file: UTF-8 text, one on a line.

    Raises:
        InputError: it cannot be read, or is no such text.
    """
    return Labels((parse_labels(read_file(path, MAX_BYTES), path.name),), required=True)


def parse_labels(data: bytes, name: str) -> LabelFile:
    """The lines of a text; empty ones at its end do not count.

    Raises:
        InputError: they cannot be labels.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"labels must be UTF-8 text; byte {error.start} of {name} is {error.object[error.start]}: "
            "save it as UTF-8"
        ) from None
    lines = [line.strip() for line in text.rstrip().split("\n")]
    if not text.strip():
        raise InputError(f"labels are one on a line; {name} has none")
    if len(lines) > MAX_LABELS:
        raise InputError(f"there may be {MAX_LABELS:,} labels; {name} has {len(lines):,}")
    for number, line in enumerate(lines, 1):
        if any(unicodedata.category(c) == "Cc" for c in line):
            raise InputError(
                f"labels have no control characters; line {number} of {name} is {line[:40]!r}: take them out"
            )
        if len(line.encode()) > MAX_LABEL:
            raise InputError(
                f"a label may have {MAX_LABEL} bytes; line {number} of {name} has {len(line.encode())}"
            )
    return LabelFile(name, tuple(lines))


def labels_of_model(data: bytes) -> Labels:
    """The labels that a `.tflite` file carries: texts with "label" in their names, in the archive behind it.

    Nothing in it is trusted; what cannot be read is ignored, and said why.
    """
    try:
        return Labels(tuple(_associated_labels(data)))
    except InputError as error:
        return Labels(ignored=str(error))
    except _UNREADABLE as error:
        return Labels(ignored=f"the archive behind the model cannot be read: {error}")


def _associated_labels(data: bytes) -> list[LabelFile]:
    end = data.rfind(_END, max(len(data) - _END_REACH, 0))
    if end < 0 or len(data) - end < _END_BYTES:
        return []
    (size,) = struct.unpack_from("<I", data, end + 12)
    if size > MAX_DIRECTORY or data[max(end - 20, 0) :].startswith(_END_64):
        raise InputError(f"the directory of an archive may have {MAX_DIRECTORY:,} bytes; it has more")
    found: list[LabelFile] = []
    room = MAX_BYTES
    with zipfile.ZipFile(BytesIO(data)) as archive:
        for entry in archive.infolist():
            name = Path(entry.filename).name
            if "label" not in name.lower() or Path(name).suffix.lower() != ".txt":
                continue
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(f"files of labels must be stored or deflated; {name!a} is neither")
            with archive.open(entry) as file:
                text = file.read(room + 1)
            room -= len(text)
            if room < 0:
                raise InputError(f"files of labels may have {MAX_BYTES:,} bytes in all; they have more")
            found.append(parse_labels(text, ascii(name)))
    return found
