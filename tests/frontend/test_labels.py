"""Names of classes: from the user's file, or from those behind a model, which nobody has to trust."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file, compile_graph
from microfold.errors import InputError
from microfold.frontend import labels
from microfold.frontend.labels import LabelFile, Labels, labels_of_model, parse_labels
from microfold.frontend.tflite import load
from tests.codegen.graphs import several_outputs
from tests.codegen.helper_library import HelperLibrary
from tests.command_line import microfold, refuse, refuse_as_json, succeed

CNN = Path(__file__).resolve().parents[1] / "models" / "made" / "cnn_int8.tflite"
TEN = tuple(f"class {n}" for n in range(10))
AWKWARD = ('a"b', "c\\d", "??/", "/* */", "//", "naïve", "日本", "%s", "", "{{ x }}")


def text(names: tuple[str, ...]) -> bytes:
    return "\n".join(names).encode()


def with_files(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The model with an archive behind it."""
    stream = io.BytesIO(CNN.read_bytes())
    with zipfile.ZipFile(stream, "a", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def test_texts() -> None:
    for content in (b"a\nb b\n\nc", b"\xef\xbb\xbfa\r\n b b \r\n\r\nc\r\n", b"a\nb b\n\nc\n\n\n"):
        assert parse_labels(content, "x").labels == ("a", "b b", "", "c")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x.txt has none"),
        (b"\n \n", "x.txt has none"),
        (b"a\nb\xff", "byte 3 of x.txt is 255: save it as UTF-8"),
        (b"a\n\x1b[2J", "line 2 of x.txt is '\\x1b[2J'"),
        (b"a\nb\0", "line 2 of x.txt"),
        (b"a\n" + b"b" * 257, "a label can have 256 bytes; line 2 of x.txt has 257"),
        (b"a\n" * 100_001, "the maximum is 100,000 labels; x.txt has 100,001"),
    ],
)
def test_texts_that_are_no_labels(content: bytes, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_labels(content, "x.txt")
    assert message in str(error.value)


def test_the_users_labels_are_in_the_header(tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_bytes(text(AWKWARD))
    report = json.loads(
        succeed("build", CNN, "-o", tmp_path / "out", "--labels", tmp_path / "l.txt", "--json")
    )
    assert report["outputs"][0]["labels"] == [*AWKWARD]
    header = (tmp_path / "out" / "cnn_int8.h").read_text()
    assert "--labels=l.txt" in header
    given = Labels((LabelFile("l", AWKWARD),))
    program = compile_graph(load(CNN), target.load("host"), labels=given)
    library = HelperLibrary(program, tmp_path, ("-O2", "-trigraphs"))
    found = [library("output_0_label", i).decode() for i in (*range(11), 1 << 31)]
    assert found == [*AWKWARD, "", ""]


def test_labels_that_fit_no_output(tmp_path: Path) -> None:
    path = tmp_path / "l.txt"
    path.write_bytes(text(TEN[:9]))
    message = refuse("build", CNN, "-o", tmp_path / "out", "--labels", path)
    assert "l.txt has 9 labels, the outputs are int8[1,10]: write one label per line" in message
    assert not (tmp_path / "out").exists()
    assert "9 labels" in refuse_as_json("build", CNN, "--labels", path)["error"]
    assert "cannot read" in refuse("build", CNN, "--labels", tmp_path / "none.txt")
    path.write_bytes(b"\xff")
    assert "must be UTF-8" in refuse("build", CNN, "--labels", path)


def test_each_output_gets_the_labels_that_fit() -> None:
    graph = several_outputs()
    three, four, eight = (LabelFile(str(n), TEN[:n]) for n in (3, 4, 8))
    other = LabelFile("later", ("w", "x", "y", "z"))
    program = compile_graph(graph, target.load("host"), labels=Labels((three, four, eight, other)))
    # The third is of shape [2, 3]: scores along its last axis.
    assert program.labels == ((), TEN[:4], TEN[:3], TEN[:4], TEN[:8])
    header = emit(program)["outputs_helpers.h"]
    assert header.count("_label(uint32_t index)") == 4
    assert "outputs_output_2_argmax" not in header


def test_labels_of_the_metadata(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(with_files({"vocab.txt": b"x\n" * 10, "a/labelmap.txt": b"x", "labels.TXT": text(TEN)}))
    program = compile_file(path, target.load("host"))
    assert program.labels == (TEN,)
    assert '"class 9",' in emit(program)["net_helpers.h"]
    # The user knows better.
    (tmp_path / "own.txt").write_bytes(text(TEN[::-1]))
    report = json.loads(succeed("build", path, "-o", tmp_path, "--labels", tmp_path / "own.txt", "--json"))
    assert report["outputs"][0]["labels"] == list(TEN[::-1])
    # Those that do not fit are left out, without a word: they may be of what comes behind the model.
    path.write_bytes(with_files({"labels.txt": text(TEN[:9])}))
    report = json.loads(succeed("build", path, "-o", tmp_path, "--json"))
    assert "labels" not in report["outputs"][0]
    assert report["labels_ignored"] is None


def hostile() -> dict[str, bytes]:
    good = with_files({"labels.txt": text(TEN)}, zipfile.ZIP_STORED)
    end = good.rfind(b"PK\x05\x06")
    entry = good.rfind(b"PK\x01\x02")
    encrypted = bytearray(good)
    encrypted[entry + 8] |= 1
    local = good.rfind(b"PK\x03\x04")
    encrypted[local + 6] |= 1
    wide = good[: end + 12] + struct.pack("<I", 1 << 17) + good[end + 16 :]
    return {
        "bomb": with_files({"labels.txt": b"a\n" * (1 << 22)}),
        "bombs": with_files({f"label{n}.txt": b"a\n" * (1 << 15) + b"a" for n in range(100)}),
        "bzip2": with_files({"labels.txt": text(TEN)}, zipfile.ZIP_BZIP2),
        "control": with_files({"labels\x1b[2J.txt": b"a\x1b[2J"}),
        "latin-1": with_files({"labels.txt": "é".encode("latin-1")}),
        "crc": good.replace(b"class 3", b"class X"),
        "password": bytes(encrypted),
        "directory": wide,
        "many": with_files({f"{n:0100}": b"" for n in range(1000)}),
        "end 64": good[:end] + b"PK\x06\x07" + bytes(16) + good[end:],
        "no directory": good[:entry] + b"JUNK" + good[entry + 4 :],
    }


@pytest.mark.parametrize("kind", hostile())
def test_archives_that_cannot_be_trusted_are_ignored(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(hostile()[kind])
    program = compile_file(path, target.load("host"))
    assert program.labels == ((),)
    assert program.labels_ignored.isprintable() and program.labels_ignored
    if kind == "bomb":
        said = succeed("build", path, "-o", tmp_path)
        assert "labels of the model are ignored: files of labels must have at most 4,194,304 bytes" in said


def test_damaged_archives() -> None:
    """Whatever is in one, labels are read or ignored."""
    rng = random.Random(1)
    good = with_files({"labels.txt": text(TEN), "label2.txt": text(TEN)})
    start = CNN.stat().st_size
    outcomes = set[bool]()
    for _ in range(3000):
        data = bytearray(good[: rng.choice([len(good), rng.randrange(start + 1, len(good))])])
        for _ in range(rng.choice([1, 2, 8])):
            data[rng.randrange(start, len(data))] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
        found = labels_of_model(bytes(data))
        assert found.ignored == "" or not found.files
        outcomes.add(bool(found.ignored))
    assert outcomes == {True, False}


def test_the_time_of_an_archive_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room for all files together, not for each of them."""
    monkeypatch.setattr(labels, "MAX_BYTES", 100)
    assert labels_of_model(with_files({"label1.txt": b"a" * 60, "label2.txt": b"b" * 40})).files
    assert (
        "in total" in labels_of_model(with_files({"label1.txt": b"a" * 60, "label2.txt": b"b" * 41})).ignored
    )


def test_a_model_without_an_archive() -> None:
    assert labels_of_model(CNN.read_bytes()) == Labels()
    assert microfold("build", CNN, "--labels", "", "-o", "/nowhere").status == 2
