"""Open dimensions of inputs get a value at import."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from microfold.cli.app import application
from microfold.errors import InputError
from microfold.frontend.bind_symbolic_vars import parse_shapes
from microfold.frontend.tflite import load
from tests.frontend import models
from tests.transform.requested.test_change_batch import check_samples

NAME = "serving_default_keras_tensor:0"


@pytest.mark.parametrize(
    "name", ["cnn_int8", "dscnn_bn_f32", "zoo_int8", "tcn1d_int8", "gru_unrolled_f32", "attn_f32"]
)
def test_a_batch(name: str) -> None:
    """Shape computations and transposes follow, so that each sample gives what it gives alone."""
    path = models.MADE / f"{name}.tflite"
    graph = load(path)
    (value,) = graph.inputs
    check_samples(graph, load(path, {value.name: (3, 8, 8, 1)}), 3)


def test_shapes_from_text() -> None:
    assert parse_shapes(["a=1,49,10,1", "b=c=7"]) == {"a": (1, 49, 10, 1), "b=c": (7,)}
    for text in ("a", "a=", "=1", "a=-1,2", "a=1,", "a=1 2"):
        with pytest.raises(InputError, match="must have the form NAME=1,49,10,1"):
            parse_shapes([text])
    with pytest.raises(InputError, match="input 'a' must have one shape; two are given"):
        parse_shapes(["a=1", "a=2"])


@pytest.mark.parametrize("shape", [(1, 9, 8, 1), (8, 8, 1), (0, 8, 8, 1), (1 << 40, 8, 8, 1)])
def test_shapes_that_do_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"must match \[-1, 8, 8, 1\], where -1 is any size"):
        load(models.MADE / "cnn_int8.tflite", {NAME: shape})


def test_inputs_that_are_not_there() -> None:
    with pytest.raises(InputError, match=f"no input is named 'x'; the inputs are '{NAME}'"):
        load(models.MADE / "cnn_int8.tflite", {"x": (1, 8, 8, 1)})


def test_fixed_dimensions_stay() -> None:
    with pytest.raises(InputError, match=r"must match \[1, 4\], where -1 is any size"):
        load(models.MADE / "control_flow" / "call_f32.tflite", {"x": (2, 4)})


def test_command_line() -> None:
    model = str(models.MADE / "cnn_int8.tflite")
    result = CliRunner().invoke(
        application(), ["opt", model, "--passes", "inline", "--input-shape", f"{NAME}=2,8,8,1"]
    )
    assert result.exit_code == 0
    assert f"%{NAME}: int8[2,8,8,1]" in result.stdout
