"""Recognition of files that are not `.tflite` models, by their content.

Each format has one message, with the way to a `.tflite` file. Only the beginning of a file is read, and of an
archive also its directory. Archives are not unpacked, and pickles are not loaded.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from msgspec import Struct

# Identifier of `.tflite` files, from byte 4.
IDENTIFIER = b"TFL3"
HEAD = 1 << 16  # bytes of a file that are examined
MAX_DIRECTORY = 1 << 20  # bytes that are read to list the files in an archive, some 10,000 of them
# Positions of the signature of HDF5 after a block of the user.
_HDF5_OFFSETS = (0, 512, 1024, 2048)
_MAX_SHOWN = 60  # characters of a name from an archive


class ModelFormat(Struct, frozen=True):
    """File format that is not `.tflite`.

    Attributes:
        name: noun phrase for the file, e.g. ``an ONNX model``.
        remedy: way to a `.tflite` file, or to the right file.
        page: page of `docs/` with the commands.
    """

    name: str
    remedy: str
    page: str = "model-files.md"

    @property
    def advice(self) -> str:
        """The format, and what to do, for messages."""
        return f"{self.name}: {self.remedy} (docs/{self.page})"

    def message(self, source: str) -> str:
        """Return the error message for a file of this format.

        Args:
            source: name of the file.
        """
        return f"a model must be a .tflite file, or a C array of one; {source} is {self.advice}"


_TO_KERAS = "convert the Keras model with tf.lite.TFLiteConverter.from_keras_model"
_TO_SAVED_MODEL = "convert its folder with tf.lite.TFLiteConverter.from_saved_model"
_TO_TORCH = "convert the module with litert_torch.convert"
_UNPACK = "unpack it, and pass the .tflite file in it"
_SOURCE = "convert the model that it was made from"

EMPTY = ModelFormat("an empty file", "repeat the download or the conversion")
ONNX = ModelFormat("an ONNX model", "convert it with onnx2tf", "from-onnx.md")
KERAS = ModelFormat("a Keras 3 model", _TO_KERAS, "from-keras.md")
HDF5 = ModelFormat("an HDF5 file, as Keras writes it with the suffix .h5", _TO_KERAS, "from-keras.md")
SAVED_MODEL = ModelFormat("a TensorFlow SavedModel", _TO_SAVED_MODEL, "from-keras.md")
SAVED_MODEL_FILE = ModelFormat("the graph of a TensorFlow SavedModel", _TO_SAVED_MODEL, "from-keras.md")
FROZEN_GRAPH = ModelFormat(
    "a frozen TensorFlow graph",
    "convert it with tf.compat.v1.lite.TFLiteConverter.from_frozen_graph",
    "from-keras.md",
)
TENSORFLOW_JS = ModelFormat(
    "a TensorFlow.js model", "convert the Keras model or SavedModel of the training", "from-keras.md"
)
PYTORCH = ModelFormat("a PyTorch file of weights or of a module", _TO_TORCH, "from-pytorch.md")
TORCHSCRIPT = ModelFormat("a TorchScript module", f"{_TO_TORCH}, from its Python source", "from-pytorch.md")
EXPORTED_PROGRAM = ModelFormat(
    "a PyTorch exported program (.pt2)", f"{_TO_TORCH}, from its Python source", "from-pytorch.md"
)
EXECUTORCH = ModelFormat("an ExecuTorch program (.pte)", _TO_TORCH, "from-pytorch.md")
EXECUTORCH_DATA = ModelFormat("an ExecuTorch file of weights (.ptd)", _TO_TORCH, "from-pytorch.md")
SAFETENSORS = ModelFormat(
    "a safetensors file, which has weights without a network", _TO_TORCH, "from-pytorch.md"
)
GGUF = ModelFormat("a GGUF model", f"{_SOURCE}, if it can fit a microcontroller")
COREML = ModelFormat("a Core ML model", _SOURCE)
OPENVINO = ModelFormat("an OpenVINO IR", _SOURCE)
PICKLE = ModelFormat(
    "a Python pickle, which is not loaded because that can run any code",
    "if it holds a neural network, convert this one from its Python source",
)
NUMPY = ModelFormat("a numpy array", "pass a model; arrays are values of --input and --inputs")
NUMPY_ARCHIVE = ModelFormat(
    "an archive of numpy arrays (.npz)", "pass a model, and arrays as single .npy files"
)
LFS = ModelFormat("a Git LFS pointer instead of the file", "run `git lfs pull` in its repository")
HTML = ModelFormat("an HTML page", "download the file itself, for example from the 'raw' link of the page")
ZIP = ModelFormat("a zip archive", _UNPACK)
COMPRESSED = ModelFormat("a compressed file", _UNPACK)
ELF = ModelFormat("a compiled program or library (ELF)", "pass the model that was built into it")
GRAPH_TEXT = ModelFormat("a graph in text form", "give it the suffix .mf")
JSON = ModelFormat("JSON text", _SOURCE)
TFLITE = ModelFormat("a .tflite file", "give it the suffix .tflite")

# Formats with a signature at a fixed position.
_SIGNATURES = (
    (0, b"\x1f\x8b", COMPRESSED),  # gzip
    (0, b"\xfd7zXZ\0", COMPRESSED),
    (0, b"BZh", COMPRESSED),
    (0, b"\x28\xb5\x2f\xfd", COMPRESSED),  # zstd
    (0, b"7z\xbc\xaf\x27\x1c", COMPRESSED),
    (257, b"ustar", COMPRESSED),  # tar
    *((offset, b"\x89HDF\r\n\x1a\n", HDF5) for offset in _HDF5_OFFSETS),
    (0, b"\x93NUMPY", NUMPY),
    (4, b"ET12", EXECUTORCH),
    (4, b"FT01", EXECUTORCH_DATA),
    (0, b"GGUF", GGUF),
    (0, b"\x7fELF", ELF),
    (0, b"version https://git-lfs.github.com/spec/", LFS),
    # The number with which torch.save began files before the zip format.
    (0, b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", PYTORCH),
)


def recognise(file: BinaryIO, size: int) -> ModelFormat | None:
    """Return the format of a file that is not `.tflite`; None if it is, or if the format is unknown.

    Args:
        file: file, at any position.
        size: its size, in bytes.
    """
    file.seek(0)
    head = file.read(HEAD)
    if not head:
        return EMPTY
    if is_tflite(head):
        return None
    for offset, signature, found in _SIGNATURES:
        if head.startswith(signature, offset):
            return found
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _archive(_names(file, head))
    return _safetensors(head, size) or _pickle(head) or _protobuf(head, size) or _text(head)


def is_tflite(head: bytes) -> bool:
    """Return whether a `.tflite` file can begin with these bytes."""
    return head[4:8] == IDENTIFIER


def describe_folder(path: os.PathLike[str]) -> ModelFormat | None:
    """Return the format of a folder; None if it is unknown."""

    def has(*names: str) -> bool:
        return os.path.isfile(os.path.join(path, *names))

    if has("saved_model.pb"):
        return SAVED_MODEL
    if has("Manifest.json"):
        return COREML
    if has("config.json") and has("metadata.json"):
        return KERAS
    return PYTORCH if has("data.pkl") else None


def _names(file: BinaryIO, head: bytes) -> list[str]:
    """Return the names of the files in an archive; of a damaged or huge one, at most the first name."""
    try:
        with zipfile.ZipFile(_Limited(file, MAX_DIRECTORY)) as archive:  # type: ignore[arg-type]
            return archive.namelist()
    except (zipfile.BadZipFile, struct.error, EOFError, OSError, ValueError, NotImplementedError):
        length = int.from_bytes(head[26:28], "little")
        return [head[30 : 30 + length].decode("utf-8", "replace")]


class _Limited:
    """File that can be read up to a number of bytes.

    Raises:
        ValueError: more bytes are requested.
    """

    def __init__(self, file: BinaryIO, most: int):
        self._file = file
        self._left = most
        self.seek = file.seek
        self.tell = file.tell

    def read(self, count: int = -1) -> bytes:
        data = self._file.read(self._left + 1 if count < 0 else min(count, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("the directory of the archive is too long")
        return data


def _archive(names: Sequence[str]) -> ModelFormat:
    """Return the format of a zip archive with files of these names."""
    found = set(names)
    last = {name.rpartition("/")[2] for name in names}
    if "saved_model.pb" in last:
        return SAVED_MODEL
    if {"config.json", "metadata.json"} <= found or "model.weights.h5" in found:
        return KERAS
    if last & {"archive_format", "serialized_exported_program.json"}:
        return EXPORTED_PROGRAM
    if "data.pkl" in last:
        is_script = "constants.pkl" in last or any("/code/" in name for name in names)
        return TORCHSCRIPT if is_script else PYTORCH
    if any("com.apple.CoreML" in name for name in names):
        return COREML
    if found and all(name.endswith(".npy") for name in names):
        return NUMPY_ARCHIVE
    for suffix, kind in ((".tflite", ZIP), (".onnx", ONNX), (".keras", KERAS), (".h5", HDF5)):
        inside = next((name for name in names if name.lower().endswith(suffix)), None)
        if inside is not None:
            shown = ascii(inside[-_MAX_SHOWN:])
            remedy = f"unpack {shown}" + (", and pass it" if kind is ZIP else f", and {kind.remedy}")
            return ModelFormat("a zip archive", remedy, kind.page)
    return ZIP


def _safetensors(head: bytes, size: int) -> ModelFormat | None:
    length = int.from_bytes(head[:8], "little")
    return SAFETENSORS if head[8:10] == b'{"' and length + 8 <= size else None


def _pickle(head: bytes) -> ModelFormat | None:
    """Recognise pickles of protocols 2 to 5, which a frame, an object or a number follows."""
    if len(head) < 3 or head[0] != 0x80 or not 2 <= head[1] <= 5:
        return None
    return PICKLE if head[2:3] in b"\x95c]}(Kq\x8a\x8cX)" else None


def _protobuf(head: bytes, size: int) -> ModelFormat | None:
    """Recognise messages of protocol buffers by the numbers and types of their fields.

    Sources: onnx.proto (ModelProto), saved_model.proto, graph.proto (GraphDef) of TensorFlow, Model.proto of
    coremltools.
    """
    fields = [*_fields(head)]
    if not fields:
        return None
    number, kind, start, value = fields[0]
    wire = {n: k for n, k, _, _ in fields}
    if (number, kind) == (1, _BYTES):
        content = head[start : start + value]
        node = {n: content[s : s + v] for n, k, s, v in _fields(content) if k == _BYTES}
        has_names = all(re.fullmatch(rb"[\w./-]+", node.get(n, b"")) for n in (1, 2))
        return FROZEN_GRAPH if has_names else None
    if wire.keys() <= _ONNX.keys() and wire.items() <= _ONNX.items() and 7 in wire and {1, 8} & wire.keys():
        return ONNX
    if (number, kind) != (1, _VARINT) or wire.get(2) != _BYTES:
        return None
    if value == 1 and wire.keys() == {1, 2} and fields[-1][2] + fields[-1][3] == size:
        return SAVED_MODEL_FILE
    return COREML if max(wire) >= _COREML_MODELS and 3 not in wire else None


_VARINT, _BYTES = 0, 2
# Fields of an ONNX model: number and wire type.
_ONNX = {**dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), _BYTES), 1: _VARINT, 5: _VARINT}
_COREML_MODELS = 200  # first number of the fields that hold a Core ML model


def _fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, start and value of the fields of a message, up to the first invalid one.

    The value is a number, or the length in bytes of the content after the start.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0 or kind not in (_VARINT, 1, _BYTES, 5):
            return
        start, value = at, {1: 8, 5: 4}.get(kind, 0)
        if kind in (_VARINT, _BYTES):
            value, start = _varint(data, at)
        if start == 0:
            return
        yield number, kind, start, value
        at = start if kind == _VARINT else start + value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, and the position after it; two zeros if it is invalid."""
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, at + shift + 1
    return 0, 0


def _text(head: bytes) -> ModelFormat | None:
    """Recognise formats of text by their beginning."""
    if b"\0" in head:
        return None
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    start = text[:1024].lower()
    if not text:
        return EMPTY
    if start.startswith((b"<!doctype html", b"<html", b"<head")):
        return HTML
    if start.startswith((b"<?xml", b"<net")) and re.search(rb"<net\s[^>]*\bversion=", start):
        return OPENVINO
    if text.startswith(b"graph @"):
        return GRAPH_TEXT
    if start[:1] in (b"{", b"["):
        return TENSORFLOW_JS if b'"modeltopology"' in start else _json(text)
    return None


def _json(text: bytes) -> ModelFormat | None:
    """Recognise JSON. A head that is cut off has no error before its end."""
    try:
        json.loads(text.decode("utf-8", "replace"))
    except RecursionError:
        return JSON
    except ValueError as error:
        position = getattr(error, "pos", 0)
        return JSON if len(text) > HEAD // 2 and position > len(text) - 1024 else None
    return JSON
