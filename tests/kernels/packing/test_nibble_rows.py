"""Weights of four bits in pairs: of words for SMLAD, of rows for Helium."""

from __future__ import annotations

import numpy as np

from microfold.kernels.conv2d.s16_dsp import pack_channel_pairs
from microfold.kernels.conv2d.s16_mve import nibble_rows, row_weights
from microfold.kernels.fully_connected.s16_dsp import pack_unit_blocks


def matrix(channels: int, depth: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-8, 8, (channels, depth)).astype(np.int8)


def halves(bytes_: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lower and the upper nibble of each byte, as signed numbers."""
    signed = bytes_.view(np.int8)
    return (signed << 4).astype(np.int8) >> 4, signed >> 4


def test_neighbouring_words_share_one() -> None:
    weights = matrix(5, 12)
    plain = pack_channel_pairs(weights, "int8")
    packed = pack_channel_pairs(weights, "int4")
    assert packed.shape == (3, 3, 1)
    low, high = halves(packed.view(np.uint8).reshape(3, 3, 4))
    bytes_ = plain.view(np.int8).reshape(3, 6, 4)
    np.testing.assert_array_equal(low, bytes_[:, 0::2])
    np.testing.assert_array_equal(high, bytes_[:, 1::2])


def test_a_pair_of_inputs_of_four_units_is_a_word() -> None:
    weights = matrix(6, 7)
    plain = pack_unit_blocks(weights, "int8").view(np.int8).reshape(2, 4, 2, 4)
    low, high = halves(pack_unit_blocks(weights, "int4").view(np.uint8).reshape(2, 4, 4))
    np.testing.assert_array_equal(low, plain[:, :, 0])
    np.testing.assert_array_equal(high, plain[:, :, 1])


def test_the_last_two_channels_of_a_block_are_upper_nibbles() -> None:
    weights = matrix(6, 13)
    plain = row_weights(weights).array
    low, high = halves(nibble_rows(weights).array)
    np.testing.assert_array_equal(low, plain[:, :, :2])
    np.testing.assert_array_equal(high, plain[:, :, 2:])
