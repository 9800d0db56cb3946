"""The CMake function: an example for the host, run by ctest, and linked for a Cortex-M4."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import succeed
from tests.needs import CROSS_TOOLS, need_tools

ROOT = Path(__file__).resolve().parents[2]


def cmake(*arguments: str | Path) -> str:
    result = subprocess.run(
        [shutil.which("cmake") or "cmake", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
def test_host_build_and_ctest(tmp_path: Path) -> None:
    need_tools("cmake", "ctest", "cc")
    cmake("-S", ROOT, "-B", tmp_path, f"-DPython3_EXECUTABLE={sys.executable}")
    cmake("--build", tmp_path)
    result = subprocess.run(["ctest", "--test-dir", tmp_path], capture_output=True, text=True, check=False)
    assert "100% tests passed" in result.stdout, result.stdout + result.stderr
    for kept in (ROOT / "templates" / "__pycache__").glob("*"):
        kept.touch()
    assert "Compiling" not in cmake("--build", tmp_path)


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
        cmake("-S", tmp_path, "-B", tmp_path / "build", f"-DPython3_EXECUTABLE={sys.executable}")
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
    cmake("-S", ROOT, "-B", tmp_path, f"-DPython3_EXECUTABLE={sys.executable}", *options)
    cmake("--build", tmp_path)
    (image,) = tmp_path.rglob("sine_demo.elf")
    board = ["-M", "mps2-an386", "-display", "none", "-serial", "none", "-monitor", "none"]
    semihosting = ["-semihosting-config", "enable=on,target=native"]
    result = subprocess.run(
        ["qemu-system-arm", *board, *semihosting, "-kernel", image],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert re.search(r"6\.00 +-0\.2\d+ +-0\.279", result.stdout), result.stdout + result.stderr
