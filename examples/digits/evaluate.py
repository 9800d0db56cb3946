"""Run digits.tflite over the test set with a reference implementation of its operators; print the accuracy.

    pip install numpy ai-edge-litert==2.3.0
    python evaluate.py

`--runtime tflite-micro` takes TensorFlow Lite for Microcontrollers instead of LiteRT (pip install
tflite-micro==0.dev20261023182759 pyyaml; Python 3.11 on x86-64). `--save` writes the outputs to
test_outputs.npy, with which the firmware compares its own.
"""

import argparse
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
MODEL = HERE / "digits.tflite"


def run_litert(images):
    """Outputs int8 [n, 10] for images int8 [n, 8, 8, 1], by LiteRT without its optimised kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(str(MODEL), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    outputs = []
    for image in images:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image[np.newaxis])
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0])
    return np.stack(outputs)


def run_tflite_micro(images):
    """The same by TensorFlow Lite for Microcontrollers: the kernels that microfold reproduces bit for bit."""
    from tflite_micro import runtime

    interpreter = runtime.Interpreter.from_file(str(MODEL))
    outputs = []
    for image in images:
        interpreter.set_input(image[np.newaxis], 0)
        interpreter.invoke()
        outputs.append(interpreter.get_output(0)[0])
    return np.stack(outputs)


RUNTIMES = {"litert": run_litert, "tflite-micro": run_tflite_micro}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runtime", choices=RUNTIMES, default="litert")
    parser.add_argument("--save", action="store_true", help="write the outputs to test_outputs.npy")
    arguments = parser.parse_args()

    labels = np.load(HERE / "test_labels.npy")
    outputs = RUNTIMES[arguments.runtime](np.load(HERE / "test_images.npy"))
    correct = int((outputs.argmax(axis=1) == labels).sum())
    print(f"{arguments.runtime}: {correct} of {len(labels)} correct ({correct / len(labels):.2%})")
    if arguments.save:
        np.save(HERE / "test_outputs.npy", outputs)
    elif (HERE / "test_outputs.npy").exists():
        equal = int((outputs == np.load(HERE / "test_outputs.npy")).sum())
        print(f"equal to test_outputs.npy: {equal} of {outputs.size} values")


if __name__ == "__main__":
    main()
