"""Train a depthwise-separable CNN on ten keywords and convert it to a fully int8 keywords.tflite.

    apt install espeak-ng flite
    pip install -r ../digits/requirements-train.txt
    python train.py                 with synthesised speech alone
    python train.py --data FOLDER   with recordings, too: a folder for each word, as Speech Commands has them

It takes some 15 minutes of one core. Seeds are fixed; another CPU may still round a sum differently and train
other weights.
"""

import argparse
import os
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from augment import examples
from keras import layers
from log_mel import BANDS, COLUMNS, features, quantize
from speech import LABELS, recorded, synthesized

HERE = Path(__file__).resolve().parent
SEED = 1
EPOCHS = 15
BATCH = 64
# How many times a clip is trained with, each time in another room. Those of flite's few voices, which sound
# more like people, and recordings count for more than those of espeak-ng's many.
VERSIONS = {"espeak-ng": 3, "flite": 9, "recorded": 6}


def conv(x, filters, kernel, stride=1):
    x = layers.Conv2D(filters, kernel, stride, padding="same", use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization()(x))


def separable(x, filters, stride=1):
    """Depthwise 3x3, then pointwise 1x1: a 3x3 convolution at a fraction of its multiplications."""
    x = layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x)
    return conv(layers.ReLU()(layers.BatchNormalization()(x)), filters, 1)


def build_model():
    """Octaves above the floor, float32 [49, 32, 1], to the probabilities of the labels."""
    columns = keras.Input((COLUMNS, BANDS, 1), name="features")
    x = conv(columns, 48, (8, 6), (2, 4))
    x = separable(x, 48)
    x = separable(x, 64, 2)
    x = separable(x, 64)
    x = separable(x, 80)
    x = layers.AveragePooling2D(x.shape[1:3])(x)
    x = layers.Dropout(0.3)(layers.Flatten()(x))
    return keras.Model(columns, layers.Dense(len(LABELS), activation="softmax")(x), name="keywords")


def features_of(windows):
    """Features float32 [n, 49, 32, 1] of sounds int16 [n, 15680]."""
    return np.stack([features(window) for window in windows])[..., np.newaxis].astype(np.float32)


def train(model, inputs, labels):
    rate = keras.optimizers.schedules.CosineDecay(3e-3, EPOCHS * -(-len(inputs) // BATCH))
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(inputs, labels, batch_size=BATCH, epochs=EPOCHS, verbose=2)


def convert_int8(model, inputs):
    """The model as .tflite bytes: int8 in and out, weights per channel, ranges calibrated on `inputs`."""
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([one[np.newaxis]] for one in inputs)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = tf.int8
    converter.inference_output_type = tf.int8
    return converter.convert()


def run_int8(content, inputs):
    """Outputs int8 [n, 12] of the .tflite model for features float32 [n, 49, 32, 1]."""
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    outputs = []
    for one in quantize(inputs, *source["quantization"]):
        interpreter.set_tensor(source["index"], one[np.newaxis])
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(result["index"])[0])
    return np.stack(outputs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="a folder of recordings: a folder for each word, with WAV files")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    rng = np.random.default_rng(SEED)

    clips, noises = synthesized(rng), []
    if arguments.data:
        recordings, noises = recorded(arguments.data)
        clips += recordings
    training = [clip for clip in clips if not clip.held_out]
    print(f"{len(clips)} clips, {len(clips) - len(training)} of them held out")
    repeated = [clip for clip in training for _ in range(VERSIONS[clip.group])]
    windows, labels = examples(rng, repeated, training, noises)
    inputs = features_of(windows)

    model = build_model()
    train(model, inputs, labels)
    content = convert_int8(model, inputs[:: len(inputs) // 500])
    (HERE / "keywords.tflite").write_bytes(content)
    (HERE / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS), encoding="utf-8")

    for group in sorted({clip.group for clip in clips}):
        held_out = [clip for clip in clips if clip.held_out and clip.group == group]
        windows, labels = examples(rng, held_out, held_out, noises)
        inputs = features_of(windows)
        for name, outputs in (
            ("float32", model.predict(inputs, verbose=0)),
            ("int8", run_int8(content, inputs)),
        ):
            correct = int((outputs.argmax(axis=1) == labels).sum())
            print(f"{group}, {name} model: {correct} of {len(labels)} correct ({correct / len(labels):.1%})")
    print(f"keywords.tflite: {len(content)} bytes")


if __name__ == "__main__":
    main()
