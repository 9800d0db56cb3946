"""Packages, held against the tools of their ecosystems; stubs stand for what comes from a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from microfold.export.package import About
from microfold.options import Options
from tests.codegen.toolchain import run
from tests.export.packages import GOOD, STUBS, example_of, files_of, write
from tests.needs import need_modules, need_tools

ABOUT = About("1.2.3", "Ann Example <ann@example.com>", "https://example.com/digits")
MIT = Options(license="MIT")


def output_of(binary: Path) -> str:
    return subprocess.run([binary], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["platformio", "arduino"])
def test_platformio_reads_the_manifest(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a licence, of which `pio pkg pack` fetches the list. PlatformIO reads Arduino's manifests, too."""
    need_modules("platformio")
    from platformio.package.manifest.parser import ManifestParserFactory
    from platformio.package.manifest.schema import ManifestSchema
    from platformio.package.pack import PackagePacker

    # It fetches the list of identifiers.
    licenses = {"licenses": [{"licenseId": "MIT"}]}
    monkeypatch.setattr(ManifestSchema, "load_spdx_licenses", staticmethod(lambda: licenses))
    folder = write(tmp_path / "package", files_of(kind, "cortex-m4", options=MIT, about=ABOUT))
    archive = PackagePacker(str(folder)).pack(str(tmp_path / "package.tar.gz"))
    manifest = ManifestSchema().load_manifest(ManifestParserFactory.new_from_archive(archive).as_dict())
    assert (manifest["name"], manifest["version"]) == ("microfold_digits", "1.2.3")
    assert manifest["authors"][0]["email"] == "ann@example.com"
    assert manifest["platforms"] == ["*"]
    (example,) = ManifestParserFactory.new_from_dir(str(folder)).as_dict()["examples"]
    assert "digits_example.c" in " ".join(example["files"])
    if kind == "platformio":
        assert manifest["license"] == "MIT"
    with tarfile.open(archive) as packed:
        assert {"src/digits.c", "src/digits.h", "LICENSE", "README.md"} < set(packed.getnames())


@pytest.mark.slow
def test_platformio_packs_the_library(tmp_path: Path) -> None:
    """`pio pkg pack`, which validates the manifest of what it has packed."""
    need_modules("platformio")
    folder = write(tmp_path / "package", files_of("platformio", about=ABOUT))
    environment = {**os.environ, "PLATFORMIO_CORE_DIR": str(tmp_path / "core")}
    command = [sys.executable, "-m", "platformio", "pkg", "pack", folder, "-o", tmp_path / "package.tar.gz"]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    with tarfile.open(tmp_path / "package.tar.gz") as packed:
        assert set(files_of("platformio", about=ABOUT)) <= set(packed.getnames())


@pytest.mark.slow
def test_the_example_of_platformio_runs_on_this_machine(tmp_path: Path) -> None:
    """As the platform `native` builds it, which comes from PlatformIO's registry: the system's compiler."""
    need_tools("cc", "c++")
    folder = write(tmp_path, files_of("platformio"))
    main = folder / "examples" / "check" / "src" / "main.cpp"
    assert output_of(example_of("platformio", folder, [main])).endswith(GOOD)
    loop = [main, STUBS / "arduino_main.cpp"]
    assert GOOD in output_of(example_of("platformio", folder, loop, ["-w", "-DARDUINO=10800"]))


# Arduino library specification, "library.properties file format": what is required, and the categories.
REQUIRED = {
    "name",
    "version",
    "author",
    "maintainer",
    "sentence",
    "paragraph",
    "category",
    "url",
    "architectures",
}


@pytest.mark.slow
def test_the_arduino_library(tmp_path: Path) -> None:
    need_tools("cc", "c++")
    folder = write(tmp_path, files_of("arduino", about=ABOUT))
    lines = (folder / "library.properties").read_text().splitlines()
    properties = dict(line.split("=", 1) for line in lines)
    assert len(properties) == len(lines)
    assert set(properties) >= REQUIRED
    assert properties["category"] == "Data Processing"
    assert (folder / "src" / properties["includes"]).is_file()
    for line in (folder / "keywords.txt").read_text().splitlines():
        assert re.fullmatch(r"\w+\t(KEYWORD1|KEYWORD2|LITERAL1)", line)
    # A sketch has the name of its folder; it may have C files beside it.
    (sketch,) = (folder / "examples").rglob("*.ino")
    assert sketch.stem == sketch.parent.name
    entry = [sketch, STUBS / "arduino_main.cpp"]
    assert GOOD in output_of(example_of("arduino", folder, entry))


# Zephyr's scripts/zephyr_module.py, METADATA_SCHEMA, as far as the package goes.
MODULE: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "build": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"cmake": {"type": "string"}, "kconfig": {"type": "string"}},
        },
        "samples": {"type": "array", "items": {"type": "string"}},
    },
}
# Symbols of Zephyr's arch/arm/core that the package counts on.
SYMBOLS = ("CPU_CORTEX_M4", "CPU_CORTEX_M7", "ARMV8_M_DSP", "ARMV7_M_ARMV8_M_MAINLINE", "ARMV8_1_M_MVEI")


