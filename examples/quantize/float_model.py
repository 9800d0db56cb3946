"""Write the trained network as a float32 .tflite file, with the classes of the format's schema.

Converters of frameworks write such files: see the pages "From PyTorch" and "From Keras" in the documentation.
This network was trained without a framework.
"""

from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

RELU = schema.ActivationFunctionType.RELU


class Writer:
    """A file with one subgraph; tensors are referred to by their indices."""

    def __init__(self):
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.codes = []
        self.buffers = [schema.BufferT()]  # the empty one

    def tensor(self, name, shape, content=None):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type = name, list(shape), schema.TensorType.FLOAT32
        tensor.buffer = 0
        if content is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(content, np.float32).tobytes(), np.uint8)
            tensor.buffer = len(self.buffers)
            self.buffers.append(buffer)
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def operator(self, name, inputs, output, options):
        code = schema.OperatorCodeT()
        # Readers take the larger one of both fields: the first one is of older versions.
        code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, name)
        code.version = 1
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.codes)
        operator.inputs, operator.outputs = inputs, [output]
        kind = type(options).__name__.removesuffix("T")
        operator.builtinOptionsType, operator.builtinOptions = (
            getattr(schema.BuiltinOptions, kind),
            options,
        )
        self.codes.append(code)
        self.graph.operators.append(operator)
        return output

    def content(self, inputs, outputs):
        self.graph.inputs, self.graph.outputs, self.graph.name = inputs, outputs, "main"
        model = schema.ModelT()
        model.version, model.description = 3, "digits"
        model.operatorCodes, model.subgraphs, model.buffers = self.codes, [self.graph], self.buffers
        builder = flatbuffers.Builder(0)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def _conv(writer, name, source, parameters, height, inputs):
    """A convolution 3x3 with ReLU, and a pooling 2x2."""
    weights, bias = parameters
    outputs = len(bias)
    # The format has the outputs first: [outputs, 3, 3, inputs].
    content = weights.reshape(3, 3, inputs, outputs).transpose(3, 0, 1, 2)
    w = writer.tensor(f"{name}/weights", content.shape, content)
    b = writer.tensor(f"{name}/bias", bias.shape, bias)
    options = schema.Conv2DOptionsT()
    options.padding, options.strideH, options.strideW = schema.Padding.SAME, 1, 1
    options.dilationHFactor = options.dilationWFactor = 1
    options.fusedActivationFunction = RELU
    result = writer.tensor(name, (1, height, height, outputs))
    writer.operator("CONV_2D", [source, w, b], result, options)
    pool = schema.Pool2DOptionsT()
    pool.padding, pool.strideH, pool.strideW = schema.Padding.VALID, 2, 2
    pool.filterHeight = pool.filterWidth = 2
    pooled = writer.tensor(f"{name}/pool", (1, height // 2, height // 2, outputs))
    return writer.operator("MAX_POOL_2D", [result], pooled, pool)


def write_model(path: Path, first, second, dense):
    """Write the network: two convolutions with pooling, and a dense layer.

    It ends with scores, because a softmax would not change their order.

    Args:
        first, second, dense: weights and bias of each layer.
    """
    writer = Writer()
    image = writer.tensor("image", (1, 8, 8, 1))
    x = _conv(writer, "conv_1", image, first, 8, 1)
    x = _conv(writer, "conv_2", x, second, 4, 8)
    weights, bias = dense
    w = writer.tensor("dense/weights", weights.T.shape, weights.T)
    b = writer.tensor("dense/bias", bias.shape, bias)
    scores = writer.tensor("scores", (1, 10))
    writer.operator("FULLY_CONNECTED", [x, w, b], scores, schema.FullyConnectedOptionsT())
    path.write_bytes(writer.content([image], [scores]))
