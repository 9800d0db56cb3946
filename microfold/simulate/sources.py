"""Description of a compiled model for the simulation, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from microfold.errors import InputError

Array = npt.NDArray[Any]

_MARK = 4  # bytes of the mark before the tensors of an inner layer, which is 1 if the layer ran


class TensorSpec(Struct, frozen=True):
    """Input or output of the model.

    Attributes:
        index: position among the inputs or outputs.
        c_type: element type in the generated C.
        dtype: element type in numpy.
        offset: offset in the arena in bytes, if it is in the arena.
    """

    index: int
    c_type: str
    length: int
    dtype: np.dtype[Any]
    offset: int = 0

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.length * self.dtype.itemsize


class LayerTensor(Struct, frozen=True):
    """Location of a layer's result right after the layer.

    Attributes:
        offset: offset from the start of the region in bytes; for ``caller``, the index of the output.
        region: ``arena`` or ``state``, which are members of the context or separate objects; or ``caller``
            for an output buffer of the caller.
    """

    length: int
    dtype: np.dtype[Any]
    offset: int
    region: str = "arena"

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.length * self.dtype.itemsize


class LayerSpec(Struct, frozen=True):
    """Layer, with the index that the hook of the generated C passes, and the tensors to capture."""

    index: int
    name: str
    tensors: tuple[LayerTensor, ...] = ()


class LayerPart(Struct, frozen=True):
    """One call of a layer.

    Attributes:
        layer: index of the layer.
        tensors: tensors to capture right after this call.
    """

    layer: int
    tensors: tuple[LayerTensor, ...]


def arena_name(index: int) -> str:
    """Return the name of a part of the arena in the generated C."""
    return f"arena_{index + 1}" if index else "arena"


class ModelSources(Struct, frozen=True):
    """Generated model.

    Attributes:
        name: prefix of the C functions, and stem of the header's name.
        files: text of each file, by name; every ``.c`` file is compiled.
        inputs, outputs: inputs and outputs, in the order of their indices.
        layers: layers in the order of execution; ``layers[i].index == i``.
        inner: layers in loops and branches; ``inner[i].index == i``.
        parts: calls of all layers in the order of their hooks, if some layers run several times; else empty.
        io: ``arena``: inputs and outputs are in the context. ``caller``: they are arguments of the run
            function. ``rows``: one input is an argument, and the outputs are in the context.
        pushed: index of the input that is an argument with ``rows``.
        arenas: sizes in bytes of the parts of a separate arena, all of which are arguments of the run
            function; empty if the arena is in the context.
        stand_ins: additional files that replace libraries; they do not count as part of the model.
        blob: constants passed to the init function, if any.
        compile_flags, link_flags: flags that find the libraries which the model calls.
    """

    name: str
    files: Mapping[str, str]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    layers: tuple[LayerSpec, ...]
    inner: tuple[LayerSpec, ...] = ()
    parts: tuple[LayerPart, ...] = ()
    io: str = "arena"
    pushed: int | None = None
    arenas: tuple[int, ...] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict[str, str])
    blob: bytes | None = None
    compile_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()

    def part(self, offset: int) -> tuple[str, int]:
        """Return the harness's object that contains an offset of the arena, and the offset within it."""
        for index, size in enumerate(self.arenas):
            if offset < size or index == len(self.arenas) - 1:
                return f"simulate_{arena_name(index)}", offset
            offset -= size
        return "simulate_context", offset

    @property
    def arena_names(self) -> list[str]:
        """Names of the parts of the arena."""
        return [arena_name(index) for index in range(len(self.arenas))]

    @property
    def given_inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs that are arguments of the run function."""
        return tuple(spec for spec in self.inputs if self.io == "caller" or spec.index == self.pushed)

    @property
    def hooks(self) -> tuple[int, ...]:
        """Indices of the layers, in the order of their hooks."""
        return tuple(part.layer for part in self.parts) or tuple(range(len(self.layers)))

    @property
    def inner_places(self) -> tuple[int, ...]:
        """Offset of each `inner` layer's capture (mark, then tensors), followed by the total size; bytes."""
        sizes = (_MARK + sum(tensor.size for tensor in layer.tensors) for layer in self.inner)
        return tuple(accumulate(sizes, initial=0))

    def pack(self, call: Sequence[Array], number: int) -> bytes:
        """Return the concatenated bytes of one call's inputs.

        Args:
            call: one array per input, with the input's type and number of elements, in any shape.
            number: number of the call, for the message.
        Raises:
            InputError: wrong number of inputs, type or number of elements.
        """
        if len(call) != len(self.inputs):
            raise InputError(f"{self.name} has {len(self.inputs)} inputs; call {number} has {len(call)}")
        for spec, array in zip(self.inputs, call, strict=True):
            if array.dtype != spec.dtype or array.size != spec.length:
                raise InputError(
                    f"input {spec.index} of {self.name} must have {spec.length} elements of {spec.dtype}; "
                    f"call {number} has {array.size} of {array.dtype}"
                )
        return b"".join(np.ascontiguousarray(array).tobytes() for array in call)
