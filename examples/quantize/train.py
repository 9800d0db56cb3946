"""Train a small CNN on scikit-learn's handwritten digits with numpy, and write it as a float32 .tflite file.

    pip install -r requirements-train.txt
    python train.py

It also writes the data of the next steps: 200 training images for the quantisation, and the 360 images of the
test set with their labels. Seeds and split are fixed, but another processor may round a sum differently.
"""

from pathlib import Path

import numpy as np
from float_model import write_model
from sklearn.datasets import load_digits

HERE = Path(__file__).resolve().parent
SEED = 1
TEST = 360
CALIBRATION = 200
EPOCHS = 60
BATCH = 32
RATE = 3e-3


def load_split(rng):
    """Images uint8 [n, 8, 8, 1] with pixels from 0 to 16, and labels: for training, and for the test."""
    data, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(data))
    images, labels = data[order].astype(np.uint8).reshape(-1, 8, 8, 1), labels[order]
    return images[TEST:], labels[TEST:], images[:TEST], labels[:TEST]


class Conv:
    """Convolution 3x3 with zero padding, and ReLU; weights [3, 3, inputs, outputs]."""

    def __init__(self, rng, inputs, outputs):
        scale = np.sqrt(2 / (9 * inputs))
        self.parameters = [rng.normal(0, scale, (9 * inputs, outputs)), np.zeros(outputs)]

    def forward(self, x):
        weights, bias = self.parameters
        height, width = x.shape[1:3]
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        shifted = [padded[:, y : y + height, x : x + width] for y in range(3) for x in range(3)]
        self.patches = np.concatenate(shifted, axis=-1)
        self.result = np.maximum(self.patches @ weights + bias, 0)
        return self.result

    def backward(self, gradient):
        """The gradient of the input; those of the parameters are kept."""
        gradient = gradient * (self.result > 0)
        weights, _ = self.parameters
        axes = (0, 1, 2)
        self.gradients = [np.tensordot(self.patches, gradient, (axes, axes)), gradient.sum(axis=axes)]
        n, height, width, _ = gradient.shape
        patches = np.split(gradient @ weights.T, 9, axis=-1)
        padded = np.zeros((n, height + 2, width + 2, patches[0].shape[-1]))
        for place, patch in enumerate(patches):
            y, x = divmod(place, 3)
            padded[:, y : y + height, x : x + width] += patch
        return padded[:, 1:-1, 1:-1]


class MaxPool:
    """Maximum of 2x2 elements."""

    parameters = gradients = ()

    def forward(self, x):
        n, height, width, channels = x.shape
        blocks = x.reshape(n, height // 2, 2, width // 2, 2, channels)
        result = blocks.max(axis=(2, 4), keepdims=True)
        self.chosen = blocks == result
        return result[:, :, 0, :, 0]

    def backward(self, gradient):
        spread = self.chosen * gradient[:, :, None, :, None]
        n, height, _, width, _, channels = spread.shape
        return spread.reshape(n, 2 * height, 2 * width, channels)


class Dense:
    """Scores of the classes; weights [inputs, outputs]."""

    def __init__(self, rng, inputs, outputs):
        self.parameters = [rng.normal(0, np.sqrt(1 / inputs), (inputs, outputs)), np.zeros(outputs)]

    def forward(self, x):
        self.shape, self.flat = x.shape, x.reshape(len(x), -1)
        return self.flat @ self.parameters[0] + self.parameters[1]

    def backward(self, gradient):
        self.gradients = [self.flat.T @ gradient, gradient.sum(axis=0)]
        return (gradient @ self.parameters[0].T).reshape(self.shape)


def scores(layers, x):
    for layer in layers:
        x = layer.forward(x)
    return x


def train(layers, images, labels, rng):
    """Minimise the cross-entropy with Adam and a rate that falls to 0; images move by up to a pixel."""
    parameters = [parameter for layer in layers for parameter in layer.parameters]
    means, squares = ([np.zeros_like(each) for each in parameters] for _ in range(2))
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    steps = EPOCHS * (len(images) // BATCH)
    for step in range(steps):
        if step % (len(images) // BATCH) == 0:
            order = rng.permutation(len(images))
        chosen = np.roll(order, -step * BATCH)[:BATCH]
        y, x = rng.integers(0, 3, 2)
        z = scores(layers, padded[chosen, y : y + 8, x : x + 8] / 16)
        gradient = np.exp(z - z.max(axis=1, keepdims=True))
        gradient /= gradient.sum(axis=1, keepdims=True)
        gradient[np.arange(BATCH), labels[chosen]] -= 1
        gradient /= BATCH
        for layer in reversed(layers):
            gradient = layer.backward(gradient)
        rate = RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
        gradients = [each for layer in layers for each in layer.gradients]
        for parameter, mean, square, slope in zip(parameters, means, squares, gradients, strict=True):
            mean += 0.1 * (slope - mean)
            square += 0.001 * (slope**2 - square)
            corrected = mean / (1 - 0.9 ** (step + 1))
            parameter -= rate * corrected / (np.sqrt(square / (1 - 0.999 ** (step + 1))) + 1e-8)


def main():
    rng = np.random.default_rng(SEED)
    images, labels, test_images, test_labels = load_split(rng)
    layers = [Conv(rng, 1, 8), MaxPool(), Conv(rng, 8, 16), MaxPool(), Dense(rng, 64, 10)]
    train(layers, images, labels, rng)
    correct = int((scores(layers, test_images / 16).argmax(axis=1) == test_labels).sum())
    print(f"trained: {correct} of {TEST} test images correct ({correct / TEST:.2%})")
    first, second, dense = layers[0], layers[2], layers[4]
    write_model(HERE / "digits.tflite", first.parameters, second.parameters, dense.parameters)
    np.save(HERE / "samples.npy", images[:CALIBRATION])
    np.save(HERE / "test_images.npy", test_images)
    np.save(HERE / "test_labels.npy", test_labels.astype(np.uint8))


if __name__ == "__main__":
    main()
