"""Windows of rows beside the tensors that they stand for."""

from __future__ import annotations

from microfold.report.page.layers import BAR
from microfold.report.stored import Rows, Window
from microfold.support.frozen import frozen


@frozen
class RowWindows:
    """The windows of a build.

    Attributes:
        held: bytes of all windows.
        whole: of the tensors; None where a report does not say it.
        rows: each window, and the length of its bar: the part of its tensor that is kept.
    """

    held: int
    whole: int | None
    rows: list[tuple[Window, float]]


def row_windows(stream: Rows) -> RowWindows:
    """Bytes that are kept, and those of whole tensors."""
    sizes = [window.whole for window in stream.windows if window.whole is not None]
    return RowWindows(
        held=sum(window.bytes for window in stream.windows),
        whole=sum(sizes) if len(sizes) == len(stream.windows) else None,
        # Padding is kept in windows, too: of small tensors more than there is of them.
        rows=[(w, round(BAR * min(1.0, w.bytes / w.whole), 1) if w.whole else 0.0) for w in stream.windows],
    )
