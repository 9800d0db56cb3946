"""Empty scenes: rooms with walls and floors, textures, and photos."""

import numpy as np

from . import drawing


def colour(random, low=0.05, high=0.95):
    """A random colour: mostly dull, as things are."""
    grey = random.uniform(low, high)
    return np.clip(grey + random.uniform(-1, 1, 3) * random.choice([0.05, 0.15, 0.35]), low, high)


def background(random, height, width, photos=()):
    """An empty scene, float32 [height, width, 3]; `photos`, float32 [h, w, 3] each, are cut up for some."""
    if len(photos) and random.random() < 0.2:
        return _photo(random, height, width, photos[random.integers(len(photos))])
    canvas = np.empty((height, width, 3), np.float32)
    floor = height * random.uniform(0.45, 0.95)
    canvas[:] = colour(random, 0.15, 0.9)
    canvas[int(floor) :] = colour(random, 0.1, 0.8)
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j].astype(np.float32)
    slope_x, slope_y = random.uniform(-0.3, 0.3, 2)
    relief = slope_x * x + slope_y * y + random.uniform(0, 0.3) * drawing.cloud(random, height, width, 3)
    for _ in range(random.integers(0, 3)):
        texture = random.choice([_grain, drawing.stripes, drawing.bricks])(random, height, width)
        if random.random() < 0.5:
            texture[: int(floor)] = 0
        relief += random.uniform(0.03, 0.3) * texture
    canvas *= np.clip(1 + relief, 0.1, 2)[..., np.newaxis]
    for _ in range(random.integers(0, 4)):
        _wall_piece(canvas, random, floor)
    return canvas


def _grain(random, height, width):
    return drawing.cloud(random, height, width, int(random.integers(5, 40)))


def _photo(random, height, width, photo):
    rows, columns = photo.shape[:2]
    step = random.uniform(0.6, max(0.7, min(rows / height, columns / width)))
    y = (np.arange(height) * step + random.uniform(0, max(0, rows - height * step))).astype(int)
    x = (np.arange(width) * step + random.uniform(0, max(0, columns - width * step))).astype(int)
    part = photo[np.ix_(np.minimum(y, rows - 1), np.minimum(x, columns - 1))]
    return np.ascontiguousarray(part[:, :: random.choice([-1, 1])])


def _wall_piece(canvas, random, floor):
    """A door, or a picture or window on the wall."""
    height, width = canvas.shape[:2]
    x, half_width = random.uniform(0, width), random.uniform(0.04, 0.2) * width
    if random.random() < 0.3:
        half_height = random.uniform(0.3, 0.5) * height
        drawing.box(canvas, (x, floor - half_height), (half_width / 1.5, half_height), colour(random))
        return
    y, half_height = random.uniform(0, floor), random.uniform(0.05, 0.2) * height
    frame = random.uniform(1, 3)
    drawing.box(canvas, (x, y), (half_width + frame, half_height + frame), colour(random))
    drawing.box(canvas, (x, y), (half_width, half_height), colour(random), light=random.uniform(-0.4, 0.4, 2))
