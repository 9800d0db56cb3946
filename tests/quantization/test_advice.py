"""Advice: the cause of a loss decides the remedy."""

from __future__ import annotations

from msgspec.structs import replace

from microfold.quantization.advice import advise
from microfold.quantization.compare import LayerQuality
from microfold.quantization.schemes import SCHEMES

GOOD = LayerQuality(0, "a", "CONV_2D", "int8", 30.0, 40.0, 0.0, 0.0, 0, 8)
BAD = replace(GOOD, number=1, tensor="b", own_snr=12.0)


def test_the_layer_that_alone_loses_most_is_named() -> None:
    first, second = advise(SCHEMES["int8"], [replace(GOOD, snr=5.0), BAD])
    assert first == "most is lost in layer 1 (CONV_2D, 'b'): alone, it has 12.0 dB"
    assert second.startswith("cause: rounding; remedy: compute it in int16 (--layer 1=int16x8)")


def test_saturation_asks_for_data() -> None:
    _, text = advise(SCHEMES["int8"], [replace(BAD, saturated=0.03, saturation_noise=0.9)])
    assert "3 % of its values are outside" in text
    assert "--samples" in text


def test_differences_larger_than_the_values_are_not_rounding() -> None:
    _, text = advise(SCHEMES["float16"], [replace(BAD, type="float32", own_snr=-3.0)])
    assert "ai-edge-quantizer has misread this layer" in text
    assert "--layer 1=float" in text


def test_overflowed_biases_ask_for_wider_scales() -> None:
    _, text = advise(SCHEMES["int16x8"], [replace(BAD, type="int16", overflowed_biases=3)])
    assert "3 of its 8 biases exceed 32 bits and are wrong" in text
    assert "--layer 1=int8" in text
    _, text = advise(SCHEMES["int8"], [replace(BAD, overflowed_biases=3)])
    assert text.endswith("remedy: compute it in float (--layer 1=float)")


def test_nothing_is_advised_where_nothing_is_lost() -> None:
    assert advise(SCHEMES["int8"], [replace(GOOD, own_snr=None)]) == []
