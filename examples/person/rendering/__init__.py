"""Camera frames of rendered scenes, with and without a person; needs numpy only."""

import numpy as np

from . import camera
from .backgrounds import background
from .people import draw_person, random_clothes, random_pose
from .things import draw_thing


def random_frame(random, person, photos=()):
    """A camera's picture, uint8 [120, 160, 3], of a scene with or without a person in the middle."""
    height, width = camera.HEIGHT, camera.WIDTH
    scene = background(random, height, width, photos)
    for _ in range(random.integers(0, 4)):
        place = random.uniform(0, width), random.uniform(0.3, 0.9) * height
        draw_thing(scene, random, place, height * random.uniform(0.2, 0.8))
    if person:
        _random_person(scene, random)
    elif random.random() < 0.6:  # something as large as a person, in a person's place
        place = width / 2 + random.uniform(-0.35, 0.35) * height, random.uniform(0.35, 0.65) * height
        draw_thing(scene, random, place, height * random.uniform(0.5, 1.4))
    if random.random() < 0.3:  # in front
        place = random.uniform(0, width), random.uniform(0.8, 1.1) * height
        draw_thing(scene, random, place, height * random.uniform(0.2, 0.5))
    return camera.expose(random, scene)


def _random_person(scene, random):
    """One whose head and shoulders are in the picture: all of the figure, or the upper part, nearer."""
    height, width = scene.shape[:2]
    tall = height * np.exp(random.uniform(np.log(0.7), np.log(2.2)))
    head_x = width / 2 + random.uniform(-0.36, 0.36) * height
    lowest = min(0.65 * height, max(0.15 * height, height - 0.45 * tall))
    head = head_x, random.uniform(0.08 * height + 0.03 * tall, lowest)
    light = random.uniform(-0.4, 0.4, 2)
    draw_person(scene, random_clothes(random), random_pose(random), head, tall, light, random.random() < 0.5)
