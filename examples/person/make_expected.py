"""Print expected.h: what the model answers for each frame, which the firmware compares with its own answers.

    python make_expected.py MODEL > expected.h

For person.tflite that is expected.npy, by TensorFlow Lite for Microcontrollers (evaluate.py --save); for any
other model, what microfold's C answers on this computer for the pictures of picture.py.
"""

import sys
from pathlib import Path

import numpy as np
from picture import load_frames, scale

HERE = Path(__file__).resolve().parent


def run_microfold(path):
    """The outputs [n, 2] of another model for all frames."""
    import microfold

    session = microfold.compile(path)
    (port,) = session.inputs
    _, side, _, channels = port.shape
    black = np.iinfo(port.dtype).min
    pictures = [scale(frame, side, channels).astype(int) + black for frame in load_frames()]
    return np.stack([session.run(picture.astype(port.dtype).reshape(port.shape))[0] for picture in pictures])


def main():
    model = Path(sys.argv[1])
    ours = model.resolve() == HERE / "person.tflite"
    outputs = np.load(HERE / "expected.npy") if ours else run_microfold(model)
    outputs = outputs.reshape(len(outputs), -1)
    rows = "".join("    {" + ", ".join(map(str, row)) + "},\n" for row in outputs.tolist())
    print(f"""\
#ifndef EXPECTED_H
#define EXPECTED_H

#include <stdint.h>

#define FRAME_COUNT {len(outputs)}u

static const {outputs.dtype}_t expected_outputs[FRAME_COUNT][{outputs.shape[1]}] = {{
{rows}}};

#endif""")


if __name__ == "__main__":
    main()
