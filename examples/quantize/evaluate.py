"""Print the accuracy of the float model and of the int8 model, and write the test set for the firmware.

    pip install -r requirements-evaluate.txt
    python evaluate.py build/digits_int8.tflite build/test_set.h

LiteRT computes both models, and TensorFlow Lite for Microcontrollers (TFLM) the int8 model. test_set.h has
the pixels, the labels, and the outputs of TFLM, with which the firmware compares its own.
"""

import sys
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tflite_micro import runtime

HERE = Path(__file__).resolve().parent


def run_litert(model, images):
    """Outputs [n, 10] for images float32 or int8 [n, 8, 8, 1], by LiteRT's reference kernels."""
    reference = OpResolverType.BUILTIN_REF
    interpreter = Interpreter(str(model), experimental_op_resolver_type=reference)
    interpreter.allocate_tensors()
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    outputs = []
    for image in images:
        interpreter.set_tensor(source["index"], image[np.newaxis])
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(result["index"])[0])
    return np.stack(outputs)


def run_tflm(model, images):
    """The same by TFLM, whose int8 arithmetic microfold reproduces bit for bit."""
    interpreter = runtime.Interpreter.from_file(str(model))
    outputs = []
    for image in images:
        interpreter.set_input(image[np.newaxis], 0)
        interpreter.invoke()
        outputs.append(interpreter.get_output(0)[0])
    return np.stack(outputs)


def quantize(model, images):
    """Real numbers as the int8 input of a model: to the nearest integer, halves upwards, none is negative."""
    scale, zero_point = Interpreter(str(model)).get_input_details()[0]["quantization"]
    return np.clip(np.floor(images / np.float32(scale) + 0.5) + zero_point, -128, 127).astype(np.int8)


def rows(array):
    """The rows of an integer array as C initialisers, one on each line."""
    flat = array.reshape(len(array), -1).tolist()
    return "".join("    {" + ", ".join(map(str, row)) + "},\n" for row in flat)


def main():
    model, header = map(Path, sys.argv[1:])
    images, labels = np.load(HERE / "test_images.npy"), np.load(HERE / "test_labels.npy")
    real = images.astype(np.float32) / np.float32(16)
    integers = quantize(model, real)
    outputs = run_tflm(model, integers)
    for name, found in (
        ("float32, LiteRT", run_litert(HERE / "digits.tflite", real)),
        ("int8, LiteRT", run_litert(model, integers)),
        ("int8, TFLM", outputs),
    ):
        correct = int((found.argmax(axis=1) == labels).sum())
        print(f"{name + ':':22} {correct} of {len(labels)} correct ({100 * correct / len(labels):.2f} %)")
    header.write_text(
        f"""\
#ifndef TEST_SET_H
#define TEST_SET_H

#include <stdint.h>

#define TEST_COUNT {len(images)}

/* Pixels from 0 to 16. */
static const uint8_t test_images[TEST_COUNT][{images[0].size}] = {{
{rows(images)}}};

static const uint8_t test_labels[TEST_COUNT] = {{{", ".join(map(str, labels.tolist()))}}};

/* Outputs of the int8 model, as TFLM computes them. */
static const int8_t test_outputs[TEST_COUNT][{outputs.shape[1]}] = {{
{rows(outputs)}}};

#endif
""",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
