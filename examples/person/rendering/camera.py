"""What a cheap camera makes of a scene: exposure, lens, noise, and a frame of RGB565."""

import numpy as np

from . import drawing

HEIGHT, WIDTH = 120, 160  # QQVGA


def expose(random, scene):
    """The scene float32 [HEIGHT, WIDTH, 3] as the sensor's picture, uint8 of the same shape.

    Light, colour of light, vignette, focus, shake, noise and contrast are random.
    """
    image = scene * np.exp(random.normal(0, 0.25)) * (1 + random.normal(0, 0.06, 3))
    if random.random() < 0.25:  # a lamp or the sun from one side
        x = np.linspace(-1, 1, WIDTH, dtype=np.float32)
        image *= (1 + random.uniform(-0.7, 0.7) * x)[:, np.newaxis]
    y, x = np.mgrid[-1 : 1 : HEIGHT * 1j, -1 : 1 : WIDTH * 1j].astype(np.float32)
    image *= (1 - random.uniform(0, 0.35) * (x * x + y * y) / 2)[..., np.newaxis]
    if random.random() < 0.5:
        image = drawing.box_average(image, 1, random.integers(2))
    if random.random() < 0.1:
        image = drawing.blur(image, int(random.integers(1, 3)))
    noise = random.normal(0, 1, image.shape).astype(np.float32)
    image += noise * (random.uniform(0, 0.015) + random.uniform(0, 0.03) * np.sqrt(np.clip(image, 0, 1)))
    image = np.clip((image - 0.5) * random.uniform(0.7, 1.3) + 0.5 + random.normal(0, 0.05), 0, 1)
    return np.round(255 * image ** random.uniform(0.7, 1.4)).astype(np.uint8)


def rgb565(picture):
    """`picture` uint8 [h, w, 3] as the camera sends it: uint8 [h, w, 2], the high byte first."""
    red, green, blue = np.moveaxis(picture.astype(np.uint16), -1, 0)
    pixels = (red >> 3) << 11 | (green >> 2) << 5 | blue >> 3
    return np.stack([pixels >> 8, pixels & 255], axis=-1).astype(np.uint8)
