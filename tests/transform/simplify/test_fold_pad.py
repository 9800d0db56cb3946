from __future__ import annotations

from microfold.transform.simplify.fold_pad import fold_pad
from tests.transform.check import check_declined, check_rewrite

WINDOW = "strides=(1, 1), dilations=(1, 1)"


def test_convolutions_with_the_zero_point() -> None:
    decisions = check_rewrite(
        fold_pad,
        f"""
        graph @g(%x: int8[1,3,3,1] q(0.1, 3)) -> (%y, %z) {{
          %p: int8[1,5,6,1] q(0.1, 3) = pad(%x) {{padding=((0, 0), (1, 1), (2, 1), (0, 0)), fill=3.0}}
          %w = constant int8[1,3,3,1] q(0.5, 0) [1, -2, 3, -4, 5, -6, 7, -8, 9]
          %y: int8[1,3,4,1] q(2.0, -5) = conv2d(%p, %w) {{{WINDOW}, padding=((0, 0), (0, 0))}} | clip() {{minimum=0.0, maximum=inf}}
          %z: int8[1,4,4,1] q(2.0, -5) = depthwise_conv2d(%p, %w) {{{WINDOW}, padding=((0, 1), (0, 0))}}
        }}
        """,  # noqa: E501
        f"""
        graph @g(%x: int8[1,3,3,1] q(0.1, 3)) -> (%y, %z) {{
          %w = constant int8[1,3,3,1] q(0.5, 0) [1, -2, 3, -4, 5, -6, 7, -8, 9]
          %y: int8[1,3,4,1] q(2.0, -5) = conv2d(%x, %w) {{{WINDOW}, padding=((1, 1), (2, 1))}} | clip() {{minimum=0.0, maximum=inf}}
          %z: int8[1,4,4,1] q(2.0, -5) = depthwise_conv2d(%x, %w) {{{WINDOW}, padding=((1, 2), (2, 1))}}
        }}
        """,  # noqa: E501
    )
    assert [d.where for d in decisions if d.fired] == ["pad %p", "pad %p"]


def test_maximum_pool_with_the_lowest_value() -> None:
    check_rewrite(
        fold_pad,
        """
        graph @g(%x: int8[1,4,4,1] q(0.1, 3), %f: float32[1,4,4,1]) -> (%y, %z) {
          %p: int8[1,5,5,1] q(0.1, 3) = pad(%x) {padding=((0, 0), (1, 0), (1, 0), (0, 0)), fill=-128.0}
          %y: int8[1,2,2,1] q(0.1, 3) = max_pool2d(%p) {size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))}
          %r: float32[1,5,5,1] = pad(%f) {padding=((0, 0), (1, 0), (1, 0), (0, 0)), fill=-inf}
          %z: float32[1,2,2,1] = max_pool2d(%r) {size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))}
        }
        """,
        """
        graph @g(%x: int8[1,4,4,1] q(0.1, 3), %f: float32[1,4,4,1]) -> (%y, %z) {
          %y: int8[1,2,2,1] q(0.1, 3) = max_pool2d(%x) {size=(2, 2), strides=(2, 2), padding=((1, 0), (1, 0))}
          %z: float32[1,2,2,1] = max_pool2d(%f) {size=(2, 2), strides=(2, 2), padding=((1, 0), (1, 0))}
        }
        """,
    )


def test_pad_behind_a_pad_of_another_fill() -> None:
    # The inner pad has its own reader; the outer one folds first and leaves the inner one foldable.
    check_rewrite(
        fold_pad,
        f"""
        graph @g(%x: float32[1,3,3,1]) -> (%y, %z) {{
          %w = constant float32[1,4,4,1] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
          %p: float32[1,5,5,1] = pad(%x) {{padding=((0, 0), (1, 1), (1, 1), (0, 0)), fill=0.0}}
          %y: float32[1,2,2,1] = conv2d(%p, %w) {{{WINDOW}, padding=((0, 0), (0, 0))}}
          %o: float32[1,6,6,1] = pad(%p) {{padding=((0, 0), (1, 0), (1, 0), (0, 0)), fill=0.0}}
          %z: float32[1,3,3,1] = conv2d(%o, %w) {{{WINDOW}, padding=((0, 0), (0, 0))}}
        }}
        """,  # noqa: E501
        f"""
        graph @g(%x: float32[1,3,3,1]) -> (%y, %z) {{
          %w = constant float32[1,4,4,1] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
          %y: float32[1,2,2,1] = conv2d(%x, %w) {{{WINDOW}, padding=((1, 1), (1, 1))}}
          %z: float32[1,3,3,1] = conv2d(%x, %w) {{{WINDOW}, padding=((2, 1), (2, 1))}}
        }}
        """,  # noqa: E501
        tolerance=1e-6,
    )


