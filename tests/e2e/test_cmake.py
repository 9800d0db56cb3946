"""The CMake function: in the checkout and from a wheel, for the host and a Cortex-M4; options of `build`."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from microfold import __version__
from microfold.cli.build import build as build_command
from microfold.cli.groups import expand_groups
from microfold.cli.pass_options import WATCHING
from microfold.support.resources import cmake_dir
from tests.command_line import succeed
from tests.needs import CROSS_TOOLS, need_modules, need_tools

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
SINE = ROOT / "examples" / "sine" / "sine.tflite"
PYTHON = f"-DPython3_EXECUTABLE={sys.executable}"


def run_cmake(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    outside = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH")}
    command = [shutil.which("cmake") or "cmake", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**outside, **environment}
    )


def cmake(*arguments: str | Path, **environment: str) -> str:
    result = run_cmake(*arguments, **environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def listed(name: str) -> set[str]:
    """One of the lists of options in microfold.cmake."""
    found = re.search(
        rf"set\(MICROFOLD_{name}\s+([^()]*?)\s*CACHE", (cmake_dir() / "microfold.cmake").read_text()
    )
    assert found is not None
    return set(found[1].split())


# The function says these itself: the name is the library's, the folder is in the build tree.
OWN = {"models", "target", "name", "output", "as_json"}


def test_every_option_of_build_is_one_of_the_function() -> None:
    """But for those that only watch the passes."""
    wanted: dict[str, set[str]] = {"SWITCHES": set(), "VALUES": set(), "LISTS": set(), "FILES": set()}
    for name, parameter in inspect.signature(expand_groups(build_command)).parameters.items():
        if name in OWN | WATCHING:
            continue
        kind, option = get_args(parameter.annotation)
        word = option.default.removeprefix("--").replace("-", "_").upper()
        many = any("list" in str(part) for part in (kind, *get_args(kind)))
        wanted["SWITCHES" if kind is bool else "LISTS" if many else "VALUES"].add(word)
        if Path in {inner for part in get_args(kind) for inner in (part, *get_args(part))}:
            wanted["FILES"].add(word)
    for name, words in wanted.items():
        assert listed(name) == words, f"MICROFOLD_{name} in microfold/cmake/microfold.cmake"


@pytest.mark.slow
def test_host_build_and_ctest(tmp_path: Path) -> None:
    need_tools("cmake", "ctest", "cc")
    cmake("-S", ROOT, "-B", tmp_path, PYTHON)
    cmake("--build", tmp_path)
    result = subprocess.run(["ctest", "--test-dir", tmp_path], capture_output=True, text=True, check=False)
    assert "100% tests passed" in result.stdout, result.stdout + result.stderr
    for kept in (ROOT / "templates" / "__pycache__").glob("*"):
        kept.touch()
    assert "Compiling" not in cmake("--build", tmp_path)


# As FetchContent has it with a repository: the folder is added, the function is there.
OPTIONS = """
cmake_minimum_required(VERSION 3.21)
project(demo LANGUAGES C)
include(FetchContent)
FetchContent_Declare(microfold SOURCE_DIR "{root}")
FetchContent_MakeAvailable(microfold)
microfold_add_model(one MODEL {model} SINGLE_FILE FLASH 8000 LICENSE MIT NUMERICS relaxed OPT_LEVEL 2
                    WEIGHTS_SECTION .qspi DISABLE_PASS fold_constant inline EXTERNAL_FLAGS "-Iinclude -lm"
                    PLACE ${{nothing}} TARGET targets/own.toml)
