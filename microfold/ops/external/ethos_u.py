"""What Arm's Vela has compiled for an Ethos-U NPU: opaque to everything but the NPU's driver."""

from __future__ import annotations

from typing import ClassVar

from microfold.errors import NoReferenceError
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.support.frozen import frozen


@register
@frozen
class EthosU(Op):
    """A command stream on its inputs. They and the results lie in one piece of memory, where Vela put them.

    Attributes:
        results: types of the outputs.
        arena: bytes of the memory that the NPU works in.
        fast: bytes of the fast memory, whose beginning is the arena's unless the driver has its own.
        input_offsets, output_offsets: bytes from the arena's start to each input and output.
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
                f"ethos_u: inputs and outputs must lie in the arena, {self.arena} bytes, at multiples of 16; "
                f"{port} is at {offset}",
            )
        return self.results

    def reference(
        self, commands: Tensor, weights: Tensor | None = None, *inputs: Tensor
    ) -> tuple[Array, ...]:
        raise NoReferenceError("ethos_u has no reference: its command stream runs on the NPU only")