def declined(pad: str, reader: str, shapes: tuple[str, str], reason: str, outputs: str = "%y") -> None:
    check_declined(
        fold_pad,
        f"""
        graph @g(%x: int8[1,4,4,1] q(0.1, 3)) -> ({outputs}) {{
          %w = constant int8[1,2,2,1] q(0.5, 0) [1, 2, 3, 4]
          %p: int8[{shapes[0]}] q(0.1, 3) = pad(%x) {{{pad}}}
          %y: int8[{shapes[1]}] q(0.1, 3) = {reader}
        }}
        """,
        reason,
    )


SAME = "padding=((0, 0), (1, 0), (1, 0), (0, 0)), fill=3.0"
CONV = f"conv2d(%p, %w) {{{WINDOW}, padding=((0, 0), (0, 0))}}"
POOL = "_pool2d(%p) {size=(2, 2), strides=(1, 1), padding=((0, 0), (0, 0))}"


def test_average_pool() -> None:
    declined(SAME, f"average{POOL}", ("1,5,5,1", "1,4,4,1"), "would change the mean")


def test_maximum_pool_with_another_fill() -> None:
    declined(
        SAME, f"max{POOL}", ("1,5,5,1", "1,4,4,1"), "the fill must be -128, as in its own padding; it is 3"
    )


def test_convolution_with_another_fill() -> None:
    pad = "padding=((0, 0), (1, 0), (1, 0), (0, 0)), fill=0.0"
    declined(pad, CONV, ("1,5,5,1", "1,4,4,1"), "the fill must be 3, as in its own padding; it is 0")


def test_batch_axis() -> None:
    pad = "padding=((1, 0), (1, 0), (1, 0), (0, 0)), fill=3.0"
    declined(pad, CONV, ("2,5,5,1", "2,4,4,1"), "it pads axis 0")


def test_whole_windows_outside_the_image() -> None:
    pad = "padding=((0, 0), (2, 0), (1, 0), (0, 0)), fill=3.0"
    declined(pad, CONV, ("1,6,5,1", "1,5,4,1"), "whole windows")


def test_padded_image_is_an_output() -> None:
    declined(SAME, CONV, ("1,5,5,1", "1,4,4,1"), "leaves the graph", outputs="%y, %p")


def test_one_reader_cannot() -> None:
    check_declined(
        fold_pad,
        f"""
        graph @g(%x: int8[1,4,4,1] q(0.1, 3)) -> (%y, %z) {{
          %w = constant int8[1,2,2,1] q(0.5, 0) [1, 2, 3, 4]
          %p: int8[1,5,5,1] q(0.1, 3) = pad(%x) {{{SAME}}}
          %y: int8[1,4,4,1] q(0.1, 3) = {CONV}
          %z: int8[1,4,4,1] q(0.1, 3) = average{POOL}
        }}
        """,
        "the padded image is needed anyway",
    )


def test_zeros_behind_the_samples_of_a_transform() -> None:
    check_rewrite(
        fold_pad,
        """
        graph @g(%x: float32[2,3]) -> (%y) {
          %p: float32[2,8] = pad(%x) {padding=((0, 0), (0, 5)), fill=0.0}
          %y: float32[2,10] = signal_rfft(%p) {fft_length=8}
        }
        """,
        """
        graph @g(%x: float32[2,3]) -> (%y) {
          %y: float32[2,10] = signal_rfft(%x) {fft_length=8}
        }
        """,
    )


def test_other_pads_of_samples_stay() -> None:
    for padding, fill in (("(0, 0), (1, 4)", 0.0), ("(0, 1), (0, 5)", 0.0), ("(0, 0), (0, 5)", 1.0)):
        rows = 3 if padding.startswith("(0, 1)") else 2
        check_declined(
            fold_pad,
            f"""
            graph @g(%x: float32[2,3]) -> (%y) {{
              %p: float32[{rows},8] = pad(%x) {{padding=({padding}), fill={fill}}}
              %y: float32[{rows},10] = signal_rfft(%p) {{fft_length=8}}
            }}
            """,
            "transforms only append zeros to their samples",
        )