microfold_add_model(two MODEL {model} WEIGHTS blob IO caller IO_LAYOUT NHWC OPTIMIZE size STEP HTML)
add_executable(demo main.c)
target_link_libraries(demo PRIVATE one two)
get_target_property(weights two MICROFOLD_WEIGHTS)
file(WRITE "${{CMAKE_BINARY_DIR}}/weights.txt" "${{weights}}")
"""
OWN_TARGET = 'description = "mine"\nfeatures = []\ncompiler = "cc"\ncpu_flags = []\n'
BOTH = '#include "one.h"\n#include "two.h"\nint main(void) { return ONE_API_VERSION - TWO_API_VERSION; }\n'


@pytest.mark.slow
def test_options_reach_the_build(tmp_path: Path) -> None:
    need_tools("cmake", "cc")
    (tmp_path / "CMakeLists.txt").write_text(OPTIONS.format(root=ROOT, model=SINE))
    (tmp_path / "main.c").write_text(BOTH)
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "own.toml").write_text(OWN_TARGET)
    build = tmp_path / "build"
    cmake("-S", tmp_path, "-B", build, PYTHON)
    cmake("--build", build)
    subprocess.run([build / "demo"], check=True)
    made = sorted(path.name for name in ("one", "two") for path in (build / name).iterdir())
    assert made == [
        "one.c", "one.h", "one_helpers.h", "one_report.json",
        "two.c", "two.h", "two_helpers.h", "two_report.html", "two_report.json", "two_weights.bin",
    ]  # fmt: skip
    assert (build / "weights.txt").read_text() == str(build / "two" / "two_weights.bin")
    first, second = (
        json.loads((build / name / f"{name}_report.json").read_text()) for name in ("one", "two")
    )
    assert shlex.split(first["origin"]["command"]) == [
        "microfold", "build", "sine.tflite", "--target", "own.toml", "--name=one", "--flash=8000",
        "--single-file", "--weights-section=.qspi", "--license=MIT", "--external-flags=-Iinclude -lm",
        "--opt-level=2", "--numerics=relaxed", "--disable-pass=fold_constant", "--disable-pass=inline",
    ]  # fmt: skip
    assert second["origin"]["command"] == (
        "microfold build sine.tflite --target host --name=two --optimize=size --io=caller --io-layout=NHWC"
        " --weights=blob --step"
    )


SEVERAL = """
cmake_minimum_required(VERSION 3.21)
project(demo LANGUAGES C)
add_subdirectory({root} microfold)
microfold_add_model(nets MODEL {models} OPTIMIZE size)
add_executable(demo main.c)
target_link_libraries(demo PRIVATE nets)
"""
TURNS = """
#include "nets.h"
static nets_arena arena;
static sine_context sine;
static digits_context digits;

