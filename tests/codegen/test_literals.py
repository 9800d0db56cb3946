"""C literals read back as the numbers that they were."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from microfold.codegen.literals import array_lines, c_type, literal
from tests.codegen.toolchain import STRICT, run

ARRAYS = {
    "int8": np.array([-128, -1, 0, 127], np.int8),
    "uint8": np.array([0, 255], np.uint8),
    "int16": np.array([-32768, 32767], np.int16),
    "int32": np.array([-(2**31), -1, 2**31 - 1], np.int32),
    "uint32": np.array([0, 2**31, 2**32 - 1], np.uint32),
    "int64": np.array([-(2**63), -(2**31) - 1, -(2**31), 2**31, 2**32, 2**63 - 1], np.int64),
    "uint64": np.array([0, 2**32, 2**63, 2**64 - 1], np.uint64),
    "float16": np.array([0.0, -0.0, 1.5, np.inf, 6e-8], np.float16),
    "float32": np.array(
        [0.0, -0.0, 1e-45, 0.1, 1e10, -3.4028235e38, np.inf, -np.inf, np.nan, 16777217.0], np.float32
    ),
    "bool": np.array([True, False]),
}


def test_arrays_read_back(tmp_path: Path) -> None:
    source = "#include <math.h>\n#include <stdint.h>\n"
    for name, array in ARRAYS.items():
        rows = "\n".join(array_lines(array))
        source += (
            f"extern const {c_type(array)} a_{name}[];\nconst {c_type(array)} a_{name}[] = {{\n{rows}\n}};\n"
        )
    (tmp_path / "a.c").write_text(source)
    run(["cc", *STRICT, "-shared", "-fPIC", tmp_path / "a.c", "-o", tmp_path / "a.so"])
    library = ctypes.CDLL(str(tmp_path / "a.so"))
    for name, array in ARRAYS.items():
        data = (ctypes.c_char * array.nbytes).in_dll(library, f"a_{name}").raw
        if name == "float32":
            read = np.frombuffer(data, np.float32)
            np.testing.assert_array_equal(read, array)
            np.testing.assert_array_equal(np.signbit(read[:-2]), np.signbit(array[:-2]))
        else:
            assert data == array.tobytes(), name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (True, "1"),
        (0.5, "0.5f"),
        (3.0, "3.0f"),
        (np.float32(0.1), "0.1f"),
        (np.int32(-3), "-3"),
        (1e30, "1e+30f"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert literal(value) == text
