"""Train a dense network 1 -> 16 -> 16 -> 1 on sin(x), 0 <= x <= 2 pi; convert it to an int8 sine.tflite.

pip install -r ../digits/requirements-train.txt
python train.py
"""

import os
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from keras import layers

HERE = Path(__file__).resolve().parent
SEED = 3
EPOCHS = 600
BATCH = 64


def convert_int8(model, x):
    """The model as .tflite bytes: int8 in and out, ranges calibrated on x."""
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([value[np.newaxis]] for value in x)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = tf.int8
    converter.inference_output_type = tf.int8
    return converter.convert()


def largest_error(content):
    """Largest difference of the int8 model from sin(x) over all 256 inputs that it can be given."""
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    in_scale, in_zero = source["quantization"]
    out_scale, out_zero = result["quantization"]
    worst = 0.0
    for q in range(-128, 128):
        interpreter.set_tensor(source["index"], np.array([[q]], np.int8))
        interpreter.invoke()
        y = out_scale * (int(interpreter.get_tensor(result["index"])[0, 0]) - out_zero)
        worst = max(worst, abs(y - np.sin(in_scale * (q - in_zero))))
    return worst


def main():
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    x = np.linspace(0, 2 * np.pi, 2000, dtype=np.float32)[:, np.newaxis]
    model = keras.Sequential(
        [
            keras.Input((1,), name="x"),
            layers.Dense(16, activation="relu"),
            layers.Dense(16, activation="relu"),
            layers.Dense(1, name="sine"),
        ],
        name="sine",
    )
    rate = keras.optimizers.schedules.CosineDecay(1e-2, EPOCHS * -(-len(x) // BATCH))
    model.compile(keras.optimizers.Adam(rate), "mse")
    model.fit(x, np.sin(x), batch_size=BATCH, epochs=EPOCHS, verbose=0)
    content = convert_int8(model, x)
    (HERE / "sine.tflite").write_bytes(content)
    print(f"float32 model: largest error {np.abs(model.predict(x, verbose=0) - np.sin(x)).max():.4f}")
    print(f"int8 model: largest error {largest_error(content):.4f}")
    print(f"sine.tflite: {len(content)} bytes")


if __name__ == "__main__":
    main()
