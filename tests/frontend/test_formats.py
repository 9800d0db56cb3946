"""Files of other formats are recognised by their content, and get a message with the way to `.tflite`."""

from __future__ import annotations

import io
import pickle
import re
import struct
import tarfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from microfold.errors import InputError, MicrofoldError, ModelFormatError
from microfold.frontend import formats
from microfold.frontend.formats import ModelFormat, recognise
from microfold.frontend.model_source import load_model
from microfold.frontend.tflite import import_model, load, read_file
from tests.frontend import models

DOCS = Path(__file__).resolve().parents[2] / "docs"
MODEL = (models.MADE / "cnn_int8.tflite").read_bytes()
ALL = [item for item in vars(formats).values() if isinstance(item, ModelFormat)]


def field(number: int, content: bytes | int) -> bytes:
    """Return a field of a protocol buffer."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def archive(*names: str, comment: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.comment = comment
        for name in names:
            file.writestr(name, b"content")
    return out.getvalue()


def tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        file.addfile(tarfile.TarInfo("x"))
    return out.getvalue()


def numpy_file() -> bytes:
    out = io.BytesIO()
    np.save(out, np.zeros(3))
    return out.getvalue()


NODE = field(1, b"input/x") + field(2, b"Placeholder")
FILES = {
    "empty": (b"", formats.EMPTY),
    "blank": (b" \n \n", formats.EMPTY),
    "onnx": (
        field(1, 8) + field(2, b"pytorch") + field(7, b"\n" * 99_999) + field(8, b"\x10\x11"),
        formats.ONNX,
    ),
    "keras": (archive("metadata.json", "config.json", "model.weights.h5"), formats.KERAS),
    "h5": (b"\x89HDF\r\n\x1a\n" + bytes(99), formats.HDF5),
    "h5 with a user block": (bytes(512) + b"\x89HDF\r\n\x1a\n" + bytes(99), formats.HDF5),
    "pt": (archive("kws/data.pkl", "kws/byteorder", "kws/data/0"), formats.PYTORCH),
    "old pt": (pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + b"\x80\x02", formats.PYTORCH),
    "torchscript": (
        archive("kws/data.pkl", "kws/code/__torch__.py", "kws/constants.pkl"),
        formats.TORCHSCRIPT,
    ),
    "pt2": (archive("kws/archive_format", "kws/models/model.json"), formats.EXPORTED_PROGRAM),
    "pte": (b"\x1c\0\0\0ET12eh00", formats.EXECUTORCH),
    "ptd": (b"\x1c\0\0\0FT01", formats.EXECUTORCH_DATA),
    "safetensors": (struct.pack("<Q", 2) + b'{"a":1}', formats.SAFETENSORS),
    "saved_model.pb": (field(1, 1) + field(2, field(1, b"\n" * 99_999)), formats.SAVED_MODEL_FILE),
    "saved model in a zip": (archive("m/saved_model.pb", "m/variables/variables.index"), formats.SAVED_MODEL),
    "frozen graph": (field(1, NODE) + field(1, NODE), formats.FROZEN_GRAPH),
    "tensorflow.js": (b'{"format": "layers-model", "modelTopology": {', formats.TENSORFLOW_JS),
    "core ml": (field(1, 7) + field(2, field(1, b"x")) + field(502, b"main"), formats.COREML),
    "core ml 1": (field(1, 1) + field(2, field(1, b"x")) + field(500, b"net"), formats.COREML),
    "mlpackage": (archive("Data/com.apple.CoreML/model.mlmodel", "Manifest.json"), formats.COREML),
    "openvino": (b'<?xml version="1.0"?>\n<net name="g" version="11">', formats.OPENVINO),
    "pickle": (pickle.dumps({"a": 1}), formats.PICKLE),
    "npy": (numpy_file(), formats.NUMPY),
    "npz": (archive("x.npy", "y.npy"), formats.NUMPY_ARCHIVE),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n", formats.LFS),
    "html": (b"\n\n<!DOCTYPE html>\n<html lang=en>", formats.HTML),
    "zip": (archive("readme.txt"), formats.ZIP),
    "zip without files": (archive(), formats.ZIP),
    "gzip": (b"\x1f\x8b\x08\0" + bytes(9), formats.COMPRESSED),
    "tar": (tar(), formats.COMPRESSED),
    "gguf": (b"GGUF\x03\0\0\0", formats.GGUF),
    "elf": (b"\x7fELF\x01\x01", formats.ELF),
    "graph text": (b"graph @g(%x: int8[1]) -> (%x) {\n}\n", formats.GRAPH_TEXT),
    "json": (b'{"layers": [1, 2]}', formats.JSON),
}


@pytest.mark.parametrize("name", FILES)
def test_formats(name: str, tmp_path: Path) -> None:
    """The suffix decides nothing; a path and bytes give the same message."""
    data, expected = FILES[name]
    assert recognise(io.BytesIO(data), len(data)) is expected
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    with pytest.raises(ModelFormatError) as error:
        load(path)
    assert str(error.value) == expected.message("model.tflite")
    with pytest.raises(ModelFormatError, match=re.escape(expected.message("x"))):
        import_model(data, source="x")


def test_a_model_is_not_another_format() -> None:
    assert recognise(io.BytesIO(MODEL), len(MODEL)) is None


def test_every_format_has_a_page_and_a_test() -> None:
    assert {kind.page for kind in ALL} == {
        "model-files.md",
        *(f"from-{x}.md" for x in ("keras", "onnx", "pytorch")),
    }
    assert all((DOCS / kind.page).is_file() for kind in ALL)
    assert {kind.name for kind in ALL} - {kind.name for _, kind in FILES.values()} == {formats.TFLITE.name}


@pytest.mark.parametrize(
    ("names", "remedy"),
    [
        (["a.txt", "out/kws.tflite"], "unpack 'out/kws.tflite', and pass it"),
        (["kws.onnx"], "unpack 'kws.onnx', and convert it with onnx2tf"),
    ],
)
def test_a_model_in_an_archive_is_named(names: list[str], remedy: str) -> None:
    data = archive(*names)
    found = recognise(io.BytesIO(data), len(data))
    assert found is not None
    assert (found.name, found.remedy) == ("a zip archive", remedy)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("saved_model.pb", "a TensorFlow SavedModel"),
        ("Manifest.json", "a Core ML model"),
        ("other", "it is a folder: pass a file in it"),
    ],
)
def test_folders(file: str, name: str, tmp_path: Path) -> None:
    (tmp_path / file).touch()
    with pytest.raises(InputError, match=name):
        load(tmp_path)


def test_only_the_beginning_of_a_large_file_is_read(tmp_path: Path) -> None:
    """A sparse file of 10 GB: its format is named, not its size."""
    path = tmp_path / "large.onnx"
    path.write_bytes(FILES["onnx"][0][: 1 << 16])
    with path.open("r+b") as file:
        file.truncate(10 << 30)
    with pytest.raises(ModelFormatError, match=r"large\.onnx is an ONNX model"):
        read_file(path)
    path.write_bytes(MODEL)
    with path.open("r+b") as file:
        file.truncate(10 << 30)
    with pytest.raises(InputError, match="is too large: the limit is"):
        read_file(path)


class Counting(io.BytesIO):
    """File that counts the bytes read."""

    count = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


def test_archives_are_not_unpacked() -> None:
    """Neither a file that decompresses to 100 MB nor a directory of 4 MB is read."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("kws/data.pkl", bytes(100_000_000))
    bomb = Counting(out.getvalue())
    assert recognise(bomb, 0) is formats.PYTORCH
    assert bomb.count < 200_000
    many = Counting(archive("kws/data.pkl", *(f"kws/data/{i:0200d}" for i in range(16_000))))
    assert recognise(many, 0) is formats.PYTORCH  # by the name of its first file
    assert many.count < formats.HEAD + formats.MAX_DIRECTORY + (1 << 17)


