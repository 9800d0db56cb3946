"""Command stream of Arm's Vela for an Ethos-U NPU; only the NPU's driver can interpret it."""

from __future__ import annotations

from typing import ClassVar

from microfold.errors import NoReferenceError
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType


@register
class EthosU(Op, frozen=True):
    """Command stream on its inputs. Vela has placed inputs and results in one block of memory, the arena.

    Attributes:
        results: types of the outputs.
        arena: size of the memory in which the NPU works, in bytes.
        fast: size of the fast memory, in bytes. It starts with the arena, unless the driver has its own.
        input_offsets, output_offsets: offset of each input and output in the arena, in bytes.
    """

    name: ClassVar[str] = "ethos_u"
    pattern: ClassVar[Pattern] = Pattern.OPAQUE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    results: tuple[TensorType, ...]
    arena: int
    fast: int
    input_offsets: tuple[int, ...]
    output_offsets: tuple[int, ...]

    def infer(
        self, commands: TensorType, weights: TensorType | None = None, *inputs: TensorType
    ) -> tuple[TensorType, ...]:
        require(
            commands.dtype is DType.UINT8 and (weights is None or weights.dtype is DType.UINT8),
            f"ethos_u: commands and weights must be uint8; they are {commands} and {weights}",
        )
        require(
            len(inputs) == len(self.input_offsets) and len(self.results) == len(self.output_offsets),
            f"ethos_u: {len(inputs)} inputs and {len(self.results)} outputs need as many offsets; "
            f"there are {len(self.input_offsets)} and {len(self.output_offsets)}",
        )
        ports = [*zip(inputs, self.input_offsets, strict=True)]
        ports += zip(self.results, self.output_offsets, strict=True)
        for port, offset in ports:
            require(
                offset >= 0 and offset % 16 == 0 and offset + port.nbytes <= self.arena,
                f"ethos_u: inputs and outputs must be in the arena, {self.arena} bytes, at multiples of 16; "
                f"{port} is at {offset}",
            )
        return self.results

    def reference(
        self, commands: Tensor, weights: Tensor | None = None, *inputs: Tensor
    ) -> tuple[Array, ...]:
        raise NoReferenceError("ethos_u has no reference: its command stream runs on the NPU only")
