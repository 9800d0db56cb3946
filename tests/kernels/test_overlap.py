"""`window_overlap` and `band_overlap` against a byte-by-byte replay of a kernel's reads and writes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from microfold.errors import TypeRuleError
from microfold.ir.types import DType, TensorType
from microfold.kernels.overlap import band_overlap, window_overlap
from microfold.ops.window import Window

# Pixels computed together: image, row, column.
Pixels = list[tuple[int, int, int]]


def _row_groups(out: TensorType, group: int) -> list[Pixels]:
    batch, rows, columns, _ = out.shape
    return [
        [(n, i, p) for p in range(j, min(j + group, columns))]
        for n in range(batch)
        for i in range(rows)
        for j in range(0, columns, group)
    ]


def _bands(out: TensorType, group: int, height: int) -> list[Pixels]:
    """Columns that are left over: four parts of each, then single pixels."""
    batch, rows, columns, _ = out.shape
    groups: list[Pixels] = []
    for n in range(batch):
        for first in range(0, rows, height):
            band = range(first, min(first + height, rows))
            whole = columns // group * group
            groups += [[(n, i, j + p) for i in band for p in range(group)] for j in range(0, whole, group)]
            for j in range(whole, columns):
                parts = len(band) // 4 * 4
                groups += [[(n, i, j) for i in band[:parts]]] if parts else []
                groups += [[(n, i, j)] for i in band[parts:]]
    return groups


def _is_safe(
    x: TensorType, out: TensorType, window: Window, groups: list[Pixels], distance: int, reads_first: bool
) -> bool:
    """Replay: the input starts at byte `distance`, the output at 0; is any byte overwritten too early?"""
    _, height, width, channels = x.shape
    _, rows, columns, filters = out.shape
    written = -1  # last byte written so far
    for pixels in groups:
        end = max(((n * rows + i) * columns + p + 1) * filters - 1 for n, i, p in pixels)
        if not reads_first:
            written = max(written, end)
        for n, i, p in pixels:
            for a in range(window.size[0]):
                for b in range(window.size[1]):
                    y = i * window.strides[0] - window.padding[0][0] + a * window.dilations[0]
                    z = p * window.strides[1] - window.padding[1][0] + b * window.dilations[1]
                    address = distance + ((n * height + y) * width + z) * channels
                    inside = 0 <= y < height and 0 <= z < width
                    if inside and any(0 <= address + c <= written for c in range(channels)):
                        return False
        written = max(written, end)
    return True


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_distance_is_safe(data: st.DataObject) -> None:
    small = st.integers(1, 3)
    draw = data.draw
    x = TensorType(
        DType.INT8, (draw(st.integers(1, 2)), draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(small))
    )
    size = (draw(small), draw(small))
    padding = tuple((draw(st.integers(0, s - 1)), draw(st.integers(0, s - 1))) for s in size)
    window = Window(size, (draw(small), draw(small)), (draw(st.integers(1, 2)), 1), padding)  # type: ignore[arg-type]
    try:
        rows, columns = window.output_size(x.shape[1], x.shape[2])
    except TypeRuleError:
        return
    out = TensorType(DType.INT8, (x.shape[0], rows, columns, draw(small)))
    group, reads_first = draw(st.integers(1, 4)), draw(st.booleans())
    distance = window_overlap(x, out, window, group, reads_first=reads_first)
    assert _is_safe(x, out, window, _row_groups(out, group), distance, reads_first)
    height = draw(st.integers(1, 6))
    distance = band_overlap(x, out, window, group, height)
    assert _is_safe(x, out, window, _bands(out, group, height), distance, True)


def test_distance_of_a_3x3_convolution_is_tight() -> None:
    """One row and one pixel; one byte less is too little."""
    x = TensorType(DType.INT8, (1, 32, 32, 16))
    window = Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
    assert window_overlap(x, x, window, 4) == 32 * 16 + 16
    assert not _is_safe(x, x, window, _row_groups(x, 4), 32 * 16 + 15, True)


def test_distance_of_bands_is_tight() -> None:
    """The first half of the last rows is written while the second half of the row above them is needed."""
    x = TensorType(DType.INT8, (1, 8, 8, 4))
    window = Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
    distance = (7 * 8 + 4) * 4 - (3 * 8 + 3) * 4
    assert band_overlap(x, x, window, 4, 4) == distance
    assert not _is_safe(x, x, window, _bands(x, 4, 4), distance - 1, True)
