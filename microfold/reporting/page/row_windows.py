"""Line buffers compared with their whole tensors."""

from __future__ import annotations

from msgspec import Struct

from microfold.reporting.page.layers import BAR
from microfold.reporting.schema import ReportedStreaming, ReportedWindow


class RowWindows(Struct, frozen=True):
    """Line buffers of a build.

    Attributes:
        held: size of all line buffers, in bytes.
        whole: size of all their tensors, in bytes; None if the report does not contain it.
        rows: each line buffer with the length of its bar, its fraction of the tensor.
    """

    held: int
    whole: int | None
    rows: list[tuple[ReportedWindow, float]]


def row_windows(stream: ReportedStreaming) -> RowWindows:
    """Return the line buffers of a build, compared with their whole tensors."""
    sizes = [window.whole for window in stream.windows if window.whole is not None]
    return RowWindows(
        held=sum(window.bytes for window in stream.windows),
        whole=sum(sizes) if len(sizes) == len(stream.windows) else None,
        # Line buffers also contain padding, so the line buffer of a small tensor can exceed the tensor.
        rows=[(w, round(BAR * min(1.0, w.bytes / w.whole), 1) if w.whole else 0.0) for w in stream.windows],
    )
