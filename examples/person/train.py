"""Train a small separable CNN on rendered frames and convert it to a fully int8 person.tflite.

The frames are those of render_set.py: nothing here has seen a real person. Seeds are fixed; another CPU may
still round a sum differently and train other weights. Some ten minutes of a processor.

    pip install -r requirements-train.txt
    python render_set.py
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
from keras import layers
from sklearn.metrics import roc_auc_score

HERE = Path(__file__).resolve().parent
SEED = 5
SIDE = 96
EPOCHS = 10
BATCH = 50


def load(name):
    """Images float32 [n, 96, 96, 1] in 0 ... 1, and labels uint8 [n]: 1 with a person."""
    with np.load(HERE / "build" / f"{name}.npz") as data:
        return data["pictures"].astype(np.float32) / 255, data["labels"]


def conv(x, filters, kernel, stride=1):
    x = layers.Conv2D(filters, kernel, stride, padding="same", use_bias=False)(x)
    return layers.ReLU(6.0)(layers.BatchNormalization()(x))


def separable(x, filters, stride=1):
    """Depthwise 3x3, then pointwise 1x1: a 3x3 convolution at a fraction of its multiplications."""
    x = layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x)
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    return conv(x, filters, 1)


def build_model():
    image = keras.Input((SIDE, SIDE, 1), name="image")
    x = conv(image, 8, 3, stride=2)
    x = separable(x, 32, stride=2)
    x = separable(x, 32)
    x = separable(x, 48, stride=2)
    x = separable(x, 48)
    x = separable(x, 64, stride=2)
    x = separable(x, 64)
    x = separable(x, 96, stride=2)
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(image, layers.Dense(2, activation="softmax", name="scores")(x), name="person")


def vary(random, images):
    """The images [n, 96, 96, 1], each moved by up to six pixels and mirrored or not."""
    reach = 6
    varied = np.empty_like(images)
    padded = np.pad(images, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="edge")
    for i, (y, x) in enumerate(random.integers(0, 2 * reach + 1, (len(images), 2))):
        varied[i] = padded[i, y : y + SIDE, x : x + SIDE][:, :: random.choice([-1, 1])]
    return varied


def train(model, images, labels):
    rate = keras.optimizers.schedules.CosineDecay(4e-3, EPOCHS * -(-len(images) // BATCH))
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    random = np.random.default_rng(SEED)
    for epoch in range(EPOCHS):
        history = model.fit(
            vary(random, images), labels, batch_size=BATCH, epochs=epoch + 1, initial_epoch=epoch, verbose=0
        )
        print(f"epoch {epoch + 1}: {history.history['accuracy'][0]:.2%}", flush=True)


def convert_int8(model, images):
    """The model as .tflite bytes: int8 in and out, weights per channel, ranges calibrated on `images`."""
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    # A black and a white one, so that 0 ... 255 is the whole range of the input.
    ends = np.broadcast_to(np.array([0, 1], np.float32).reshape(2, 1, 1, 1), (2, SIDE, SIDE, 1))
    calibration = np.concatenate([ends, images])
    converter.representative_dataset = lambda: ([image[np.newaxis]] for image in calibration)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = tf.int8
    converter.inference_output_type = tf.int8
    return converter.convert()


def run_int8(content, images):
    """Outputs int8 [n, 2] of the .tflite model `content` for images float32 in 0 ... 1."""
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    outputs = []
    for image in images:
        pixels = np.round(image * 255) - 128
        interpreter.set_tensor(source["index"], pixels.astype(np.int8)[np.newaxis])
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(result["index"])[0])
    return np.stack(outputs)


def main():
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    train_x, train_y = load("train")
    test_x, test_y = load("test")
    model = build_model()
    train(model, train_x, train_y)
    content = convert_int8(model, train_x[:300])
    (HERE / "person.tflite").write_bytes(content)
    for name, outputs in (
        ("float32", model.predict(test_x, verbose=0)),
        ("int8", run_int8(content, test_x).astype(int)),
    ):
        correct = int((outputs.argmax(axis=1) == test_y).sum())
        area = roc_auc_score(test_y, outputs[:, 1])
        print(
            f"{name} model: {correct} of {len(test_y)} correct ({correct / len(test_y):.2%}), AUC {area:.4f}"
        )
    print(f"person.tflite: {len(content)} bytes")


if __name__ == "__main__":
    main()
