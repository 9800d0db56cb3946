"""Articulated figures: random pose, view, proportions, clothes and skin."""

from dataclasses import dataclass

import numpy as np

from . import drawing
from .backgrounds import colour

SKINS = (
    (0.95, 0.80, 0.69), (0.87, 0.67, 0.53), (0.76, 0.57, 0.42), (0.55, 0.38, 0.26), (0.36, 0.24, 0.17),
)  # fmt: skip
HAIR = (
    (0.08, 0.06, 0.05), (0.25, 0.15, 0.08), (0.5, 0.35, 0.18), (0.75, 0.62, 0.4), (0.6, 0.6, 0.6),
)  # fmt: skip


@dataclass(frozen=True)
class Clothes:
    """Colours [3] of one person, and how they are dressed."""

    skin: np.ndarray
    hair: np.ndarray
    shirt: np.ndarray
    trousers: np.ndarray
    shoes: np.ndarray
    long_sleeves: bool
    skirt: bool
    hat: bool
    long_hair: bool
    bag: bool
    build: float  # 1: average; more: broader


@dataclass(frozen=True)
class Pose:
    """Angles in radians from hanging straight down, towards +x; of the left and of the right limb."""

    lean: float
    upper_arms: tuple[float, float]
    elbows: tuple[float, float]
    thighs: tuple[float, float]
    knees: tuple[float, float]
    turn: float  # 0: seen from the front; 1: from the side
    nod: float


def random_clothes(random):
    shirt = colour(random)
    return Clothes(
        skin=np.array(SKINS[random.integers(len(SKINS))]) * random.uniform(0.85, 1.05),
        hair=np.array(HAIR[random.integers(len(HAIR))]),
        shirt=shirt,
        trousers=shirt if random.random() < 0.15 else colour(random, 0.03, 0.8),
        shoes=colour(random, 0.02, 0.6),
        long_sleeves=random.random() < 0.6,
        skirt=random.random() < 0.15,
        hat=random.random() < 0.15,
        long_hair=random.random() < 0.35,
        bag=random.random() < 0.15,
        build=random.uniform(0.85, 1.3),
    )


def random_pose(random):
    kind = random.choice(["stand", "walk", "wave", "sit", "any"], p=[0.3, 0.3, 0.12, 0.13, 0.15])
    arms, elbows = random.uniform(-0.25, 0.25, 2), random.uniform(0, 0.5, 2)
    thighs, knees = random.uniform(-0.12, 0.12, 2), random.uniform(-0.1, 0, 2)
    turn = random.uniform(0, 0.6)
    arms += np.array([-1, 1]) * random.uniform(0.05, 0.3) * (1 - turn)
    if kind == "walk":
        stride = random.uniform(0.2, 0.6) * random.choice([-1, 1])
        thighs, knees = np.array([stride, -stride]), -random.uniform(0, 0.7, 2)
        arms, turn = np.array([-stride, stride]) * random.uniform(0.5, 1.2), random.uniform(0.4, 1)
    elif kind == "wave":
        raised = random.integers(2)
        arms[raised], elbows[raised] = (2 * raised - 1) * random.uniform(1.6, 3.0), random.uniform(-0.8, 0.8)
    elif kind == "sit":
        thighs, knees = (
            random.uniform(1.0, 1.6) + random.uniform(-0.15, 0.15, 2),
            -random.uniform(1.2, 1.7, 2),
        )
        arms, turn = random.uniform(0.1, 0.9, 2), random.uniform(0.4, 1)
    elif kind == "any":
        arms, elbows = random.uniform(-2.5, 2.5, 2), random.uniform(-1.5, 1.5, 2)
        thighs, knees = random.uniform(-0.8, 0.8, 2), random.uniform(-1, 0, 2)
    nod = random.uniform(-0.2, 0.2)
    return Pose(random.normal(0, 0.06), tuple(arms), tuple(elbows), tuple(thighs), tuple(knees), turn, nod)


