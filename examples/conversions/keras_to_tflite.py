"""Convert a Keras 3 model to .tflite: float32 and int8.

Usage: python keras_to_tflite.py FOLDER

Packages: requirements-keras.txt. The network has random weights.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

SHAPE = (1, 49, 10, 1)
CALIBRATION_RUNS = 32  # use some hundred samples of your training data instead


def network() -> keras.Model:
    """Return a small network for features of 49 x 10."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(SHAPE[1:]),
            layers.Conv2D(64, (10, 4), strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.DepthwiseConv2D(3, padding="same"),
            layers.ReLU(),
            layers.Conv2D(64, 1),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(12, activation="softmax"),
        ]
    )


def samples() -> Iterator[list[np.ndarray]]:
    """Yield calibration data: one array per input of the model, preprocessed as in the training."""
    generator = np.random.default_rng(0)
    for _ in range(CALIBRATION_RUNS):
        yield [generator.normal(0, 1, SHAPE).astype(np.float32)]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    network().save(folder / "model.keras")
    model = keras.models.load_model(folder / "model.keras")

    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    (folder / "keras_f32.tflite").write_bytes(converter.convert())

    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = samples
    # Without this line, layers that cannot be quantised stay float32 without a message.
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = tf.int8
    converter.inference_output_type = tf.int8
    (folder / "keras_int8.tflite").write_bytes(converter.convert())


if __name__ == "__main__":
    main()
