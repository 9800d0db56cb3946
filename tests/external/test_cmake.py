"""The CMake function with an external code generator: model and library become one program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_cmake import ROOT, cmake
from tests.frontend.models import MADE
from tests.needs import need_tools

PROJECT = """
cmake_minimum_required(VERSION 3.21)
project(demo LANGUAGES C)
add_subdirectory({root} microfold)
add_library(cmsis-nn STATIC {stub}/arm_nnfunctions.c)
target_include_directories(cmsis-nn PUBLIC {stub})
microfold_add_model(net MODEL {model} EXTERNAL cmsis-nn LIBRARIES cmsis-nn STEP
                    PLACE conv2d_1=.slow dense_1=.slower PLACE_CODE max_pooling2d_1=.fast)
add_executable(demo main.c)
target_link_libraries(demo PRIVATE net)
"""
MAIN = """
#include "net.h"

int main(void)
{
    static net_context network;
    net_init(&network);
    for (uint32_t layer = 0; layer < NET_LAYER_COUNT; layer++) {
        net_step(&network, layer);
    }
    return net_output_0(&network) == 0;
}
"""


@pytest.mark.slow
def test_model_and_library_are_linked(tmp_path: Path) -> None:
    need_tools("cmake", "cc")
    stub, model = Path(__file__).parent / "stub", MADE / "cnn_int8.tflite"
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(root=ROOT, stub=stub, model=model))
    (tmp_path / "main.c").write_text(MAIN)
    cmake("-S", tmp_path, "-B", tmp_path / "build", f"-DPython3_EXECUTABLE={sys.executable}")
    cmake("--build", tmp_path / "build")
    subprocess.run([tmp_path / "build" / "demo"], check=True)
    made = "".join((tmp_path / "build" / "net" / name).read_text() for name in ("net.c", "net_weights.c"))
    assert all(f'NET_PLACED(".{section}")' in made for section in ("slow", "slower", "fast"))
