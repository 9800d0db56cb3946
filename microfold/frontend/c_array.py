"""Reader of models that a C or C++ source file holds as an array of bytes.

`xxd -i`, bin2c and the examples of TFLM write such files. An element is a number in hexadecimal, decimal or
octal, as in C. The text is not preprocessed. Of several arrays, the model is the one that begins as a
`.tflite` file does; declarations without content and other arrays are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from microfold.errors import ModelFormatError
from microfold.frontend.formats import HEAD, is_tflite

MAX_SOURCE_BYTES = 1 << 26  # bytes of a source file, which holds a model of some ten million bytes
_MAX_TOKEN = 24  # characters of an element
_CHUNK = 1 << 20  # bytes of text that are converted at once
_REACH = 512  # bytes of a declaration before its content

# The search takes linear time: no alternative fails after its first characters.
_SKIPPED = re.compile(
    rb"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:[^\"\\\n]|\\.)*(?:\"|\n|\\?\Z)|'(?:[^'\\\n]|\\.)*(?:'|\n|\\?\Z)",
    re.DOTALL,
)
# The shortest array of eight bytes has 15 characters.
_CONTENT = re.compile(rb"\{([^{}]{15,})(\}?)")
_DECLARATION = re.compile(rb"([A-Za-z_]\w*)\s*\[([^\[\]]{0,80})\][^;{}=]*=\s*\Z")
_NUMBER = re.compile(rb"(0[xX][0-9a-fA-F]+|0[0-7]*|-?[1-9][0-9]*)[uUlL]{0,3}")


class _Array(Struct, frozen=True):
    """Array of a source file.

    Attributes:
        length: declared number of elements; None if it is not a number.
        text: elements, separated by commas.
        complete: whether the closing brace is there.
    """

    name: str
    length: int | None
    text: bytes
    complete: bool


def looks_like_source(head: bytes) -> bool:
    """Return whether the first bytes of a file can be the beginning of a C source file."""
    return b"\0" not in head and not re.search(rb"[\x01-\x08\x0e-\x1f]", head)


def model_of_source(source: bytes, name: str) -> bytes:
    """Return the bytes of the model in a source file.

    Args:
        name: name of the file in messages.

    Raises:
        ModelFormatError: the file has no model or several models, or the array is not complete.
    """
    text = _SKIPPED.sub(b" ", source)
    models = [*islice(_models(text), 2)]
    if len(models) > 1:
        raise ModelFormatError(
            f"a source file must have one model; {name} has several, {models[0].name} and "
            f"{models[1].name} for example: write each one to its own file (docs/model-files.md)"
        )
    if not models:
        raise ModelFormatError(f"{_no_model(text, name)} (docs/model-files.md)")
    (array,) = models
    if not array.complete:
        raise ModelFormatError(
            f"the array {array.name} must end with '}}'; {name} ends within it: repeat the download or the "
            "conversion (docs/model-files.md)"
        )
    data = b"".join(_converted(array, name))
    if array.length is not None and array.length != len(data):
        raise ModelFormatError(
            f"the array {array.name} in {name} must have its {array.length} declared elements; it has "
            f"{len(data)}: repeat the conversion (docs/model-files.md)"
        )
    return data


def _no_model(text: bytes, name: str) -> str:
    found = re.search(rb"\bextern\b[^;{}=]{0,200}?([A-Za-z_]\w*)\s*\[", text[:HEAD])
    if found:
        return (
            f"{name} only declares the array {found[1].decode()}; its content is in a .c or .cc file: pass "
            "that file"
        )
    return (
        f"{name} is not a .tflite file: bytes 4 to 7 must be 'TFL3'; it is text without a C array of a "
        "model: pass a .tflite file, or a C file that `xxd -i` has written from one"
    )


def _models(text: bytes) -> Iterator[_Array]:
    """Yield the arrays in a text without comments that begin as a `.tflite` file."""
    for found in _CONTENT.finditer(text):
        content = found[1]
        if not is_tflite(_start(content)):
            continue
        declared = _DECLARATION.search(text, max(found.start() - _REACH, 0), found.start())
        array, length = (declared[1], declared[2].strip()) if declared else (b"of the model", b"")
        number = _value(length)
        yield _Array(array.decode(), number, content, bool(found[2]))


def _start(text: bytes) -> bytes:
    """Return the first eight elements of an array; empty if they are not bytes."""
    values = [_value(token.strip()) for token in text[: 8 * 2 * _MAX_TOKEN].split(b",")[:8]]
    return bytes(v & 0xFF for v in values if v is not None and -128 <= v < 256) if None not in values else b""


def _converted(array: _Array, name: str) -> Iterator[bytes]:
    """Yield the bytes of an array in pieces.

    Raises:
        ModelFormatError: an element is not a byte.
    """
    known: dict[bytes, int] = {}
    text, start, count = array.text.rstrip().removesuffix(b","), 0, 0
    while start < len(text):
        end = text.find(b",", start + _CHUNK)
        end = len(text) if end < 0 else end
        tokens = text[start:end].split(b",")
        for token in set(tokens) - known.keys():
            value = _value(token.strip())
            if value is None or not -128 <= value < 256:
                shown = token.strip()[:_MAX_TOKEN].decode("latin-1")
                raise ModelFormatError(
                    f"the elements of array {array.name} in {name} must be bytes; element "
                    f"{count + tokens.index(token)} is {shown!a}: "
                    "write the array with `xxd -i` (docs/model-files.md)"
                )
            known[token] = value & 0xFF
        yield bytes(map(known.__getitem__, tokens))
        count += len(tokens)
        start = end + 1


def _value(token: bytes) -> int | None:
    """Return the value of a number in C; None if the token is not one, or too long."""
    found = _NUMBER.fullmatch(token) if len(token) <= _MAX_TOKEN else None
    if found is None:
        return None
    digits = found[1].lower()
    if digits.startswith(b"0x"):
        return int(digits, 16)
    return int(digits, 8 if digits.startswith(b"0") else 10)