@pytest.mark.slow
def test_the_zephyr_module(tmp_path: Path) -> None:
    import jsonschema  # takes seconds, which processes that only collect tests need not wait

    folder = write(tmp_path, files_of("zephyr", "cortex-m4"))
    module = yaml.safe_load((folder / "zephyr" / "module.yml").read_text())
    jsonschema.validate(module, MODULE)
    assert (folder / module["build"]["cmake"] / "CMakeLists.txt").is_file()
    assert (folder / module["build"]["kconfig"]).is_file()
    for sample in module["samples"]:
        assert list((folder / sample).rglob("sample.yaml"))
    assert yaml.safe_load((folder / "samples" / "check" / "sample.yaml").read_text())["tests"]


@pytest.mark.slow
@pytest.mark.parametrize(("core", "there", "value"), [
    ("cortex-m4", ["CPU_CORTEX_M4"], "y"),
    ("cortex-m4", ["ARMV8_M_DSP"], "y"),
    ("cortex-m4", ["ARMV7_M_ARMV8_M_MAINLINE"], "n"),
    ("cortex-m3", ["ARMV7_M_ARMV8_M_MAINLINE"], "y"),
    ("cortex-m55-nofp", ["ARMV8_1_M_MVEI"], "y"),
    ("cortex-m55-nofp", ["ARMV8_M_DSP"], "n"),
    ("cortex-m0plus", [], "y"),
])  # fmt: skip
def test_kconfig_offers_the_model_where_the_core_fits(
    core: str, there: list[str], value: str, tmp_path: Path
) -> None:
    need_modules("kconfiglib")
    import kconfiglib

    folder = write(tmp_path / "package", files_of("zephyr", core))
    symbols = "".join(
        f"config {name}\n\tdef_bool {'y' if name in there else 'n'}\n"
        for name in (*SYMBOLS, "ARMV8_1_M_MVEF")
    )
    top = tmp_path / "Kconfig"
    top.write_text(f'mainmenu "Zephyr"\n{symbols}config FPU\n\tbool "FPU"\nsource "{folder / "Kconfig"}"\n')
    config = kconfiglib.Kconfig(str(top), warn_to_stderr=False)
    config.load_config(str(folder / "samples" / "check" / "prj.conf"))
    assert config.syms["MICROFOLD_DIGITS"].str_value == value
    warnings = [text for text in config.warnings if "MAIN_STACK_SIZE" not in text]
    assert warnings == []
    if core == "cortex-m4":
        assert config.syms["FPU"].str_value == value


ZEPHYR = """
cmake_minimum_required(VERSION 3.20)
project(application LANGUAGES C)
include("{stubs}/ecosystems.cmake")
set(CONFIG_MICROFOLD_DIGITS {enabled})
add_subdirectory(package)
get_property(libraries GLOBAL PROPERTY LIBRARIES)
add_executable(check package/samples/check/src/main.c package/samples/check/src/digits_example.c)
target_include_directories(check PRIVATE "{stubs}")
target_link_libraries(check PRIVATE ${{libraries}} m)
"""


@pytest.mark.slow
def test_zephyrs_build_takes_the_module(tmp_path: Path) -> None:
    need_tools("cmake", "cc")
    write(tmp_path / "package", files_of("zephyr"))
    lists = tmp_path / "CMakeLists.txt"
    lists.write_text(ZEPHYR.format(stubs=STUBS, enabled="y"))
    run(["cmake", "-S", ".", "-B", "build"], tmp_path)
    run(["cmake", "--build", "build"], tmp_path)
    assert output_of(tmp_path / "build" / "check").endswith(GOOD)
    lists.write_text(ZEPHYR.format(stubs=STUBS, enabled="n").split("get_property")[0])
    assert "microfold_digits" not in run(["cmake", "-S", ".", "-B", "off"], tmp_path)


@pytest.mark.slow
def test_the_component_manager_reads_the_manifests(tmp_path: Path) -> None:
    """With the checks of an upload to the registry."""
    need_modules("idf_component_tools")
    from idf_component_tools.manager import ManifestManager, UploadMode

    folder = write(tmp_path / "package", files_of("esp-idf", options=MIT, about=ABOUT))
    manager = ManifestManager(folder, "microfold_digits", upload_mode=UploadMode.component)
    assert manager.validation_errors == []
    manifest = manager.load()
    assert (str(manifest.version), manifest.license) == ("1.2.3", "MIT")
    assert manifest.maintainers == ["Ann Example <ann@example.com>"]
    main = folder / "examples" / "check" / "main"
    manager = ManifestManager(main, "main", upload_mode=UploadMode.example)
    assert manager.validation_errors == []
    override = manager.load().dependencies["microfold_digits"].override_path
    assert (main / override).resolve() == folder


