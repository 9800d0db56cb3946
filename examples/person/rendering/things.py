"""What stands around where people are, some of it of a person's shape: the distractors."""

import numpy as np

from . import drawing
from .backgrounds import colour


def draw_thing(canvas, random, place, height):
    """A random thing whose middle is about `place` (x, y), some `height` pixels tall."""
    draw = THINGS[random.integers(len(THINGS))]
    draw(canvas, random, np.asarray(place, float), height, random.uniform(-0.4, 0.4, 2))


def moved(place, x, y):
    return np.array([place[0] + x, place[1] + y])


def furniture(canvas, random, place, height, light):
    """A cupboard or table: boxes with doors or legs."""
    half = np.array([random.uniform(0.2, 0.6), random.uniform(0.2, 0.5)]) * height
    paint = colour(random)
    if random.random() < 0.5:
        drawing.box(canvas, place, half, paint, light=light)
        for _ in range(random.integers(1, 4)):
            part = place + half * random.uniform(-0.6, 0.6, 2)
            drawing.box(
                canvas,
                part,
                half * random.uniform(0.1, 0.4, 2),
                paint * random.uniform(0.5, 1.2),
                light=light,
            )
        return
    drawing.box(canvas, (place[0], place[1] - half[1]), (half[0], 0.05 * height), paint, light=light)
    for side in (-0.9, 0.9):
        drawing.box(
            canvas, (place[0] + side * half[0], place[1]), (0.03 * height, half[1]), paint * 0.8, light=light
        )


def chair(canvas, random, place, height, light):
    paint, width = colour(random), random.uniform(0.12, 0.22) * height
    drawing.box(canvas, moved(place, 0, -0.2 * height), (width, 0.18 * height), paint, light=light)
    drawing.box(
        canvas, moved(place, 0, 0.02 * height), (width * 1.1, 0.04 * height), paint * 0.9, light=light
    )
    for side in (-1, 1):
        foot = moved(place, side * width * random.uniform(0.8, 1.2), 0.35 * height)
        drawing.capsule(
            canvas, moved(place, side * width * 0.9, 0), foot, 0.02 * height, 0.02 * height, paint * 0.7
        )


def lamp(canvas, random, place, height, light):
    """A pole with a shade or a ball where a head would be."""
    top, paint = moved(place, 0, -0.45 * height), colour(random)
    drawing.capsule(canvas, top, moved(place, 0, 0.45 * height), 0.015 * height, 0.02 * height, paint * 0.6)
    drawing.capsule(
        canvas,
        moved(place, -0.1 * height, 0.46 * height),
        moved(place, 0.1 * height, 0.46 * height),
        2,
        2,
        paint * 0.6,
    )
    radius = random.uniform(0.06, 0.15) * height
    if random.random() < 0.5:
        drawing.ellipse(
            canvas, top, (radius, radius * random.uniform(0.8, 1.2)), colour(random, 0.3, 1), light=light
        )
    else:
        drawing.capsule(
            canvas,
            moved(top, 0, -radius),
            moved(top, 0, radius),
            radius * 0.6,
            radius,
            colour(random, 0.3, 1),
            light,
        )


def plant(canvas, random, place, height, light):
    """A pot and leaves, or a tree with a crown."""
    green = np.array([0.2, 0.4, 0.15]) * random.uniform(0.5, 1.6)
    base = moved(place, 0, 0.3 * height)
    drawing.capsule(
        canvas,
        moved(place, 0, -0.1 * height),
        base,
        0.03 * height,
        0.04 * height,
        np.array([0.35, 0.25, 0.15]),
    )
    drawing.capsule(
        canvas, base, moved(base, 0, 0.12 * height), 0.12 * height, 0.09 * height, colour(random), light
    )
    for _ in range(random.integers(8, 25)):
        centre = place + random.normal(0, 0.14, 2) * height - (0, 0.15 * height)
        radii = np.array([random.uniform(0.05, 0.12), random.uniform(0.02, 0.05)]) * height
        drawing.ellipse(canvas, centre, radii, green * random.uniform(0.6, 1.4), random.uniform(0, 3), light)


