"""Folders of images as sample data, read with Pillow."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from microfold.errors import InputError
from microfold.host.ports import Port
from microfold.ir.types import Array
from microfold.quantization.data import Data, refuse, value_faults
from microfold.quantization.preprocessing import Preprocessing

_MODES = {1: "L", 3: "RGB"}  # of Pillow, by channels


class ImageData(Struct, frozen=True, eq=False):
    """Images of a folder, converted to the size and the channels of an input [1, height, width, channels]."""

    folder: Path
    files: tuple[Path, ...]
    port: Port
    rule: Preprocessing

    @property
    def count(self) -> int:
        return len(self.files)

    def read(self, chosen: Sequence[int]) -> tuple[Array, ...]:
        try:
            from PIL import Image  # type: ignore[reportMissingImports]
        except ImportError:
            raise InputError(
                "reading images requires Pillow, which is not installed: pip install 'microfold[quantize]'"
            ) from None
        pillow: Any = Image
        _, height, width, channels = self.port.shape
        found: list[Array] = []
        problems: list[str] = []
        for path in (self.files[index] for index in chosen):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # large images, odd metadata
                    with pillow.open(path) as image:
                        pixels = image.convert(_MODES[channels])
                        pixels = pixels.resize((width, height), pillow.Resampling.BILINEAR)
                found.append(np.asarray(pixels, np.uint8).reshape(1, height, width, channels))
            except (OSError, ValueError, SyntaxError, EOFError, pillow.DecompressionBombError) as error:
                problems.append(f"{path.name} must be a readable image; it is not: {error}")
        refuse(self.folder, problems)
        array = self.rule.apply(np.stack(found))
        refuse(self.folder, value_faults(array, self.rule))
        return (array,)


def open_images(folder: Path, files: Sequence[Path], port: Port, rule: Preprocessing) -> Data:
    """Return the images of a folder; errors as for `open_data`."""
    problems: list[str] = []
    shape = port.shape
    if len(shape) != 4 or shape[0] != 1 or shape[3] not in _MODES or port.dtype != np.float32:
        problems.append(
            f"images fit an input float32[1,height,width,channels] with 1 or 3 channels; it is {port.type}: "
            "convert them in Python, and save them as .npy"
        )
    if not rule.std:
        problems.append(
            "the model does not state how pixels are converted: add --mean and --std, (x - mean) / std for "
            "pixels from 0 to 255; 0 and 1 keep the values"
        )
    refuse(folder, problems)
    return ImageData(folder, tuple(files), port, rule)