@pytest.mark.slow
def test_the_component_manager_packs_the_component(tmp_path: Path) -> None:
    """`compote component pack`"""
    need_modules("idf_component_manager")
    files = files_of("esp-idf", about=ABOUT)
    folder = write(tmp_path / "microfold_digits", files)
    code = "from idf_component_manager.cli.core import initialize_cli; initialize_cli()()"
    command = [sys.executable, "-c", code, "component", "pack", "--name", "microfold_digits"]
    environment = {**os.environ, "HOME": str(tmp_path), "IDF_TOOLS_PATH": str(tmp_path)}
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment)
    with tarfile.open(folder / "dist" / "microfold_digits_1.2.3.tgz") as packed:
        assert set(files) <= {name.removeprefix("./") for name in packed.getnames()}


IDF = """
cmake_minimum_required(VERSION 3.16)
project(application LANGUAGES C)
include("{stubs}/ecosystems.cmake")
set(COMPONENT microfold_digits)
add_subdirectory(package)
set(COMPONENT main)
add_subdirectory(package/examples/check/main)
target_link_libraries(main PRIVATE microfold_digits)
add_executable(check "{stubs}/esp_main.c")
target_link_libraries(check PRIVATE main m)
"""


@pytest.mark.slow
def test_esp_idfs_build_takes_the_component(tmp_path: Path) -> None:
    need_tools("cmake", "cc")
    write(tmp_path / "package", files_of("esp-idf"))
    (tmp_path / "CMakeLists.txt").write_text(IDF.format(stubs=STUBS))
    run(["cmake", "-S", ".", "-B", "build"], tmp_path)
    run(["cmake", "--build", "build"], tmp_path)
    assert output_of(tmp_path / "build" / "check").endswith(GOOD)


# Facts of Open-CMSIS-Pack-Spec's schema/PACK.xsd 1.7: patterns and values of what the package uses.
RESTRICTED = r"[\-_A-Za-z0-9]+"
COMPONENT_PART = r"[A-Za-z0-9][A-Za-z0-9_+()'/\-\s\.]{1,31}"
PATTERNS = {
    "Cvendor": r"[A-Za-z0-9][A-Za-z0-9\-\s]{1,31}",
    "Cclass": COMPONENT_PART,
    "Cgroup": COMPONENT_PART,
    "Csub": r"[A-Za-z0-9][A-Za-z0-9_+():/\- \.]{0,31}",
    "Cversion": r"(0|[1-9]\d*)\.([0-9]+)\.([0-9]+)",
    "condition": r"core",
}
CATEGORIES = {"doc", "header", "include", "source", "other"}
# Children of `package`, of which each may be there once.
PARTS = ("vendor", "name", "description", "url", "license", "licenseSets", "releases", "keywords", "taxonomy")


@pytest.mark.slow
@pytest.mark.parametrize(
    "core", ["host", "cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m55", "cortex-m85"]
)
def test_the_pack_description(core: str, tmp_path: Path) -> None:
    folder = write(tmp_path, files_of("cmsis-pack", core, options=Options(weights="blob"), about=ABOUT))
    (path,) = folder.glob("*.pdsc")
    package = ET.parse(path).getroot()
    children = [child.tag for child in package]
    assert [*PARTS, *(["conditions"] if "conditions" in children else []), "components"] == children
    assert (package.findtext("vendor"), package.findtext("name")) == ("Ann-Example", "microfold_digits")
    assert all(re.fullmatch(RESTRICTED, str(package.findtext(tag))) for tag in ("vendor", "name"))
    assert re.fullmatch(r"1\.7\.\d+", package.attrib["schemaVersion"])
    (component,) = package.iter("component")
    assert all(re.fullmatch(PATTERNS[name], value) for name, value in component.attrib.items())
    assert (
        ("condition" in component.attrib)
        == ("conditions" in children)
        == (core not in ("host", "cortex-m0plus"))
    )
    for accept in package.iter("accept"):
        assert set(accept.attrib) <= {"Dcore", "Ddsp", "Dmve"}
        assert re.fullmatch(r"Cortex-M(3|4|7|33|35P|52|55|85)", accept.attrib["Dcore"])
    files = list(package.iter("file"))
    assert {file.attrib["category"] for file in files} <= CATEGORIES
    for file in files:
        named = folder / file.attrib["name"]
        assert named.is_dir() if file.attrib["category"] == "include" else named.is_file()
        assert file.attrib.get("attr", "template") == "template"
    # The name that the specification asks for.
    (archive,) = folder.glob("*.pack")
    assert archive.name == "Ann-Example.microfold_digits.1.2.3.pack"
    with zipfile.ZipFile(archive) as packed:
        assert packed.testzip() is None
        assert path.name in packed.namelist()


@pytest.mark.slow
def test_the_component_and_its_template_run(tmp_path: Path) -> None:
    need_tools("cc")
    folder = write(tmp_path, files_of("cmsis-pack"))
    assert output_of(example_of("cmsis-pack", folder, [folder / "example" / "main.c"])).endswith(GOOD)


@pytest.mark.slow
def test_the_example_of_a_pack_is_for_any_board() -> None:
    """It prints by printf, without the simulator's start-up code."""
    files = files_of("cmsis-pack", "cortex-m4")
    assert not any("board/" in name for name in files)
    assert "stdio.h" in str(files["example/main.c"])
