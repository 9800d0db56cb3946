"""The line of `build` on int8: sizes of float32 models, and silence about others."""

from __future__ import annotations

from pathlib import Path

import pytest

from microfold import target
from microfold.compiler import compile_file, compile_graph
from microfold.frontend.tflite import import_model
from microfold.reporting.int8_size import Int8Size, int8_size
from tests.command_line import succeed
from tests.quantization.models import dense

MADE = Path(__file__).resolve().parents[1] / "models" / "made"
HOST = target.load("host")


def test_weights_have_a_byte_and_biases_four() -> None:
    program = compile_graph(import_model(dense()), HOST)
    assert int8_size(program) == Int8Size(12 + 3 * 4, -(-program.arena.size // 4))


@pytest.mark.parametrize(
    "name", ["cnn_int8", "cnn_f16", "cnn_dyn", "cnn_int8_floatio", "lstm_f32", "cnn_uint8io", "stream_f32"]
)
def test_other_models_have_no_estimate(name: str) -> None:
    assert int8_size(compile_file(MADE / f"{name}.tflite", HOST)) is None


def test_build_prints_one_line(tmp_path: Path) -> None:
    text = succeed("build", MADE / "cnn_f32.tflite", "-t", "host", "-o", tmp_path)
    (line,) = [line for line in text.splitlines() if "int8" in line]
    assert line.startswith("in int8, by the sizes of the tensors: about 2,")
    assert line.endswith("of arena; see `microfold quantize`")