@pytest.mark.parametrize("length", [5, 100, -30])
def test_damaged_archives(length: int) -> None:
    data = archive("kws/data.pkl")[:length]
    assert recognise(io.BytesIO(data), len(data)) in (formats.PYTORCH, formats.ZIP)


@pytest.mark.parametrize(
    "data",
    [
        b"\x08" + b"\xff" * 99,
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x08\x07\x12" + b"\xff" * 9 + b"\x01",
        field(1, 7) * 30_000,
        b"[" * 100_000,
        b'{"a": ' + b"9" * 100_000,
        b"\x80",
        b"\x80\x04",
        bytes(1 << 17),
        b"\xff" * (1 << 17),
    ],
    ids=range(10),
)
def test_hostile_heads_end_soon(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tflite"
    path.write_bytes(data)
    begin = time.process_time()
    with pytest.raises(MicrofoldError):
        load(path)
    assert time.process_time() - begin < 2.0


def test_other_formats_as_graphs(tmp_path: Path) -> None:
    path = tmp_path / "x.mf"
    path.write_bytes(MODEL)
    with pytest.raises(InputError, match=r"x\.mf is a \.tflite file: give it the suffix \.tflite"):
        load_model(path)
    path.write_bytes(FILES["pt"][0].replace(b"data", b"\xff\xff\xff\xff"))
    with pytest.raises(InputError, match="is a zip archive"):
        load_model(path)
