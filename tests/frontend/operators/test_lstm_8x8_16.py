"""LSTM cells of int8 with coupled gates, peephole, projection and layer normalisation, against LiteRT."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from microfold.ir.parse import parse
from microfold.ir.text import to_text
from microfold.ir.types import Array
from tests.needs import need_modules
from tests.recurrent_models import (
    Parts,
    Quantization,
    Sequence,
    inputs_of,
    integer_lstm,
    lstm_8x8_16,
)
from tests.tflite_writer import Writer

# Whether gates are coupled, and whether there are a peephole, a projection and layer normalisation.
COMBINATIONS = list(itertools.product((False, True), repeat=4))
RESET = 4


def draw_parts(rng: np.random.Generator, combination: tuple[bool, ...], outputs: int) -> Parts:
    coupled, peephole, projected, norm = combination
    clips = float(rng.choice([0.0, 0.7, 3.3])), float(rng.choice([0.0, 0.3])) * projected
    return Parts(coupled, peephole, outputs * projected, norm, clips)


def draw_quantization(rng: np.random.Generator) -> Quantization:
    cell, spread = 2.0 ** -int(rng.integers(9, 16)), float(rng.choice([0.1, 1.0, 4.0]))
    return Quantization(cell, spread, extreme=rng.integers(6) == 0)


def calls_of(rng: np.random.Generator, shape: tuple[int, ...]) -> list[Array]:
    """Over the whole range, all of them the largest or the smallest number, and near the middle."""
    drawn = [inputs_of(rng, [shape], "i1")[0] for _ in range(4)]
    middle = np.clip(rng.normal(0, 20, shape), -128, 127).astype(np.int8)
    return [*drawn, np.full(shape, 127, np.int8), np.full(shape, -128, np.int8), middle]


def check(data: bytes, calls: list[Array]) -> None:
    """Both begin anew in between."""
    need_modules("ai_edge_litert")
    from ai_edge_litert import interpreter as module

    kind = module.OpResolverType.BUILTIN_REF
    theirs = module.Interpreter(model_content=data, experimental_op_resolver_type=kind)
    theirs.allocate_tensors()
    (given,), (wanted,) = theirs.get_input_details(), theirs.get_output_details()
    ours = Interpreter(import_model(data))
    for call, inputs in enumerate(calls):
        if call == RESET:
            theirs.reset_all_variables()
            ours.reset()
        theirs.set_tensor(given["index"], inputs)
        theirs.invoke()
        np.testing.assert_array_equal(
            ours.run(inputs)[0], theirs.get_tensor(wanted["index"]), err_msg=f"call {call}"
        )


def check_random(seed: int, combination: tuple[bool, ...], time_major: bool, largest: int) -> None:
    rng = np.random.default_rng(seed)
    batch, steps, inputs, units = (int(rng.integers(1, high)) for high in (4, 8, 30, largest))
    outputs = int(rng.integers(1, units + 1)) if combination[1] else int(rng.integers(1, largest))
    if time_major and combination[1] and combination[2] and outputs >= 16:
        batch = 1  # else it is refused
    size = Sequence(batch, steps, inputs, units, time_major)
    w = Writer()
    lstm_8x8_16(w, rng, size, draw_parts(rng, combination, outputs), draw_quantization(rng))
    check(w.pack(), calls_of(rng, size.shape(inputs)))


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("combination", COMBINATIONS[1:])
def test_any_parts(combination: tuple[bool, ...], time_major: bool) -> None:
    check_random(1, combination, time_major, 40)


@pytest.mark.exhaustive
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("combination", COMBINATIONS[1:])
def test_many_of_any_parts(combination: tuple[bool, ...], time_major: bool) -> None:
    for seed in range(2, 20):
        check_random(seed, combination, time_major, 200 if seed % 2 else 40)


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_one_step(combination: tuple[bool, ...]) -> None:
    """TFLM has no such operator, so that LiteRT decides about the plain cell, too."""
    rng = np.random.default_rng(5)
    size = Sequence(2, 1, 9, 20, True)
    w = Writer()
    lstm_8x8_16(w, rng, size, draw_parts(rng, combination, 11), draw_quantization(rng), single=True)
    check(w.pack(), calls_of(rng, (size.batch, size.inputs)))


@pytest.mark.exhaustive
def test_hundreds_of_steps() -> None:
    for seed, combination in enumerate(COMBINATIONS[1:]):
        rng = np.random.default_rng(seed)
        size = Sequence(steps=400, inputs=6, units=18)
        w = Writer()
        lstm_8x8_16(w, rng, size, draw_parts(rng, combination, 5))
        check(w.pack(), calls_of(rng, size.shape(size.inputs))[:1])


def test_peephole_of_a_batch_with_fewer_outputs() -> None:
    """Its weights to the wrong units where the batch is time-major, and none beyond the outputs."""
    for time_major in (False, True):
        rng = np.random.default_rng(11)
        size = Sequence(3, 4, 7, 20, time_major)
        w = Writer()
        lstm_8x8_16(w, rng, size, Parts(peephole=True, projection=6))
        data = w.pack()
        (node,) = import_model(data).nodes
        assert node.operands[6].type.shape == (3 if time_major else 1, 3, 20)
        check(data, calls_of(rng, size.shape(size.inputs)))


def test_ties_of_a_peephole() -> None:
    """LiteRT multiplies sixteen units at a time, which round negative ties up, and others away from zero."""
    rng = np.random.default_rng(17)  # has ties that decide about outputs
    size = Sequence(batch=2, steps=12, inputs=28, units=17)
    w = Writer()
    lstm_8x8_16(w, rng, size, Parts(peephole=True), Quantization(2.0**-9, extreme=True))
    data, calls = w.pack(), calls_of(rng, size.shape(size.inputs))
    text = to_text(import_model(data))
    assert "rounded_up=16" in text
    ours, other = (Interpreter(parse(text.replace("rounded_up=16", f"rounded_up={n}"))) for n in (16, 0))
    assert any((ours.run(x)[0] != other.run(x)[0]).any() for x in calls)
    check(data, calls)


def test_the_text_form_holds_all_of_a_cell() -> None:
    w = Writer()
    parts = Parts(True, True, 3, True, (1.0, 0.5))
    lstm_8x8_16(w, np.random.default_rng(0), Sequence(), parts)
    text = to_text(import_model(w.pack()))
    assert to_text(parse(text)) == text


def _refused(monkeypatch: pytest.MonkeyPatch, write: Callable[[Writer], None], **changed: Any) -> str:
    """What is said of a file some of whose operands or intermediate tensors are changed."""
    add = Writer.operator

    def operator(w: Writer, name: str, inputs: list[int], *args: Any, **fields: Any) -> None:
        operands = changed.get("operands", lambda operands: operands)(list(inputs))
        between = changed.get("intermediates", lambda found: found)(list(fields.pop("intermediates", ())))
        add(w, name, operands, *args, intermediates=between, **fields)

    monkeypatch.setattr(Writer, "operator", operator)
    w = Writer()
    write(w)
    with pytest.raises(UnsupportedModelError) as caught:
        import_model(w.pack())
    return str(caught.value)


def _any(size: Sequence = Sequence(), parts: Parts = Parts(True, True, 3, True), **fields: Any) -> Any:  # noqa: B008
    return lambda w: lstm_8x8_16(w, np.random.default_rng(0), size, parts, **fields)


@pytest.mark.parametrize(
    ("write", "changed", "message"),
    [
        (_any(), {"intermediates": lambda _: []}, "intermediate tensor 1 must have one scale"),
        (_any(), {"intermediates": lambda found: found[:4]}, "intermediate tensor 4 must have one scale"),
        (_any(), {"intermediates": lambda found: [*found[:4], -1]}, "intermediate tensor 4 must have one"),
        (_any(parts=Parts(True)), {"intermediates": lambda _: []}, "intermediate tensor 4 must have"),
        (_any(), {"operands": lambda o: [*o[:10], -1, *o[11:]]}, r"inputs \[10, 11\] must all be present"),
        (
            _any(),
            {"operands": lambda o: [*o[:21], o[13], *o[22:]]},
            "one scale and zero point 0|norm must be",
        ),
        (
            _any(),
            {"operands": lambda o: [*o[:16], -1, -1, *o[18:]]},
            "without a projection, hidden must have",
        ),
        (_any(how=Quantization(0.0007)), {}, "scale must be a power of two"),
        (_any(how=Quantization(2.0**-16)), {}, "scale must be a power of two"),
        (_any(how=Quantization(2.0**-8)), {}, "scale must be a power of two"),
        (_any(parts=Parts(peephole=True, projection=5)), {}, "at least as many units as outputs"),
        (
            _any(Sequence(2, 3, 5, 20, True), Parts(peephole=True, projection=16)),
            {},
            "to the wrong units",
        ),
        (
            lambda w: integer_lstm(w, np.random.default_rng(0), Sequence(), "i2"),
            {"operands": lambda o: [*o[:16], o[1], *o[17:]]},
            "a cell of int16 with a projection is not supported: TFLM has no such cell",
        ),
        (
            lambda w: integer_lstm(w, np.random.default_rng(0), Sequence(), "i2"),
            {"operands": lambda o: [o[0], -1, *o[2:]]},
            "a cell of int16 with coupled input and forget gates",
        ),
    ],
)
def test_what_no_reference_computes_is_refused(
    write: Callable[[Writer], None],
    changed: dict[str, Callable[[list[int]], list[int]]],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = _refused(monkeypatch, write, **changed)
    assert re.search(message, found), found
