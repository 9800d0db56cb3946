"""What the simulation needs to know of a compiled model, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from microfold.errors import InputError
from microfold.support.frozen import frozen

Array = npt.NDArray[Any]

_MARK = 4  # bytes in front of what a layer wrote that another one runs: 1 if it ran


@frozen
class TensorSpec:
    """An input or output of the model.

    Attributes:
        index: position among the inputs (or outputs).
        c_type: its element type in the generated C.
        length: number of elements.
        dtype: numpy's type for the same bytes.
        offset: in the arena, if it lies there.
    """

    index: int
    c_type: str
    length: int
    dtype: np.dtype[Any]
    offset: int = 0

    @property
    def size(self) -> int:
        """Bytes."""
        return self.length * self.dtype.itemsize


@frozen
class LayerTensor:
    """Where a layer's result lies right after the layer.

    Attributes:
        length: number of elements.
        dtype: element type.
        offset: bytes from the start of the region; for ``caller``, the index of the model's output.
        region: ``arena`` or ``state``, which are members of the context struct or objects of their own, or
            ``caller`` for an output that the caller hands in.
    """

    length: int
    dtype: np.dtype[Any]
    offset: int
    region: str = "arena"

    @property
    def size(self) -> int:
        """Bytes."""
        return self.length * self.dtype.itemsize


@frozen
class LayerSpec:
    """A layer: ``index`` is what the hook of the generated C passes; ``tensors`` are what can be captured."""

    index: int
    name: str
    tensors: tuple[LayerTensor, ...] = ()


@frozen
class LayerPart:
    """What one of the calls of a layer writes that runs several times.

    Attributes:
        layer: its index.
        tensors: what can be captured right after this call.
    """

    layer: int
    tensors: tuple[LayerTensor, ...]


def arena_name(index: int) -> str:
    """What a part of the arena is called in the generated C."""
    return f"arena_{index + 1}" if index else "arena"


@frozen
class ModelSources:
    """A generated model.

    Attributes:
        name: prefix of its C functions, and the stem of its header.
        files: file name to text; every ``.c`` is compiled.
        inputs, outputs: in the order of their indices.
        layers: in the order of execution; ``layers[i].index == i``.
        inner: layers that others run, loops for one; ``inner[i].index == i``.
        parts: the calls of all layers in the order of their hooks, where some layers run several times; none
            otherwise.
        io: ``arena`` (inputs and outputs live in the context) or ``caller`` (arguments of the run
            function), or ``rows`` (one input is an argument, outputs live in the context).
        pushed: index of that input.
        arenas: bytes of the parts of the arena, one behind the other, where it is apart from the context and
            the run function is handed them all; empty: it is in the context.
        stand_ins: further files, which take the place of libraries; they do not count as the model's.
        blob: the constants, where the init function is handed them.
        compile_flags, link_flags: arguments that find the libraries which the model calls.
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
        """The harness's object that an offset of the arena is in, and the offset there."""
        for index, size in enumerate(self.arenas):
            if offset < size or index == len(self.arenas) - 1:
                return f"simulate_{arena_name(index)}", offset
            offset -= size
        return "simulate_context", offset

    @property
    def arena_names(self) -> list[str]:
        """Of the parts of the arena."""
        return [arena_name(index) for index in range(len(self.arenas))]

    @property
    def given_inputs(self) -> tuple[TensorSpec, ...]:
        """Those that are arguments of the run function."""
        return tuple(spec for spec in self.inputs if self.io == "caller" or spec.index == self.pushed)

    @property
    def hooks(self) -> tuple[int, ...]:
        """The layers in the order of their hooks."""
        return tuple(part.layer for part in self.parts) or tuple(range(len(self.layers)))

    @property
    def inner_places(self) -> tuple[int, ...]:
        """Where each layer of `inner` is captured: a mark, then its tensors. In the end, the size of all."""
        sizes = (_MARK + sum(tensor.size for tensor in layer.tensors) for layer in self.inner)
        return tuple(accumulate(sizes, initial=0))

    def pack(self, call: Sequence[Array], number: int) -> bytes:
        """The bytes of one call's inputs, one after the other.

        Args:
            call: one array per input; its type and number of elements must be the input's, its shape is free.
            number: of the call, for the message.
        Raises:
            InputError: wrong number of inputs, type or number of elements.
        """
        if len(call) != len(self.inputs):
            raise InputError(f"{self.name} has {len(self.inputs)} inputs; call {number} gives {len(call)}")
        for spec, array in zip(self.inputs, call, strict=True):
            if array.dtype != spec.dtype or array.size != spec.length:
                raise InputError(
                    f"input {spec.index} of {self.name} must have {spec.length} elements of {spec.dtype}; "
                    f"call {number} gives {array.size} of {array.dtype}"
                )
        return b"".join(np.ascontiguousarray(array).tobytes() for array in call)
