"""Packages in memory: what is in them, their names, and what happens to odd texts."""

from __future__ import annotations

import io
import json
import re
import subprocess
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from microfold.codegen.emit import emit_build
from microfold.codegen.names import model_identifier
from microfold.errors import InputError
from microfold.export.formats import COMMON, FORMATS, find
from microfold.export.names import (
    package_name,
    plain,
    vendor_name,
    why_not_author,
    why_not_url,
    why_not_vendor,
    why_not_version,
)
from microfold.export.package import About, make_package
from microfold.options import Options
from microfold.program import Origin
from microfold.reporting.data import build_report
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run
from tests.command_line import microfold, refuse, refuse_as_json, succeed
from tests.export.packages import DIGITS, GOOD, ROOT, compiled, example_of, files_of, sources_of, write
from tests.frontend.models import MADE
from tests.needs import need_tools

KINDS = [each.name for each in FORMATS]


@pytest.mark.parametrize("kind", KINDS)
def test_every_package_has_all_parts(kind: str) -> None:
    layout = find(kind)
    files = files_of(kind)
    assert {"README.md", "LICENSE"} < set(files)
    assert {f"{layout.headers}/digits.h", f"{layout.headers}/digits_helpers.h"} < set(files)
    assert {f"{layout.sources}/digits{part}" for part in (".c", "_weights.c", "_weights.h")} < set(files)
    assert {f"{layout.example}/digits_example.{suffix}" for suffix in "ch"} < set(files)
    readme = str(files["README.md"])
    assert f"| RAM: arena | {compiled(DIGITS, 'host', Options()).arena.size:,} bytes |" in readme
    assert "microfold build" not in readme  # nothing was told of a command
    assert "\n\n\n" not in readme
    texts = [content for content in files.values() if isinstance(content, str)]
    assert not any("{{" in text.replace("= {{", "") or "{%" in text for text in texts)


