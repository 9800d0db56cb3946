"""Run person.tflite over the frames with a reference implementation of its operators, and print the scores.

    pip install numpy ai-edge-litert==2.3.0
    python evaluate.py

`--runtime tflite-micro` takes TensorFlow Lite for Microcontrollers instead of LiteRT (pip install
tflite-micro==0.dev20261023182759 pyyaml; Python 3.11 on x86-64). `--save` writes the outputs to expected.npy,
with which the firmware compares its own.
"""

import argparse
from pathlib import Path

import numpy as np
from picture import load_frames, scale

HERE = Path(__file__).resolve().parent
MODEL = HERE / "person.tflite"


def run_litert(pictures):
    """Outputs int8 [n, 2] for pictures int8 [n, 96, 96, 1], by LiteRT without its optimised kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(str(MODEL), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    outputs = []
    for picture in pictures:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], picture[np.newaxis])
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0])
    return np.stack(outputs)


def run_tflite_micro(pictures):
    """The same by TensorFlow Lite for Microcontrollers: the kernels that microfold reproduces bit for bit."""
    from tflite_micro import runtime

    interpreter = runtime.Interpreter.from_file(str(MODEL))
    outputs = []
    for picture in pictures:
        interpreter.set_input(picture[np.newaxis], 0)
        interpreter.invoke()
        outputs.append(interpreter.get_output(0)[0])
    return np.stack(outputs)


RUNTIMES = {"litert": run_litert, "tflite-micro": run_tflite_micro}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runtime", choices=RUNTIMES, default="litert")
    parser.add_argument("--save", action="store_true", help="write the outputs to expected.npy")
    arguments = parser.parse_args()

    pictures = np.stack([scale(frame, 96, 1) for frame in load_frames()]).astype(np.int16) - 128
    outputs = RUNTIMES[arguments.runtime](pictures.astype(np.int8))
    scores = ", ".join(f"{(score + 128) / 256:.2f}" for score in outputs[:, 1].astype(int))
    print(f"{arguments.runtime}: {scores}")
    if arguments.save:
        np.save(HERE / "expected.npy", outputs)
    else:
        equal = int((outputs == np.load(HERE / "expected.npy")).sum())
        print(f"equal to expected.npy: {equal} of {outputs.size} values")


if __name__ == "__main__":
    main()
