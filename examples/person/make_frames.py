"""Render frames.rgb565, what the simulated camera sees: a room; somebody comes in, waves and goes.

python make_frames.py
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from rendering import background, camera, draw_person, draw_thing, random_clothes, random_pose

HERE = Path(__file__).resolve().parent
SEED = 18
# Where the head is and how tall the figure, in parts of the frame's height; None: nobody.
FRAMES = (None, (1.02, 0.33, 0.85), (0.72, 0.30, 0.95), (0.60, 0.22, 1.20), (0.95, 0.30, 0.95), None)


def main():
    random = np.random.default_rng(SEED)
    room = background(random, camera.HEIGHT, camera.WIDTH)
    for place in ((25, 80), (140, 85)):
        draw_thing(room, random, place, 60)
    clothes, poses = random_clothes(random), [random_pose(random) for _ in FRAMES]
    poses[3] = replace(poses[3], upper_arms=(-0.2, 2.4), elbows=(0.2, 0.5), turn=0.1)  # waves
    frames = []
    for figure, pose in zip(FRAMES, poses, strict=True):
        scene = room.copy()
        if figure is not None:
            x, y, tall = (part * camera.HEIGHT for part in figure)
            draw_person(scene, clothes, pose, (x, y), tall, light=(0.2, 0.1))
        frames.append(camera.rgb565(camera.expose(np.random.default_rng(SEED), scene)))
    (HERE / "frames.rgb565").write_bytes(np.stack(frames).tobytes())


if __name__ == "__main__":
    main()