def test_every_template_is_of_a_format() -> None:
    used = {template for each in FORMATS for _, template in (*COMMON, *each.files, *each.board_files)}
    folder = ROOT / "templates"
    pages = {f"export/{kind}/{page}.md.j2" for kind in KINDS for page in ("usage", "example")}
    there = {path.relative_to(folder).as_posix() for path in (folder / "export").rglob("*.j2")}
    assert there == {name for name in used if name.startswith("export/")} | pages | {
        "export/arduino/sketch.j2"
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bytes_each_time(kind: str) -> None:
    assert files_of(kind) == files_of(kind)


# Arduino: library-specification; idf-component-manager: SLUG_REGEX and MAX_NAME_LENGTH in its
# manifest/constants.py; PACK.xsd: RestrictedString; Kconfig symbols; PlatformIO: ManifestSchema.name.
RULES = (
    r"[a-zA-Z0-9][a-zA-Z0-9 _.\-]{0,62}",
    r"[a-zA-Z\d]+(?:(?:[_-](?![_-]+))|(?:[a-zA-Z\d]))*[a-zA-Z\d]+",
    r"[\-_A-Za-z0-9]+",
    r"[a-z][a-z0-9_]*",
    r"[^:;/,@<>]{1,100}",
)


@pytest.mark.parametrize(
    "name", ["a", "log", "arduino_net", "gpio", "9 lives", "x" * 80, "a_" * 40, "__init__"]
)
def test_names_are_valid_everywhere(name: str) -> None:
    package = package_name(model_identifier(name))
    assert all(re.fullmatch(rule, package) for rule in RULES)
    assert len(package) < 64
    assert package not in ("log", "gpio")


ODD = "a\"b'c<d>&e$(f)`g{h}|i#j;k\\l\n\t*/ ${m} %n é 日.tflite"


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_models_stay_texts(kind: str) -> None:
    """A file name with everything that means something to one of the formats."""
    core = "host" if kind == "esp-idf" else "cortex-m4"
    program = replace(
        compiled(DIGITS, core, Options()), origin=Origin(ODD, 5, "0" * 64, f"microfold build '{ODD}'")
    )
    about = About("1.2.3", "Zoë O'Neil <zoe@example.com>", "https://example.com/a?b=1&c=%20")
    report = build_report(program, None)
    files = make_package(program, emit_build(program), report, find(kind), about)
    plainly = files_of(kind, core, about=about)
    for path, content in files.items():
        if path.endswith((".c", ".h", "README.md", ".pack")):
            continue  # tests/codegen/test_comment_safety.py is about those
        text = str(content)
        assert text.count("\n") == str(plainly.get(path, text)).count("\n"), path
        assert ODD[:6] not in text
        assert "${m}" not in text
    readme = str(files["README.md"])
    assert readme.count("```") == readme.count("\n```") and readme.count("```") % 2 == 0
    described = f"compiled from {plain(ODD)}"
    if kind == "platformio":
        manifest = json.loads(files["library.json"])
        assert described in manifest["description"]
        assert manifest["authors"] == [{"name": "Zoë O'Neil", "email": "zoe@example.com"}]
    elif kind == "cmsis-pack":
        (name,) = (name for name in files if name.endswith(".pdsc"))
        package = ET.fromstring(str(files[name]))
        assert described in str(package.findtext("description"))
        assert package.findtext("url") == about.url
        assert name == f"{package.findtext('vendor')}.{package.findtext('name')}.pdsc"
    elif kind == "esp-idf":
        manifest = yaml.safe_load(files["idf_component.yml"])
        assert described in manifest["description"]
        assert manifest["maintainers"] == [about.author]


def test_the_license_is_in_every_file() -> None:
    for kind in KINDS:
        files = files_of(kind, options=Options(license="MIT"))
        assert "SPDX-License-Identifier: MIT\n" in str(files["LICENSE"])
        for name, content in files.items():
            code = name.endswith((".c", ".h", ".cpp", ".ino", "CMakeLists.txt", "Makefile", "Kconfig"))
            if code and "board/" not in name:
                assert "SPDX-License-Identifier: MIT" in str(content)[:60], name
    assert (
        json.loads(files_of("platformio", options=Options(license="MIT"))["library.json"])["license"] == "MIT"
    )
    # Registries have no such identifier.
    assert "license" not in json.loads(files_of("platformio")["library.json"])


def test_the_archive_has_all_other_files() -> None:
    files = files_of("cmsis-pack")
    archive = files.pop("unknown.microfold_digits.1.0.0.pack")
    assert isinstance(archive, bytes)
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        assert {name: packed.read(name).decode() for name in packed.namelist()} == files


@pytest.mark.parametrize(("why_not", "good", "bad"), [
    (why_not_version, ["1.0.0", "0.10.2"], ["1.0", "1.0.0-rc1", "01.0.0", "1.0.0\n", "", "1.0.9999999"]),
    (why_not_author, ["Ann", "Ann B. <a@b.org>", "Zoë"], ["", "a\nb", 'a"b', "<a@b.c>", "a <b>", "a" * 81]),
    (why_not_vendor, ["", "Acme", "Acme-2"], ["A", "-A", "a b", "a" * 33, "é"]),
    (why_not_url, ["", "https://a.org", "http://a.org:8/b?c=d&e"], ["a.org", "https://a b", 'https://a/"']),
])  # fmt: skip
def test_what_manifests_may_say(why_not: Callable[[str], str], good: list[str], bad: list[str]) -> None:
    assert [why_not(text) for text in good] == [""] * len(good)
    assert all(why_not(text) for text in bad)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InputError, match=r"three numbers.*; the author must be a name.*; .*start with https"):
        About("1", '"', "a.org")


def test_manifests_have_the_vendor_and_the_home_page_that_are_given() -> None:
    url = "https://acme.example/net"
    files = files_of("cmsis-pack", about=About(author="Ann", url=url, vendor="Acme"))
    package = ET.fromstring(str(files["Acme.microfold_digits.pdsc"]))
    assert (package.findtext("vendor"), package.findtext("url")) == ("Acme", url)
    for kind, file, field in (
        ("platformio", "library.json", "homepage"),
        ("esp-idf", "idf_component.yml", "url"),
    ):
        given = yaml.safe_load(str(files_of(kind, "host", about=About(url=url))[file]))
        assert given[field] == url
        assert field not in yaml.safe_load(str(files_of(kind, "host")[file]))


def test_a_missing_home_page_is_announced(tmp_path: Path) -> None:
    words = ("export", DIGITS, "-t", "host", "--format", "arduino", "-o", tmp_path / "out")
    assert "no --url given: the manifest requires a home page" in microfold(*words).err
    assert microfold(*words, "--url", "https://acme.example").err == ""