def draw_person(canvas, clothes, pose, head, height, light=(0.0, 0.0), mirrored=False):
    """A figure with the middle of its head at `head` (x, y), `height` pixels tall when it stands straight."""
    sign = -1.0 if mirrored else 1.0

    def at(origin, angle, length):
        """The point that lies `length` of the height from `origin`: at angle 0 below it."""
        return origin[0] + sign * np.sin(angle) * length * height, origin[1] + np.cos(angle) * length * height

    def limb(start, end, start_radius, end_radius, paint):
        drawing.capsule(canvas, start, end, start_radius * height, end_radius * height, paint, light)

    head = np.asarray(head, float)
    neck = at(head, pose.lean + pose.nod, 0.09)
    chest = at(neck, pose.lean, 0.075)
    hips = at(chest, pose.lean, 0.28)
    side = 1 - 0.75 * pose.turn
    shoulder_width, hip_width = 0.105 * side * clothes.build, 0.055 * side * clothes.build
    shoulders = [(chest[0] + s * shoulder_width * height, chest[1] - 0.02 * height) for s in (-1, 1)]
    hip_joints = [(hips[0] + s * hip_width * height, hips[1]) for s in (-1, 1)]

    def arm(i):
        elbow = at(shoulders[i], pose.upper_arms[i], 0.17)
        hand = at(elbow, pose.upper_arms[i] + pose.elbows[i], 0.16)
        limb(elbow, hand, 0.026, 0.02, clothes.shirt if clothes.long_sleeves else clothes.skin)
        limb(hand, at(hand, pose.upper_arms[i] + pose.elbows[i], 0.03), 0.022, 0.018, clothes.skin)
        limb(shoulders[i], elbow, 0.038 * clothes.build, 0.028, clothes.shirt)

    def leg(i):
        knee = at(hip_joints[i], pose.thighs[i], 0.24)
        ankle = at(knee, pose.thighs[i] + pose.knees[i], 0.23)
        lower = clothes.skin if clothes.skirt else clothes.trousers
        limb(knee, ankle, 0.038, 0.026, lower)
        limb(
            ankle,
            (ankle[0] + sign * 0.05 * height * pose.turn, ankle[1] + 0.025 * height),
            0.024,
            0.02,
            clothes.shoes,
        )
        limb(hip_joints[i], knee, 0.058 * clothes.build, 0.042, lower)

    arm(0)
    leg(0)
    leg(1)
    if clothes.skirt:
        middle = [(a + b) / 2 for a, b in zip(pose.thighs, pose.thighs[::-1], strict=True)]
        limb(hips, at(hips, middle[0], 0.18), 0.08 * clothes.build, 0.11, clothes.trousers)
    if clothes.bag:
        drawing.box(canvas, at(hips, 0.9, 0.12), (0.06 * height, 0.07 * height), clothes.shoes, light=light)
    if clothes.long_hair:
        limb(at(head, pose.lean, -0.01), at(head, pose.lean, 0.09), 0.065, 0.055, clothes.hair)
    for shoulder, hip in zip(shoulders, hip_joints, strict=True):
        limb(shoulder, hip, 0.045 * clothes.build, 0.055 * clothes.build, clothes.shirt)
    limb(chest, hips, 0.08 * clothes.build, 0.075 * clothes.build, clothes.shirt)
    limb(shoulders[0], shoulders[1], 0.042, 0.042, clothes.shirt)
    limb(head, neck, 0.03, 0.032, clothes.skin * 0.85)
    _draw_head(canvas, clothes, pose, head, height, light, sign)
    arm(1)


def _draw_head(canvas, clothes, pose, head, height, light, sign):
    x, y = head
    tilt = sign * pose.nod
    drawing.ellipse(
        canvas, (x, y - 0.012 * height), (0.056 * height, 0.068 * height), clothes.hair, tilt, light
    )
    face = (x + sign * pose.turn * 0.02 * height, y + 0.008 * height)
    drawing.ellipse(canvas, face, (0.046 * height, 0.058 * height), clothes.skin, tilt, light)
    if height > 60:  # else features are smaller than a pixel
        for s in (-1, 1):
            eye = (
                face[0] + (s * 0.018 * (1 - pose.turn / 2) + sign * 0.015 * pose.turn) * height,
                face[1] - 0.008 * height,
            )
            drawing.ellipse(canvas, eye, (0.008 * height, 0.006 * height), clothes.skin * 0.35, tilt)
        mouth = (face[0] + sign * 0.012 * pose.turn * height, face[1] + 0.03 * height)
        drawing.ellipse(
            canvas, mouth, (0.015 * height, 0.006 * height), clothes.skin * (0.75, 0.5, 0.5), tilt
        )
    fringe = (x - sign * 0.012 * pose.turn * height, y - 0.048 * height)
    drawing.ellipse(canvas, fringe, (0.05 * height, 0.025 * height), clothes.hair, tilt, light)
    if clothes.hat:
        drawing.ellipse(
            canvas, (x, y - 0.055 * height), (0.06 * height, 0.035 * height), clothes.shoes, tilt, light
        )
        drawing.box(canvas, (x, y - 0.04 * height), (0.085 * height, 0.009 * height), clothes.shoes, tilt)
