"""Packages are built: with make and CMake for this machine and simulated cores, and by other compilers."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from microfold import target
from microfold.export.formats import FORMATS, find
from microfold.options import Options
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run
from tests.export.packages import GOOD, files_of, sources_of, write
from tests.frontend.models import MADE
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

WARNINGS = " ".join(flag for flag in STRICT if flag != "-std=c99")


def tools(core: str) -> tuple[str, ...]:
    return CROSS_TOOLS if core != "host" else ("cc",)


def printed_by(command: Sequence[str], folder: Path) -> str:
    """What a command prints that must succeed; QEMU's semihosting writes to standard error."""
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "core", sampled(["cortex-m4", "host", "cortex-m0plus", "cortex-m33", "cortex-m55"], 2)
)
def test_make_builds_and_runs_the_example(core: str, tmp_path: Path) -> None:
    need_tools("make", *tools(core))
    folder = write(tmp_path, files_of("make", core))
    assert printed_by(["make", "--silent", "check", f"CFLAGS=-O2 {WARNINGS}"], folder).endswith(GOOD)
    assert (folder / "build" / "libdigits.a").is_file()
    run(["make", "--silent", "clean"], folder)
    assert not (folder / "build").exists()


@pytest.mark.slow
@pytest.mark.parametrize("core", ["host", "cortex-m4"])
def test_cmake_builds_and_runs_the_example(core: str, tmp_path: Path) -> None:
    need_tools("cmake", "ctest", *tools(core))
    options = Options(weights="blob") if core == "host" else Options(io="caller")
    folder = write(tmp_path, files_of("cmake", core, options=options))
    chain = [] if core == "host" else ["-DCMAKE_TOOLCHAIN_FILE=example/board/toolchain.cmake"]
    run(["cmake", "-S", ".", "-B", "build", *chain], folder)
    run(["cmake", "--build", "build"], folder)
    assert GOOD.strip() in run(["ctest", "--test-dir", "build", "-V"], folder)


PROJECT = """
cmake_minimum_required(VERSION 3.21)
project(firmware LANGUAGES C)
add_subdirectory(package)
add_executable(firmware package/example/main.c package/example/cnn_int8_example.c)
target_link_libraries(firmware PRIVATE cnn_int8)
"""


@pytest.mark.slow
def test_a_project_adds_the_folder(tmp_path: Path) -> None:
    need_tools("cmake", "cc")
    write(tmp_path / "package", files_of("cmake", model=MADE / "cnn_int8.tflite"))
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    run(["cmake", "-S", ".", "-B", "build"], tmp_path)
    run(["cmake", "--build", "build"], tmp_path)
    assert run([tmp_path / "build" / "firmware"]).endswith(GOOD)
    # The example is the package's own affair.
    assert not list((tmp_path / "build").rglob("cnn_int8_check*"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", sampled((each.name for each in FORMATS), 2))
def test_sources_and_example_compile_for_a_cortex_m_and_as_cplusplus(kind: str, tmp_path: Path) -> None:
    """Without a warning; ESP-IDF's package is portable C."""
    need_tools("arm-none-eabi-gcc")
    core = "host" if kind == "esp-idf" else "cortex-m4"
    folder = write(tmp_path, files_of(kind, core))
    layout = find(kind)
    check = ["-fsyntax-only", *(f"-I{folder / name}" for name in (layout.headers, layout.sources))]
    flags = target.load("cortex-m4").cpu_flags
    for source in [*sources_of(kind, folder), folder / layout.example / "digits_example.c"]:
        run(["arm-none-eabi-gcc", *flags, *STRICT, *check, source])
        cplusplus = ["-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Werror"]
        run(["arm-none-eabi-gcc", *flags, *cplusplus, *check, source])


@pytest.mark.slow
def test_the_readme_says_how_to_run_the_example(tmp_path: Path) -> None:
    """Its commands, as they stand there."""
    need_tools("make", "cmake", "ctest", *CROSS_TOOLS)
    for kind in ("make", "cmake"):
        folder = write(tmp_path / kind, files_of(kind, "cortex-m4"))
        section = (folder / "README.md").read_text().split("## The example")[1]
        command = section.split("```sh\n")[1].split("```")[0]
        assert GOOD.strip() in printed_by(["sh", "-ec", command], folder)