def test_vendors_are_of_letters() -> None:
    assert [vendor_name(text) for text in ("Acme, Inc. <a@b.c>", "é", "a b")] == [
        "Acme-Inc",
        "microfold",
        "a-b",
    ]


@pytest.mark.parametrize(("arguments", "message"), [
    (["--format", "mbed"], "format must be one of platformio, arduino, zephyr, .*; got 'mbed'"),
    (["--format", "esp-idf", "-t", "cortex-m4"], "other than Cortex-M; the target is cortex-m4: choose host"),
    (["--format", "make", "--package-version", "1"], "three numbers"),
    (["--format", "make", "--external", "cmsis-nn"], "self-contained; .* remove --external"),
    (["--format", "make", "--vendor", "Acme"], "--vendor requires --format cmsis-pack; got --format make"),
    (["--format", "make", "--taps"], "self-contained; with --taps .* remove --taps"),
    ([], "--format"),
])  # fmt: skip
def test_what_cannot_be_exported(arguments: list[str], message: str, tmp_path: Path) -> None:
    command = ["export", MADE / "cnn_int8.tflite", "-o", tmp_path / "out", *arguments]
    assert re.search(message, refuse(*command))
    assert re.search(message, refuse_as_json(*command)["error"])
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_it_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = json.loads(succeed("export", DIGITS, "--format", "make", "-o", tmp_path / "out", "--json"))
    assert printed["format"] == "make"
    assert printed["report"]["model"] == "digits"
    there = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")}
    assert {*printed["files"]} - {"Makefile", "LICENSE"} == there - {"microfold.sha256"}
    monkeypatch.chdir(tmp_path)
    text = succeed("export", DIGITS, "--format", "make")
    assert "example/digits_example.c" in text
    listings = [(tmp_path / name / "microfold.sha256").read_text() for name in ("out", "microfold_digits")]
    assert listings[0] == listings[1]
    subprocess.run(["sha256sum", "--check", "--quiet", "microfold.sha256"], cwd=tmp_path / "out", check=True)


def test_the_example_tells_outputs_that_differ(tmp_path: Path) -> None:
    need_tools("cc")
    folder = write(tmp_path, files_of("make"))
    main = folder / "example" / "main.c"
    result = subprocess.run([example_of("make", folder, [main])], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (
        0,
        f"output 0: -128 -128 -126 -125 -128 -94 -128 -128 -81 42\n{GOOD}",
    )
    example = folder / "example" / "digits_example.c"
    example.write_text(example.read_text().replace("-94, -128", "-93, -128"))
    result = subprocess.run([example_of("make", folder, [main])], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stdout.endswith("outputs differ from the reference's\n")


EXAMPLES = {
    "blob": (DIGITS, Options(weights="blob")),
    "caller": (MADE / "cnn_int8.tflite", Options(io="caller")),
    "float": (MADE / "cnn_f32.tflite", Options()),
    "half": (MADE / "cnn_f16.tflite", Options()),
    "int16": (MADE / "cnn_int16x8.tflite", Options(single_file=True)),
    "relaxed": (MADE / "attn_f32.tflite", Options(numerics="relaxed")),
    "rows": (MADE / "cnn_int8.tflite", Options(io="rows")),
    "recurrent": (MADE / "gru_unrolled_int8.tflite", Options()),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", EXAMPLES)
def test_examples_of_all_kinds_of_models(case: str, tmp_path: Path) -> None:
    """Without a warning, as C99 and as C++11."""
    need_tools("cc", "c++")
    model, options = EXAMPLES[case]
    folder = write(tmp_path, files_of("make", model=model, options=options))
    (example,) = (folder / "example").glob("*_example.c")
    cplusplus = ["c++", "-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    for source in (example, *sources_of("make", folder)):
        run([*cplusplus, f"-I{folder / 'include'}", f"-I{folder / 'src'}", source])
    binary = example_of("make", folder, [folder / "example" / "main.c"], STRICT)
    assert run([binary]).endswith(GOOD)


def test_pages_and_help_name_all_formats() -> None:
    page = (ROOT / "docs" / "exporting.md").read_text()
    rows = [name for name in re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) if name in KINDS]
    assert rows == [*KINDS, *KINDS]  # how a project adds it, how it was tried
    shown = "".join(succeed("export", "--help").split())  # lines may be broken at hyphens
    assert all(kind in shown for kind in KINDS)
