"""Antialiased shapes and textures on a canvas, float32 [height, width, 3] in 0 ... 1; lengths in pixels."""

import numpy as np


def capsule(canvas, start, end, start_radius, end_radius, colour, light=(0.0, 0.0)):
    """A line with round ends, thick as the radii say; a disc where `start` is `end`.

    `light` is how much brighter the colour becomes towards +x and +y, as a cylinder under a lamp does.
    """
    (ax, ay), (bx, by) = start, end
    reach = max(start_radius, end_radius) + 1
    area = _area(canvas, min(ax, bx) - reach, max(ax, bx) + reach, min(ay, by) - reach, max(ay, by) + reach)
    if area is None:
        return
    window, x, y = area
    dx, dy = bx - ax, by - ay
    along = np.clip(((x - ax) * dx + (y - ay) * dy) / max(dx * dx + dy * dy, 1e-6), 0, 1)
    across_x, across_y = x - ax - along * dx, y - ay - along * dy
    radius = start_radius + along * (end_radius - start_radius)
    cover = radius - np.hypot(across_x, across_y) + 0.5
    shade = 1 + (light[0] * across_x + light[1] * across_y) / np.maximum(radius, 1)
    _blend(window, cover, colour, shade)


def ellipse(canvas, centre, radii, colour, angle=0.0, light=(0.0, 0.0)):
    """An ellipse, turned by `angle` in radians."""
    (cx, cy), (rx, ry) = centre, radii
    reach = max(rx, ry) + 1
    area = _area(canvas, cx - reach, cx + reach, cy - reach, cy + reach)
    if area is None:
        return
    window, x, y = area
    u, v = _turned(x - cx, y - cy, angle)
    cover = (1 - np.hypot(u / rx, v / ry)) * min(rx, ry) + 0.5
    _blend(window, cover, colour, 1 + light[0] * (x - cx) / rx + light[1] * (y - cy) / ry)


def box(canvas, centre, half, colour, angle=0.0, light=(0.0, 0.0)):
    """A rectangle of the half sides `half`, turned by `angle` in radians."""
    (cx, cy), (hx, hy) = centre, half
    reach = np.hypot(hx, hy) + 1
    area = _area(canvas, cx - reach, cx + reach, cy - reach, cy + reach)
    if area is None:
        return
    window, x, y = area
    u, v = _turned(x - cx, y - cy, angle)
    cover = np.minimum(np.clip(hx - np.abs(u) + 0.5, 0, 1), np.clip(hy - np.abs(v) + 0.5, 0, 1))
    _blend(window, cover, colour, 1 + light[0] * u / hx + light[1] * v / hy)


def cloud(random, height, width, cells):
    """Smooth noise in -1 ... 1, float32 [height, width]: random values on a grid, interpolated."""
    rows, columns = cells + 2, max(2, round(cells * width / height)) + 2
    grid = random.uniform(-1, 1, (rows, columns)).astype(np.float32)
    return _interpolation(height, rows) @ grid @ _interpolation(width, columns).T


def stripes(random, height, width):
    """Parallel bands at a random angle, float32 [height, width] in -1 ... 1: curtains, blinds, boards."""
    angle = random.choice([0.0, np.pi / 2, random.uniform(0, np.pi)])
    y, x = np.mgrid[:height, :width].astype(np.float32)
    wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * random.uniform(0.15, 1.2) + random.uniform(0, 6))
    return np.clip(wave * random.choice([1, 5]), -1, 1)


def bricks(random, height, width):
    """Tiles or bricks with joints, float32 [height, width] in -1 ... 1."""
    across, down = random.uniform(8, 30), random.uniform(5, 20)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    row = np.floor(y / down)
    x = x + (row % 2) * across * random.choice([0.0, 0.5])
    joint = (x % across < random.uniform(1, 2.5)) | (y % down < random.uniform(1, 2.5))
    tone = np.sin(row * 12.9 + np.floor(x / across) * 78.2) * 0.4
    return np.where(joint, random.choice([-1, 1]), tone).astype(np.float32)


def blur(image, radius):
    """`image` [height, width, channels], smoothed by two passes of a box of 2 radius + 1 pixels."""
    for axis in (0, 1, 0, 1):
        image = box_average(image, radius, axis)
    return image


def box_average(image, radius, axis):
    """The mean of 2 radius + 1 neighbours along `axis`; edges are repeated."""
    width = [(0, 0)] * image.ndim
    width[axis] = (radius + 1, radius)
    sums = np.cumsum(np.pad(image, width, mode="edge"), axis=axis, dtype=np.float32)
    upper, lower = [slice(None)] * image.ndim, [slice(None)] * image.ndim
    upper[axis], lower[axis] = slice(2 * radius + 1, None), slice(None, -2 * radius - 1)
    return (sums[tuple(upper)] - sums[tuple(lower)]) / (2 * radius + 1)


def _area(canvas, left, right, top, bottom):
    """The part of the canvas within these bounds, and the coordinates of its pixels; None if it is empty."""
    height, width = canvas.shape[:2]
    x0, x1 = max(int(left), 0), min(int(right) + 1, width)
    y0, y1 = max(int(top), 0), min(int(bottom) + 1, height)
    if x0 >= x1 or y0 >= y1:
        return None
    y, x = np.ogrid[y0:y1, x0:x1]
    return canvas[y0:y1, x0:x1], x.astype(np.float32), y.astype(np.float32)


def _blend(window, cover, colour, shade):
    painted = np.clip(shade, 0.2, 1.8)[..., np.newaxis] * np.asarray(colour, np.float32)
    window += np.clip(cover, 0, 1)[..., np.newaxis] * (painted - window)


def _turned(x, y, angle):
    cosine, sine = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    return x * cosine + y * sine, y * cosine - x * sine


def _interpolation(pixels, points):
    """float32 [pixels, points]: linear interpolation between points, smoothed at each."""
    place = np.linspace(0, points - 1.001, pixels)
    left = place.astype(int)
    part = place - left
    part = part * part * (3 - 2 * part)
    weights = np.zeros((pixels, points), np.float32)
    weights[np.arange(pixels), left] = 1 - part
    weights[np.arange(pixels), left + 1] = part
    return weights
