"""Print test_set.h: the test images, their labels and the original model's outputs as C arrays.

python make_test_set.py > test_set.h
"""

from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent


def rows(array):
    """The rows of a 2-D integer array as C initialisers, one a line."""
    return "".join("    {" + ", ".join(map(str, row)) + "},\n" for row in array.tolist())


def main():
    images = np.load(HERE / "test_images.npy")
    labels = np.load(HERE / "test_labels.npy")
    outputs = np.load(HERE / "test_outputs.npy")
    print(f"""\
#ifndef TEST_SET_H
#define TEST_SET_H

#include <stdint.h>

#define TEST_COUNT {len(images)}

/* Each image is the model's int8 input; the images are in the order of their labels. */
static const int8_t test_images[TEST_COUNT][{images[0].size}] = {{
{rows(images.reshape(len(images), -1))}}};

static const uint8_t test_labels[TEST_COUNT] = {{{", ".join(map(str, labels.tolist()))}}};

/* What the original model answers, as TensorFlow Lite for Microcontrollers computes it. */
static const int8_t test_outputs[TEST_COUNT][{outputs.shape[1]}] = {{
{rows(outputs)}}};

#endif""")


if __name__ == "__main__":
    main()
