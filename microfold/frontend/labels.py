"""Class labels, from a file of the user or from the metadata of a `.tflite` file.

Format of the metadata: https://ai.google.dev/edge/litert/models/metadata, "associated files".
"""

from __future__ import annotations

import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from msgspec import Struct

from microfold.errors import InputError
from microfold.ir.types import TensorType
from microfold.support.files import read_file

MAX_LABELS = 100_000
MAX_LABEL = 256  # bytes
MAX_BYTES = 1 << 22  # size of a file of labels
MAX_DIRECTORY = 1 << 16  # bytes of the archive's directory, enough for some hundred files

# Exceptions from reading an archive that is damaged or has a password (RuntimeError).
_UNREADABLE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError)

# Signature of the end of an archive's directory, and the maximum length of this record with its comment.
_END = b"PK\x05\x06"
_END_64 = b"PK\x06\x07"  # 20 bytes before the signature, if a ZIP64 record has the sizes
_END_BYTES = 22
_END_REACH = _END_BYTES + 0xFFFF


class LabelFile(Struct, frozen=True):
    """Labels, one per class in order.

    Attributes:
        name: name of the file, for messages.
    """

    name: str
    labels: tuple[str, ...]


class Labels(Struct, frozen=True):
    """Candidate labels for a model's outputs.

    Attributes:
        files: label files. An output gets the labels of the first file whose number of labels equals the
            output's last axis.
        required: whether the labels must match at least one output.
        ignored: reason why the labels in a model are not used; empty if the model has none or they are used.
    """

    files: tuple[LabelFile, ...] = ()
    required: bool = False
    ignored: str = ""

    def of_outputs(self, types: Sequence[TensorType]) -> tuple[tuple[str, ...], ...]:
        """Return the labels of each output of a model, or an empty tuple for outputs without labels.

        Raises:
            InputError: labels are required, but match no output.
        """
        by_count = {len(file.labels): file.labels for file in reversed(self.files)}
        found = tuple(by_count.get(t.shape[-1], ()) if t.shape else () for t in types)
        if self.required and not any(found):
            have = ", ".join(str(t) for t in types)
            raise InputError(
                "the number of labels must equal the last axis of an output; "
                f"{self.files[0].name} has {len(self.files[0].labels)} labels, the outputs are {have}: "
                "write one label per line for each score"
            )
        return found


NO_LABELS = Labels()


def read_labels(path: Path) -> Labels:
    """Read the labels in a user's file: UTF-8 text, one label per line.

    Raises:
        InputError: the file cannot be read, or is not such a text.
    """
    return Labels((parse_labels(read_file(path, MAX_BYTES), path.name),), required=True)


def parse_labels(data: bytes, name: str) -> LabelFile:
    """Return the lines of a text as labels. Empty lines at its end are ignored.

    Raises:
        InputError: a line cannot be a label, or the text is empty.
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
        raise InputError(f"a file of labels must have one label per line; {name} has none")
    if len(lines) > MAX_LABELS:
        raise InputError(f"the maximum is {MAX_LABELS:,} labels; {name} has {len(lines):,}")
    for number, line in enumerate(lines, 1):
        if any(unicodedata.category(c) == "Cc" for c in line):
            raise InputError(
                f"labels must not have control codes; line {number} of {name} is {line[:40]!r}: remove them"
            )
        if len(line.encode()) > MAX_LABEL:
            raise InputError(
                f"a label can have {MAX_LABEL} bytes; line {number} of {name} has {len(line.encode())}"
            )
    return LabelFile(name, tuple(lines))


def labels_of_model(data: bytes) -> Labels:
    """Return the labels in a `.tflite` file: text files named "*label*.txt" in the archive after the model.

    The content is not trusted. If it cannot be read, it is ignored and `Labels.ignored` has the reason.
    """
    try:
        return Labels(tuple(_associated_labels(data)))
    except InputError as error:
        return Labels(ignored=str(error))
    except _UNREADABLE as error:
        return Labels(ignored=f"the archive after the model cannot be read: {error}")


def _associated_labels(data: bytes) -> list[LabelFile]:
    end = data.rfind(_END, max(len(data) - _END_REACH, 0))
    if end < 0 or len(data) - end < _END_BYTES:
        return []
    (size,) = struct.unpack_from("<I", data, end + 12)
    if size > MAX_DIRECTORY or data[max(end - 20, 0) :].startswith(_END_64):
        raise InputError(
            f"the directory of an archive must have at most {MAX_DIRECTORY:,} bytes; it has more"
        )
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
                raise InputError(
                    f"files of labels must have at most {MAX_BYTES:,} bytes in total; they have more"
                )
            found.append(parse_labels(text, ascii(name)))
    return found