int main(void) {
    nets_arena_init(&arena);
    sine_init(&sine);
    digits_init(&digits);
    sine_run(&sine, nets_take_sine(&arena));
    const int free = nets_take_digits(&arena) != 0;
    nets_give_back(&arena);
    digits_run(&digits, nets_take_digits(&arena));
    return free;
}
"""


@pytest.mark.slow
def test_several_models_are_one_library(tmp_path: Path) -> None:
    need_tools("cmake", "cc")
    (tmp_path / "CMakeLists.txt").write_text(SEVERAL.format(root=ROOT, models=f"{SINE} {DIGITS}"))
    (tmp_path / "main.c").write_text(TURNS)
    build = tmp_path / "build"
    cmake("-S", tmp_path, "-B", build, PYTHON)
    cmake("--build", build)
    subprocess.run([build / "demo"], check=True)
    stamp = (build / "nets" / "nets_kernels.c").stat().st_mtime_ns
    cmake("--build", build)
    assert (build / "nets" / "nets_kernels.c").stat().st_mtime_ns == stamp  # all files are known as made


def test_files_of_several_models_must_be_identifiers(tmp_path: Path) -> None:
    need_tools("cmake", "cc")
    (tmp_path / "CMakeLists.txt").write_text(SEVERAL.format(root=ROOT, models=f"{SINE} My-Net.tflite"))
    result = run_cmake("-S", tmp_path, "-B", tmp_path / "build", PYTHON)
    assert result.returncode != 0
    assert "the name of a model's file must be a lower-case C identifier" in " ".join(result.stderr.split())


LABELLED = """
cmake_minimum_required(VERSION 3.21)
project(demo LANGUAGES C)
add_subdirectory({root} microfold)
microfold_add_model(net MODEL {root}/examples/digits/digits.tflite LABELS labels.txt TAPS)
add_executable(demo main.c)
target_link_libraries(demo PRIVATE net)
"""


@pytest.mark.slow
def test_labels_and_taps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools("cmake", "cc")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "CMakeLists.txt").write_text(LABELLED.format(root=ROOT))
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "net_helpers.h"\n'
        "static net_context network;\n"
        "void net_tap_write(const void *bytes, uint32_t size) { fwrite(bytes, 1, size, stderr); }\n"
        "int main(void) { net_init(&network); net_run(&network); return puts(net_output_0_label(3)) < 0; }\n"
    )
    for three in ("three", "drei"):
        (tmp_path / "labels.txt").write_text("\n".join(["0", "1", "2", three, *"456789"]))
        cmake("-S", tmp_path, "-B", tmp_path / "build", PYTHON)
        cmake("--build", tmp_path / "build")
        demo = subprocess.run([tmp_path / "build" / "demo"], capture_output=True, check=True)
        assert demo.stdout == f"{three}\n".encode()
        (tmp_path / "records.bin").write_bytes(demo.stderr)
    succeed("diff", ROOT / "examples" / "digits" / "digits.tflite", "records.bin")


@pytest.mark.slow
def test_cortex_m4_build(tmp_path: Path) -> None:
    need_tools("cmake", *CROSS_TOOLS)
    toolchain = ROOT / "targets" / "arm-none-eabi.cmake"
    options = [f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DMICROFOLD_CPU=cortex-m4"]
    cmake("-S", ROOT, "-B", tmp_path, PYTHON, *options)
    cmake("--build", tmp_path)
    (image,) = tmp_path.rglob("sine_demo.elf")
    board = ["-M", "mps2-an386", "-display", "none", "-serial", "none", "-monitor", "none"]
    semihosting = ["-semihosting-config", "enable=on,target=native"]
    result = subprocess.run(
        ["qemu-system-arm", *board, *semihosting, "-kernel", image],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert re.search(r"6\.00 +-0\.2\d+ +-0\.279", result.stdout), result.stdout + result.stderr


INSTALLED = """
cmake_minimum_required(VERSION 3.21)
project(demo LANGUAGES C)
find_package(microfold {version} REQUIRED)
microfold_add_model(net MODEL model.tflite LABELS labels.txt)
add_executable(demo main.c)
target_link_libraries(demo PRIVATE net)
"""
CALLS = """
#include "net.h"

