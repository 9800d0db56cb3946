"""Session: a compiled model as a Python object that is called with numpy arrays."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from microfold.codegen.literals import C_TYPES
from microfold.host.library import HostLibrary
from microfold.host.ports import Port, check_reals, check_stored
from microfold.ir.node import Value
from microfold.ir.types import Array
from microfold.plan.stream.layers import ComputedRows
from microfold.program import Buffer, Program
from microfold.support.notebook import html_table


class Session:
    """Context of a program in this process: its memory, and the state between calls.

    A call takes and returns real numbers: ``session(x)``. `run` takes and returns stored types, e.g. int8.
    Threads can share a session; their calls wait for each other. Independent states require one session each.

    Args:
        program: program for a target whose code this machine can run.

    Attributes:
        inputs, outputs: names, shapes, types and quantisation, in the order of the arrays.

    Raises:
        ToolError: no C compiler was found, or it failed.
    """

    def __init__(self, program: Program):
        program = program.without_trace
        self.program = program
        self.inputs = tuple(Port(b.value.name, b.type) for b in program.inputs)
        self.outputs = tuple(Port(b.value.name, b.type) for b in program.outputs)
        self._library = HostLibrary(program)
        self._lock = threading.Lock()
        self._context = self._library.new_context()
        self._arenas = self._library.new_arenas()
        self._weights = self._library.init(self._context)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, ports)) for ports in (self.inputs, self.outputs))
        return f"<Session {self.program.name}: {inputs} -> {outputs}>"

    def _repr_html_(self) -> str:
        ports = [("input", port) for port in self.inputs] + [("output", port) for port in self.outputs]
        rows = [(kind, port.name, port.type, port.quantization) for kind, port in ports]
        return html_table(f"session of {self.program.name}", ("", "name", "type", "quantisation"), rows)

    def reset(self) -> None:
        """Reset the state to its initial values."""
        with self._lock:
            self._library.call("reset", self._context)

    def __call__(self, *inputs: ArrayLike) -> Any:
        """Run one inference on real numbers.

        Args:
            inputs: one array or nested list of numbers per input, with exactly its shape. They are converted
                as `Port.quantize` does.

        Returns:
            The output, or a tuple of several outputs. Quantised outputs are float32 arrays of real numbers;
            other outputs have their stored types.

        Raises:
            InputError: inputs do not fit; the message states what to do for each of them.
        """
        arrays = check_reals(self.inputs, inputs)
        stored = [port.quantize(array) for port, array in zip(self.inputs, arrays, strict=True)]
        found = zip(self.outputs, self.run(*stored), strict=True)
        outputs = tuple(a if port.scale is None else port.dequantize(a) for port, a in found)
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, *inputs: Array) -> tuple[Array, ...]:
        """Run one inference on stored values, e.g. int8.

        Args:
            inputs: one array per input, with exactly its shape and type.

        Returns:
            A new array for each output.

        Raises:
            InputError: inputs do not fit; the message states what to do for each of them.
        """
        arrays = self._checked(inputs)
        with self._lock:
            return self._run(arrays, self._new_outputs())

    def run_layers(self, *inputs: Array) -> tuple[tuple[Array, ...], Mapping[Value, Array]]:
        """Run one inference on stored values, and return all values that the layers compute.

        Returns:
            The outputs, and each layer's results, copied right after the layer. For layers in loops
            and branches, these are the results of the last run.

        Raises:
            InputError: inputs do not fit; the message states what to do for each of them.
        """
        arrays = self._checked(inputs)
        outputs = self._new_outputs()
        values: dict[Value, Array] = {}
        layers = (*self.program.layers, *self.program.inner_layers)
        stream = self.program.stream
        computed = stream.computed if stream is not None else ()
        rows = (each for each in computed if not isinstance(each, int))

        def copy(layer: int) -> None:
            if layers[layer].rows is not None:
                self._copy_rows(next(rows), values)
                return
            for buffer in layers[layer].outputs:
                values[buffer.value] = self._copy(self._locate(buffer, outputs), buffer)

        with self._lock:
            handle = self._library.observe(copy)
            try:
                results = self._run(arrays, outputs)
            finally:
                self._library.observe(None)
                del handle
        return results, values

    def intermediates(self, *inputs: Array) -> dict[str, Array]:
        """Run one inference on stored values, and return the layers' results by their names in the C code.

        The results are in the order of the layers. The second result of a layer has the key ``name.1``.

        Raises:
            InputError: inputs do not fit; the message states what to do for each of them.
        """
        _, values = self.run_layers(*inputs)
        return {
            f"{layer.name}.{index}" if index else layer.name: values[buffer.value]
            for layer in self.program.layers
            for index, buffer in enumerate(layer.outputs)
        }

    def _checked(self, inputs: Sequence[Array]) -> list[Array]:
        check_stored(self.inputs, inputs)
        # Copies, because the C code requires aligned buffers.
        arrays = [self._buffer(port) for port in self.inputs]
        for array, given in zip(arrays, inputs, strict=True):
            array[...] = given
        return arrays

    def _new_outputs(self) -> list[Array]:
        return [self._buffer(port) for port in self.outputs]

    def _buffer(self, port: Port) -> Array:
        alignment = max(self.program.options.align, port.dtype.itemsize)
        size = port.type.nbytes
        memory = np.empty(size + alignment, np.uint8)
        start = -memory.ctypes.data % alignment
        return memory[start : start + size].view(port.dtype).reshape(port.shape)

    def _run(self, inputs: Sequence[Array], outputs: list[Array]) -> tuple[Array, ...]:
        if self.program.options.io == "caller":
            buffers = [*self.program.inputs, *self.program.outputs]
            arrays = [*inputs, *outputs]
            pointers = [self._pointer(b, a) for b, a in zip(buffers, arrays, strict=True)]
            self._library.run(*self._memory, *pointers)
            return tuple(outputs)
        pushed = self.program.pushed_input
        given: list[Any] = []
        for index, array in enumerate(inputs):
            if index == pushed:
                given.append(self._pointer(self.program.inputs[index], array))
                continue
            holder = self._holder(self.program.inputs[index].offset)
            destination = self._library.call(f"input_{index}", holder)
            self._library.ffi.memmove(destination, array.tobytes(), array.nbytes)
        self._library.run(*self._memory, *given)
        return self._results()

    def _results(self) -> tuple[Array, ...]:
        return tuple(
            self._copy(self._library.call(f"output_{index}", self._holder(buffer.offset)), buffer)
            for index, buffer in enumerate(self.program.outputs)
        )

    def _locate(self, buffer: Buffer, outputs: Sequence[Array]) -> Any:
        if buffer.region == "output":
            return self._pointer(buffer, outputs[buffer.offset])
        if buffer.region == "state":
            base = self._library.ffi.cast("uint8_t *", self._context)
            return base + self._library.call("state_offset") + buffer.offset
        return self._in_arena(buffer.offset)

    @property
    def _memory(self) -> tuple[Any, ...]:
        """Memory arguments of a run: the context, and the parts of a separate arena."""
        return (self._context, *self._arenas)

    def _holder(self, offset: int) -> Any:
        index, _ = self.program.arena_part(offset)
        return self._arenas[index] if self._arenas else self._context

    def _in_arena(self, offset: int) -> Any:
        _, within = self.program.arena_part(offset)
        return self._library.ffi.cast("uint8_t *", self._holder(offset)) + within

    def _copy_rows(self, computed: ComputedRows, values: dict[Value, Array]) -> None:
        t = computed.value.type
        whole = values.setdefault(computed.value, np.zeros(t.shape, t.dtype.numpy))
        pointer = self._in_arena(computed.address)
        data = bytes(self._library.ffi.buffer(pointer, computed.size))
        rows = whole[:, slice(*computed.rows)]
        rows[...] = np.frombuffer(data, t.dtype.numpy).reshape(rows.shape)

    def _copy(self, pointer: Any, buffer: Buffer) -> Array:
        data = bytes(self._library.ffi.buffer(pointer, buffer.type.nbytes))
        return np.frombuffer(data, buffer.type.dtype.numpy).reshape(buffer.type.shape).copy()

    def _pointer(self, buffer: Buffer, array: Array) -> Any:
        return self._library.ffi.cast(f"{C_TYPES[buffer.type.dtype]} *", array.ctypes.data)
