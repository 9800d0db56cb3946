"""C arrays are read as the models that they hold."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from microfold.cli.app import application
from microfold.compiler import compile_file
from microfold.errors import ModelFormatError
from microfold.frontend import tflite
from microfold.frontend.c_array import model_of_source
from microfold.target import load
from tests.frontend import models

MODEL = (models.MADE / "ops" / "abs_int8.tflite").read_bytes()


def listed(data: bytes, form: str = "0x{:02x}", per_line: int = 12) -> str:
    words = [form.format(byte) for byte in data]
    lines = [", ".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]
    return ",\n  ".join(lines)


XXD = f"unsigned char model_tflite[] = {{\n  {listed(MODEL)}\n}};\nunsigned int model_tflite_len = 0;\n"
# As the examples of TFLM have it, in the file of an attribute macro, too.
TFLM = f"""/* Copyright {{0x1c}} "x" */
#include "model.h"  // {{
#ifdef __has_attribute
#define HAVE_ATTRIBUTE(x) __has_attribute(x)
#endif
const char *const note = "/* not a comment: {{ \\" // ";
alignas(16) const unsigned char g_model[] DATA_ALIGN_ATTRIBUTE = {{
    {listed(MODEL, "0X{:02X}u")},  // the end
}};
const int g_model_len = {len(MODEL)};
"""
BIN2C = f"const char model[{len(MODEL)}]={{{','.join(map(str, MODEL))}}};"
SIGNED = f"static const int8_t m[] __attribute__((aligned(16))) = {{{listed(MODEL, '{}')}}};"
SIGNED = SIGNED.replace(listed(MODEL, "{}"), ", ".join(str(b - 256 if b > 127 else b) for b in MODEL))
OCTAL = f"const uint8_t m[] = {{{listed(MODEL, '0{:o}')}}};"
OTHERS = "const int8_t z[99] = {0}; const float f[2][1] = {{1.0f}, {3.0f}};\n" + XXD + "enum {A, B};"


@pytest.mark.parametrize(
    "text",
    [XXD, TFLM, BIN2C, SIGNED, OCTAL, OTHERS, XXD.replace("\n", "\r\n")],
    ids=["xxd", "tflm", "bin2c", "signed", "octal", "others", "crlf"],
)
def test_models(text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.cc"
    path.write_bytes(text.encode())
    assert tflite.read_file(path) == MODEL


def test_wherever_a_model_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "abs.h").write_text(XXD, encoding="utf-8")
    assert compile_file(tmp_path / "abs.h", load("host")).name == "abs"
    for command in ("inspect", "ir", "verify"):
        assert CliRunner().invoke(application(), [command, str(tmp_path / "abs.h")]).exit_code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (XXD + XXD.replace("model_", "other_"), r"has several, model_tflite and other_tflite for example"),
        ("extern const unsigned char g_model[];\n", "m.cc only declares the array g_model"),
        ("int main(void) { return 0; }\n", "text without a C array of a model"),
        (XXD.partition("}")[0], "the array model_tflite must end with '}'"),
        (XXD[:400], "the array model_tflite must end with '}'"),
        (XXD.replace("[]", "[7]"), f"must have its 7 declared elements; it has {len(MODEL)}"),
        (XXD.replace("\n}", ", 256\n}"), f"element {len(MODEL)} is '256'"),
        (XXD.replace("\n}", f", {'9' * 99_999}\n}}"), f"element {len(MODEL)} is '{'9' * 24}'"),
        # Behind the first megabyte, which is converted at once.
        (XXD.replace("\n}", ", 0" * 400_000 + ", 256\n}"), f"element {len(MODEL) + 400_000} is '256'"),
        (XXD.replace("\n}", ", 0x\n}"), "is '0x'"),
        (XXD.replace("\n}", ", 1 2\n}"), "is '1 2'"),
        (XXD.replace("\n}", ", ,\n}"), "is ''"),
        (XXD.replace("\n}", ", \xff\n}"), "must be bytes"),
    ],
    ids=range(13),
)  # fmt: skip
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(ModelFormatError, match=message):
        model_of_source(text.encode("latin-1"), "m.cc")


@pytest.mark.parametrize(
    "text",
    [
        lambda n: b"{" * n,
        lambda n: b"/*" * (n // 2),
        lambda n: b'"\\' * (n // 2),
        lambda n: b"'" * n,
        lambda n: b"//" * (n // 2),
        lambda n: b"a[" * (n // 2),
        lambda n: b"extern a[" * (n // 9),
        lambda n: b"extern " * (n // 7),
        lambda n: b" " * n + b"x",
        lambda n: b"a" * n,
        lambda n: b"a[]=" + b"{0x1c,0,0,0,84,70,76,51," + b"0," * (n // 2),
        lambda n: b"a[]=" + b"{0x1c,0,0,0,84,70,76,51}," * (n // 25),
        lambda n: b"a[]={0x1c,0,0,0,84,70,76,51," + b"1," * (n // 2) + b"};",
        lambda n: b"a[]={0x1c,0,0,0,84,70,76,51," + b"".join(b"%d," % i for i in range(256, n // 8)) + b"};",
    ],
    ids=range(14),
)
def test_hostile_sources_take_linear_time(text: Callable[[int], bytes]) -> None:
    begin = time.process_time()
    with contextlib.suppress(ModelFormatError):
        model_of_source(text(1 << 20), "m.cc")
    assert time.process_time() - begin < 2.0
