"""Render the frames to train and to test with, as the network's pictures: build/train.npz, build/test.npz.

    pip install -r requirements-train.txt
    python render_set.py

Half of the frames have a person. Seeds are fixed. Some five minutes of a processor.
"""

from multiprocessing import Pool
from pathlib import Path

import numpy as np
from picture import scale
from rendering import random_frame
from rendering.camera import rgb565
from skimage import data, io, util
from skimage.color import gray2rgb
from sklearn.datasets import load_sample_image

BUILD = Path(__file__).resolve().parent / "build"
SIDE = 96
PORTION = 250  # frames of one generator
# Photos without people that packages bring, for backgrounds; training does not see those of the test.
SETS = {
    "test": (6, 2_000, ("flower.jpg", "gravel", "coffee", "motorcycle_left")),
    "train": (5, 15_000, ("china.jpg", "brick", "grass", "coins", "chelsea", "rocket")),
}


def load_photo(name):
    """float32 [h, w, 3]: *.jpg of scikit-learn, the others of scikit-image."""
    if name.endswith(".jpg"):
        return util.img_as_float32(load_sample_image(name))
    (path,) = Path(data.__file__).parent.glob(f"{name}.*")
    image = io.imread(path)
    return util.img_as_float32(gray2rgb(image) if image.ndim == 2 else image[..., :3])


def render(seed, photos):
    """uint8 [PORTION, 96, 96, 1], every other one with a person."""
    random = np.random.default_rng(seed)
    frames = (random_frame(random, person=i % 2 == 1, photos=photos) for i in range(PORTION))
    return np.stack([scale(rgb565(frame), SIDE, 1) for frame in frames])


def main():
    BUILD.mkdir(exist_ok=True)
    for name, (seed, count, photo_names) in SETS.items():
        photos = [load_photo(photo) for photo in photo_names]
        with Pool() as pool:
            pictures = pool.starmap(render, [((seed, i), photos) for i in range(count // PORTION)], 1)
        labels = (np.arange(count) % 2).astype(np.uint8)
        np.savez_compressed(BUILD / f"{name}.npz", pictures=np.concatenate(pictures), labels=labels)


if __name__ == "__main__":
    main()
