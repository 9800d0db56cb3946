"""The numpy twin of scaler.c: a frame of RGB565 to a network's picture, in the same integers."""

from pathlib import Path

import numpy as np

HEIGHT, WIDTH = 120, 160  # of the frames that are committed


def load_frames():
    """The frames of frames.rgb565: uint8 [n, 120, 160, 2], the high byte of each pixel first."""
    content = Path(__file__).with_name("frames.rgb565").read_bytes()
    return np.frombuffer(content, np.uint8).reshape(-1, HEIGHT, WIDTH, 2)


def channels_of(frame, channels):
    """uint8 [h, w, 2], the high byte first, as int64 [h, w, channels] of 0 ... 255: RGB, or grey."""
    pixels = frame[..., 0].astype(np.int64) << 8 | frame[..., 1]
    red, green, blue = pixels >> 11, pixels >> 5 & 63, pixels & 31
    colours = np.stack([red << 3 | red >> 2, green << 2 | green >> 4, blue << 3 | blue >> 2], axis=-1)
    return colours if channels == 3 else (colours @ [77, 150, 29] + 128 >> 8)[..., np.newaxis]


def shares(size, side):
    """int64 [side, size]: how much of each of `size` pixels lies in each of `side`; in 1 / side."""
    pixel, cell = np.arange(size) * side, np.arange(side)[:, np.newaxis] * size
    return np.maximum(np.minimum(pixel + side, cell + size) - np.maximum(pixel, cell), 0)


def scale(frame, side, channels):
    """The middle square of `frame`, uint8 [h, w, 2], as uint8 [side, side, channels]: means of areas."""
    height, width = frame.shape[:2]
    size = min(height, width)
    top, left = (height - size) // 2, (width - size) // 2
    square = channels_of(frame[top : top + size, left : left + size], channels)
    weights = shares(size, side)
    sums = np.einsum("yi,ijc,xj->yxc", weights, square, weights, optimize=True)
    return ((sums + size * size // 2) // (size * size)).astype(np.uint8)
