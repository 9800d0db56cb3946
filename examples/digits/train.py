"""Train a small CNN on scikit-learn's handwritten digits and convert it to a fully int8 digits.tflite.

Also writes the held-out test set, sorted by label: test_images.npy (the model's int8 input), test_labels.npy.
Seeds and split are fixed; another CPU may still round a sum differently and train other weights.

    pip install -r requirements-train.txt
    python train.py
    python evaluate.py --runtime tflite-micro --save
"""

import os
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from evaluate import run_litert
from keras import layers
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = Path(__file__).resolve().parent
SEED = 1
EPOCHS = 12
BATCH = 64


def load_split():
    """Images float32 [n, 8, 8, 1] in 0..1 and labels int64 [n]: 1437 to train with, 360 held out."""
    data, labels = load_digits(return_X_y=True)
    images = (data / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=0.2, random_state=SEED, stratify=labels
    )
    order = np.argsort(test_y, kind="stable")
    return train_x, train_y, test_x[order], test_y[order]


def conv(x, filters, kernel):
    return layers.BatchNormalization()(layers.Conv2D(filters, kernel, padding="same", use_bias=False)(x))


def separable(x, filters):
    """Depthwise 3x3, then pointwise 1x1: a 3x3 convolution at a fraction of its multiplications."""
    x = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    return conv(x, filters, 1)


def build_model():
    image = keras.Input((8, 8, 1), name="image")
    x = layers.ReLU()(conv(image, 16, 3))
    x = layers.ReLU()(layers.Add()([x, separable(x, 16)]))
    x = layers.MaxPooling2D(2)(x)
    x = layers.ReLU()(separable(x, 32))
    x = layers.AveragePooling2D(2)(x)
    x = layers.Dropout(0.3)(layers.Flatten()(x))
    return keras.Model(image, layers.Dense(10, activation="softmax")(x), name="digits")


def train(model, images, labels):
    """Fit on the images and on each moved by one pixel: nine times as many to learn from."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    moved = np.concatenate([padded[:, y : y + 8, x : x + 8] for y in range(3) for x in range(3)])
    rate = keras.optimizers.schedules.CosineDecay(3e-3, EPOCHS * -(-len(moved) // BATCH))
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")
    model.fit(moved, np.tile(labels, 9), batch_size=BATCH, epochs=EPOCHS, verbose=0)


def convert_int8(model, images):
    """The model as .tflite bytes: int8 in and out, weights per channel, ranges calibrated on `images`."""
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([image[np.newaxis]] for image in images)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = tf.int8
    converter.inference_output_type = tf.int8
    return converter.convert()


def quantize_images(images, content):
    """`images` as the int8 input of the .tflite model `content`."""
    interpreter = Interpreter(model_content=content)
    scale, zero_point = interpreter.get_input_details()[0]["quantization"]
    return np.clip(np.round(images / scale) + zero_point, -128, 127).astype(np.int8)


def main():
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    train_x, train_y, test_x, test_y = load_split()
    model = build_model()
    train(model, train_x, train_y)
    content = convert_int8(model, train_x[:300])
    test_images = quantize_images(test_x, content)
    (HERE / "digits.tflite").write_bytes(content)
    np.save(HERE / "test_images.npy", test_images)
    np.save(HERE / "test_labels.npy", test_y.astype(np.uint8))
    for name, outputs in (
        ("float32", model.predict(test_x, verbose=0)),
        ("int8", run_litert(test_images)),
    ):
        correct = int((outputs.argmax(axis=1) == test_y).sum())
        print(f"{name} model: {correct} of {len(test_y)} correct ({correct / len(test_y):.2%})")
    print(f"digits.tflite: {len(content)} bytes")


if __name__ == "__main__":
    main()