int main(void)
{
    static net_context network;

    net_init(&network);
    net_run(&network);
    return net_output_0(&network) == 0;
}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the wheel, without those that it needs."""
    need_modules("hatchling")
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder / "site", wheel]
    subprocess.run(pip, check=True)
    return folder / "site"


def project(folder: Path, version: str = "") -> Path:
    """A project with a model of its own, which finds an installed microfold."""
    (folder / "CMakeLists.txt").write_text(INSTALLED.format(version=version))
    (folder / "main.c").write_text(CALLS)
    (folder / "labels.txt").write_text("\n".join("0123456789"))
    shutil.copy(DIGITS, folder / "model.tflite")
    return folder


@pytest.mark.exhaustive
def test_find_package_from_a_wheel_for_a_cortex_m(installed: Path, tmp_path: Path) -> None:
    """And what asks for another build: the model, the labels, any part of microfold."""
    need_tools("cmake", *CROSS_TOOLS)
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "microfold", "--cmake-dir"]
    folder = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True).strip()
    assert Path(folder) == installed / "microfold" / "cmake"
    toolchain = installed / "microfold" / "_data" / "targets" / "arm-none-eabi.cmake"
    build = tmp_path / "build"
    options = [f"-Dmicrofold_DIR={folder}", f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", PYTHON]
    options += ["-DMICROFOLD_CPU=cortex-m4", "-DCMAKE_EXE_LINKER_FLAGS=-nostdlib -lc -Wl,-emain"]
    cmake("-S", project(tmp_path, __version__), "-B", build, *options)
    assert "Compiling model.tflite for cortex-m4" in cmake("--build", build)
    assert "for cortex-m4;" in (build / "net" / "net.h").read_text()
    dry = ("--build", build, "--", "-n")
    assert "Compiling" not in cmake(*dry)
    template = next((installed / "microfold" / "_data" / "templates" / "conv2d").glob("*.j2"))
    source = installed / "microfold" / "compiler.py"
    for changed in (tmp_path / "model.tflite", tmp_path / "labels.txt", source, template):
        before = changed.stat()
        changed.touch()
        assert "Compiling" in cmake(*dry), changed.name
        os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.slow
def test_versions_that_do_not_fit(tmp_path: Path) -> None:
    need_tools("cmake", "cc")
    major, minor = map(int, __version__.split(".")[:2])
    for version in (f"{major}.{minor + 1}", f"{major + 1}.0", f"{major}.{minor}.9999"):
        project(tmp_path, version)
        result = run_cmake("-S", tmp_path, "-B", tmp_path / "build", f"-Dmicrofold_DIR={cmake_dir()}", PYTHON)
        assert result.returncode != 0
        assert f"version: {__version__}" in result.stderr


@pytest.mark.slow
def test_projects_without_c_are_told(tmp_path: Path) -> None:
    need_tools("cmake")
    project(tmp_path)
    lists = tmp_path / "CMakeLists.txt"
    lists.write_text(lists.read_text().replace("LANGUAGES C", "LANGUAGES NONE"))
    result = run_cmake("-S", tmp_path, "-B", tmp_path / "build", f"-Dmicrofold_DIR={cmake_dir()}", PYTHON)
    assert "must enable the language C" in result.stderr


def test_the_folder_for_find_package() -> None:
    folder = Path(succeed("--cmake-dir").strip())
    assert {path.name for path in folder.iterdir()} >= {"microfold-config.cmake", "microfold.cmake", "run.py"}


# Only looks for the Python, which is quicker than a project.
LOOK = """
include("{folder}/microfold.cmake")
_microfold_find_command(command)
message(NOTICE "${{command}}")
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The package, with nothing beside it."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "microfold", tmp_path / "checkout" / "microfold", ignore=ignored)
    folder = tmp_path / "checkout" / "microfold" / "cmake"
    (tmp_path / "look.cmake").write_text(LOOK.format(folder=folder))
    return tmp_path


def python_in(folder: Path, script: str) -> Path:
    """An environment with something in place of Python."""
    python = folder / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return python


@pytest.mark.slow
def test_the_python_is_that_of_an_environment(copied: Path) -> None:
    need_tools("cmake")
    look = ("-P", copied / "look.cmake")
    beside = python_in(copied / "checkout" / ".venv", "exit 0")
    active = python_in(copied / "active", "exit 0")
    bare = python_in(copied / "bare", "exit 1")
    for named, environment, expected in (
        ("", "", beside),
        ("", str(copied / "active"), active),
        ("", str(copied / "bare"), beside),
        (str(bare), str(copied / "active"), active),
        (str(beside), str(copied / "active"), beside),
    ):
        result = run_cmake(f"-DPython3_EXECUTABLE={named}", *look, VIRTUAL_ENV=environment)
        assert result.stderr.split(";")[0] == str(expected), result.stderr


@pytest.mark.slow
def test_without_its_packages_one_message_says_what_to_do(copied: Path) -> None:
    need_tools("cmake")
    bare = python_in(copied / "bare", f'exec {shlex.quote(sys.executable)} -S "$@"')
    result = run_cmake(f"-DPython3_EXECUTABLE={bare}", "-P", copied / "look.cmake", PATH="/nowhere")
    assert result.returncode != 0
    message = " ".join(result.stderr.split())
    assert f"{bare}: ModuleNotFoundError: No module named" in message
    assert "Run .ci/setup" in message
    assert "-DPython3_EXECUTABLE=" in message
    assert "Traceback" not in result.stderr
    assert result.stderr.count("CMake Error") == 1
