"""What `<model>_helpers.h` offers for each input and output, worked out for its templates."""

from __future__ import annotations

from microfold.codegen.literals import literal, string_literal
from microfold.codegen.model import Model
from microfold.codegen.parts import Port
from microfold.ir.types import DType
from microfold.support.frozen import frozen

# Their steps from the zero point are exact in float32.
_REAL = (DType.INT8, DType.UINT8, DType.INT16)
# Those that a pixel's 256 values fill.
_PIXEL = (DType.INT8, DType.UINT8)
# Channels of an image, and the formats of one that is handed in.
_FORMATS = {1: ("grey8",), 3: ("rgb888", "rgb565")}
# Real values of the darkest and the brightest pixel that networks are usually trained on.
_PIXEL_RANGES = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))
# Part of such a range by which its ends may be off: pictures of a calibration need not reach them.
_RANGE_TOLERANCE = 1 / 16


@frozen
class PortHelpers:
    """The helpers of one input or output.

    Attributes:
        labels: what the classes are called; empty if nothing says.
    """

    port: Port
    labels: tuple[str, ...] = ()

    @property
    def is_input(self) -> bool:
        return self.port.direction == "input"

    @property
    def has_real_values(self) -> bool:
        """Its elements are integers that stand for real numbers."""
        return self.port.quantized and self.port.type.dtype in _REAL

    @property
    def lowest(self) -> str:
        return literal(self.port.range[0])

    @property
    def highest(self) -> str:
        return literal(self.port.range[1])

    @property
    def fewest_steps(self) -> str:
        """From the zero point to the lowest element, as a float."""
        return literal(float(self.port.range[0] - self._zero_point))

    @property
    def most_steps(self) -> str:
        return literal(float(self.port.range[1] - self._zero_point))

    @property
    def formats(self) -> tuple[str, ...]:
        """Formats of images that fill it; none if it is not an image with channels last.

        One channel may also be a spectrogram. It counts as an image if it is square, or if its real values
        are those of pixels.
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
        """Width and height, for people."""
        _, height, width, _ = self.port.type.shape
        return f"{width} x {height}"

    @property
    def takes_pixels(self) -> bool:
        """Whether a pixel's value and an offset make an element.

        For one channel, this needs real values that show it; for colors, the comment in the header warns.
        """
        if self.port.type.dtype not in _PIXEL:
            return False
        return self.port.type.shape[3] != 1 or self.has_pixel_range or not self.has_real_values

    @property
    def pixel_offset(self) -> int:
        """What is added to a pixel to make an element."""
        return self.port.range[0]

    @property
    def darkest(self) -> str:
        """The real value that a pixel of 0 becomes, for people."""
        return f"{self._real(self.port.range[0]):.6g}"

    @property
    def brightest(self) -> str:
        return f"{self._real(self.port.range[1]):.6g}"

    @property
    def takes_normalized(self) -> bool:
        """It is made from a pixel's real value."""
        return self.has_real_values or self.port.type.dtype is DType.FLOAT32

    @property
    def is_class_vector(self) -> bool:
        """It has a score for each of some classes; the bits of halves do not compare as numbers."""
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
    """What the template of the header sees besides what all files of a build do."""
    program = model.program
    labels = program.labels or ((),) * len(model.outputs)
    outputs = [PortHelpers(port, names) for port, names in zip(model.outputs, labels, strict=True)]
    return {
        "ports": [*map(PortHelpers, model.inputs), *outputs],
        "layer_names": [string_literal(layer.name) for layer in program.layers],
    }
