"""Template data of `<model>_helpers.h`: the helpers for each input and output."""

from __future__ import annotations

from msgspec import Struct

from microfold.codegen.literals import literal, string_literal
from microfold.codegen.model import Model
from microfold.codegen.parts import ModelPort
from microfold.ir.types import DType

# Types whose distances from the zero point are exact in float32.
_REAL = (DType.INT8, DType.UINT8, DType.INT16)
# Types with 256 values, as a pixel has.
_PIXEL = (DType.INT8, DType.UINT8)
# Pixel formats of the caller's images, by the number of channels of the input.
_FORMATS = {1: ("grey8",), 3: ("rgb888", "rgb565")}
# Real values of the darkest and the brightest pixel in usual training data.
_PIXEL_RANGES = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))
# Tolerance at both ends, as a fraction of the range: calibration images need not reach the ends.
_RANGE_TOLERANCE = 1 / 16


class PortHelpers(Struct, frozen=True):
    """Helpers of one input or output.

    Attributes:
        labels: names of the classes; empty if they are unknown.
    """

    port: ModelPort
    labels: tuple[str, ...] = ()

    @property
    def is_input(self) -> bool:
        return self.port.direction == "input"

    @property
    def has_real_values(self) -> bool:
        """Whether its elements are integers that represent real numbers."""
        return self.port.quantized and self.port.type.dtype in _REAL

    @property
    def lowest(self) -> str:
        return literal(self.port.range[0])

    @property
    def highest(self) -> str:
        return literal(self.port.range[1])

    @property
    def fewest_steps(self) -> str:
        """Distance of the lowest element from the zero point, as a float literal."""
        return literal(float(self.port.range[0] - self._zero_point))

    @property
    def most_steps(self) -> str:
        return literal(float(self.port.range[1] - self._zero_point))

    @property
    def formats(self) -> tuple[str, ...]:
        """Pixel formats of images for this input; empty if it is not an image with channels last.

        An input with one channel can also be a spectrogram. It counts as an image if it is square, or if its
        real values have a usual pixel range.
        """
        shape, dtype = self.port.type.shape, self.port.type.dtype
        if not self.is_input or len(shape) != 4 or shape[0] != 1:
            return ()
        if dtype not in _PIXEL and dtype is not DType.FLOAT32:
            return ()
        if shape[3] == 1 and shape[1] != shape[2] and not self.has_pixel_range:
            return ()
        return _FORMATS.get(shape[3], ())

    @property
    def has_pixel_range(self) -> bool:
        """Whether its lowest and highest real values are black and white of usual training data."""
        if self.port.type.dtype not in _PIXEL or not self.has_real_values:
            return False
        darkest, brightest = map(self._real, self.port.range)
        return any(
            max(abs(darkest - black), abs(brightest - white)) <= _RANGE_TOLERANCE * (white - black)
            for black, white in _PIXEL_RANGES
        )

    @property
    def image_size(self) -> str:
        """Width and height, as text."""
        _, height, width, _ = self.port.type.shape
        return f"{width} x {height}"

    @property
    def takes_pixels(self) -> bool:
        """Whether an element is a pixel value plus an offset.

        For one channel, the range of real values must show it. For colours, a comment in the header warns.
        """
        if self.port.type.dtype not in _PIXEL:
            return False
        return self.port.type.shape[3] != 1 or self.has_pixel_range or not self.has_real_values

    @property
    def pixel_offset(self) -> int:
        """Offset between a pixel value and its element."""
        return self.port.range[0]

    @property
    def darkest(self) -> str:
        """Real value of a pixel of 0, as text."""
        return f"{self._real(self.port.range[0]):.6g}"

    @property
    def brightest(self) -> str:
        return f"{self._real(self.port.range[1]):.6g}"

    @property
    def takes_normalized(self) -> bool:
        """Whether an element is computed from a pixel's real value."""
        return self.has_real_values or self.port.type.dtype is DType.FLOAT32

    @property
    def is_class_vector(self) -> bool:
        """Whether it has a score for each class; float16 is excluded, because its bits do not compare."""
        return bool(self.port.type.class_count) and self.port.type.dtype is not DType.FLOAT16

    @property
    def is_float(self) -> bool:
        return self.port.type.dtype is DType.FLOAT32

    @property
    def label_literals(self) -> list[str]:
        return [*map(string_literal, self.labels)]

    @property
    def _zero_point(self) -> int:
        assert self.port.type.quant is not None
        return self.port.type.quant.zero_point

    def _real(self, element: float) -> float:
        """Return the real value of an element."""
        assert self.port.type.quant is not None
        return self.port.type.quant.scale * (element - self._zero_point)


def variables(model: Model) -> dict[str, object]:
    """Return the additional variables of the helpers header's template."""
    program = model.program
    labels = program.labels or ((),) * len(model.outputs)
    outputs = [PortHelpers(port, names) for port, names in zip(model.outputs, labels, strict=True)]
    return {
        "ports": [*map(PortHelpers, model.inputs), *outputs],
        "layer_names": [string_literal(layer.name) for layer in program.layers],
    }