def coat_stand(canvas, random, place, height, light):
    """Clothes without anybody in them, under a hat at times."""
    paint, top = colour(random), moved(place, 0, -0.4 * height)
    drawing.capsule(
        canvas, top, moved(place, 0, 0.48 * height), 0.015 * height, 0.015 * height, colour(random, 0.05, 0.4)
    )
    hem = moved(place, random.normal(0, 0.02) * height, random.uniform(-0.05, 0.2) * height)
    drawing.capsule(canvas, moved(top, 0, 0.12 * height), hem, 0.07 * height, 0.12 * height, paint, light)
    for side in random.choice([-1, 1], random.integers(0, 3)):
        drawing.capsule(
            canvas,
            moved(top, side * 0.06 * height, 0.1 * height),
            moved(hem, side * 0.1 * height, 0),
            0.03 * height,
            0.03 * height,
            paint * 0.85,
            light,
        )
    if random.random() < 0.2:
        drawing.ellipse(canvas, moved(top, 0, -0.02 * height), (0.08 * height, 0.03 * height), colour(random))


def bottle(canvas, random, place, height, light):
    """Bottles, vases, skittles and columns: a body, shoulders, and a narrow or no neck."""
    paint, width = colour(random), random.uniform(0.08, 0.16) * height
    drawing.capsule(
        canvas,
        moved(place, 0, -0.15 * height),
        moved(place, 0, 0.35 * height),
        width * random.uniform(0.7, 1),
        width,
        paint,
        light,
    )
    if random.random() < 0.7:
        drawing.capsule(
            canvas, moved(place, 0, -0.45 * height), place, width * 0.35, width * 0.4, paint * 0.9, light
        )


def animal(canvas, random, place, height, light):
    """Four legs below a lying body: a dog, a horse, a bench."""
    paint, length = colour(random, 0.05, 0.8), random.uniform(0.2, 0.35) * height
    sign = random.choice([-1, 1])
    for x in (-0.9, -0.7, 0.7, 0.9):
        hip = moved(place, x * length, 0)
        drawing.capsule(
            canvas,
            hip,
            moved(hip, random.normal(0, 0.03) * height, 0.25 * height),
            0.03 * height,
            0.02 * height,
            paint * 0.8,
            light,
        )
    drawing.capsule(
        canvas, moved(place, -length, 0), moved(place, length, 0), 0.1 * height, 0.09 * height, paint, light
    )
    head = moved(place, sign * length * 1.3, -random.uniform(0, 0.2) * height)
    drawing.capsule(canvas, moved(place, sign * length, 0), head, 0.05 * height, 0.05 * height, paint, light)
    drawing.ellipse(
        canvas, head, (0.1 * height, 0.06 * height), paint * 1.05, random.uniform(-0.5, 0.5), light
    )


def ball(canvas, random, place, height, light):
    radius = random.uniform(0.08, 0.3) * height
    drawing.ellipse(canvas, place, (radius, radius * random.uniform(0.8, 1.2)), colour(random), light=light)


def heap(canvas, random, place, height, light):
    """Limbs, boxes and discs in colours of clothes and skin, put together as no person is."""
    for _ in range(random.integers(4, 10)):
        start = place + random.normal(0, 0.2, 2) * height
        paint = colour(random)
        if random.random() < 0.5:
            end = start + random.normal(0, 0.15, 2) * height
            drawing.capsule(canvas, start, end, *random.uniform(0.02, 0.08, 2) * height, paint, light)
        else:
            drawing.box(
                canvas, start, random.uniform(0.03, 0.15, 2) * height, paint, random.uniform(0, 1.5), light
            )


THINGS = (furniture, chair, lamp, plant, coat_stand, bottle, animal, ball, heap)
