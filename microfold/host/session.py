"""A compiled model as a Python object that is called with numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from microfold import target as targets
from microfold.codegen.literals import C_TYPES
from microfold.compiler import compile_file, compile_graph
from microfold.errors import InputError
from microfold.host.library import HostLibrary
from microfold.ir.graph import Graph, Value
from microfold.ir.interpret import check_inputs
from microfold.ir.types import Array
from microfold.options import Options
from microfold.program import Buffer, Program


def compile(model: str | Path | Graph, target: str = "host", **options: Any) -> Session:
    """Compile a model and load it into this process.

    Args:
        model: path of a `.tflite` file, or an imported graph.
        target: a target whose code the host can run (its features must not include SIMD).
        options: fields of `Options`.

    Returns:
        A session: call it with one numpy array per input.
    """
    description = targets.load(target)
    if description.has("dsp"):
        raise InputError(f"{description.name} code has SIMD instructions that this machine lacks; use target='host'")
    if isinstance(model, Graph):
        return Session(compile_graph(model, description, Options(**options)))
    return Session(compile_file(model, description, Options(**options)))


class Session:
    """One context of a program, with its state.

    Args:
        program: compiled for the host.
    """

    def __init__(self, program: Program):
        self.program = program
        self._library = HostLibrary(program)
        self._context = self._library.new_context()
        self._library.call("init", self._context)

    def reset(self) -> None:
        """Forget all previous calls."""
        self._library.call("reset", self._context)

    def __call__(self, *inputs: Array) -> Array | tuple[Array, ...]:
        """One inference; a tuple of outputs if there are several.

        Raises:
            InputError: wrong number, shape or type of inputs.
        """
        outputs = self.run(*inputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, *inputs: Array) -> tuple[Array, ...]:
        """One inference."""
        arrays = [np.ascontiguousarray(array) for array in inputs]
        check_inputs([b.value for b in self.program.inputs], arrays)
        ffi = self._library.ffi
        if self.program.options.io == "caller":
            outputs = [np.empty(b.type.shape, b.type.dtype.numpy) for b in self.program.outputs]
            pointers = [self._pointer(b, a) for b, a in zip(self.program.inputs, arrays, strict=True)]
            pointers += [self._pointer(b, a) for b, a in zip(self.program.outputs, outputs, strict=True)]
            self._library.call("run", self._context, *pointers)
            return tuple(outputs)
        for index, array in enumerate(arrays):
            destination = self._library.call(f"input_{index}", self._context)
            ffi.memmove(destination, array.tobytes(), array.nbytes)
        self._library.call("run", self._context)
        return tuple(
            self._copy(self._library.call(f"output_{index}", self._context), buffer)
            for index, buffer in enumerate(self.program.outputs)
        )

    def run_layers(self, *inputs: Array) -> tuple[tuple[Array, ...], Mapping[Value, Array]]:
        """One inference, with every value that a layer computes.

        Returns:
            The outputs, and each layer's results, copied right after the layer.
        """
        if self.program.options.io == "caller":
            raise InputError("intermediate values are read from the arena; compile with io='arena'")
        values: dict[Value, Array] = {}
        base = self._library.ffi.cast("uint8_t *", self._context)

        def copy(layer: int) -> None:
            for buffer in self.program.layers[layer].outputs:
                values[buffer.value] = self._copy(base + buffer.offset, buffer)

        handle = self._library.observe(copy)
        try:
            outputs = self.run(*inputs)
        finally:
            self._library.observe(None)
            del handle
        return outputs, values

    def _copy(self, pointer: Any, buffer: Buffer) -> Array:
        data = bytes(self._library.ffi.buffer(pointer, buffer.type.nbytes))
        return np.frombuffer(data, buffer.type.dtype.numpy).reshape(buffer.type.shape).copy()

    def _pointer(self, buffer: Buffer, array: Array) -> Any:
        return self._library.ffi.cast(f"{C_TYPES[buffer.type.dtype]} *", array.ctypes.data)
