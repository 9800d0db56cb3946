"""Detections read quantised boxes and scores themselves."""

from __future__ import annotations

from microfold.transform.simplify.fold_dequantize import fold_dequantize
from tests.transform.check import check_declined, check_rewrite

CALL = (
    "= detection_postprocess(%{}, %{}, %a) {{classes=2, max_detections=3, max_classes=1, per_class=3, "
    "score_threshold=0.5, overlap_threshold=0.5, scales=(10.0, 10.0, 5.0, 5.0), regular=false}}"
)
RESULTS = "%b: float32[1,3,4], %c: float32[1,3], %t: float32[1,3], %n: float32[1] "


def test_both_operands() -> None:
    head = "graph @g(%x: int8[1,9,4] q(0.1, 3), %s: uint8[1,9,3] q(0.00390625, 0), %a: float32[9,4]) -> "
    check_rewrite(
        fold_dequantize,
        f"""
        {head}(%b, %c, %t, %n) {{
          %boxes: float32[1,9,4] = dequantize(%x)
          %scores: float32[1,9,3] = dequantize(%s)
          {RESULTS}{CALL.format("boxes", "scores")}
        }}
        """,
        f"""
        {head}(%b, %c, %t, %n) {{
          {RESULTS}{CALL.format("x", "s")}
        }}
        """,
    )


def test_of_other_types() -> None:
    check_declined(
        fold_dequantize,
        f"""
        graph @g(%x: int16[1,9,4] q(0.1, 0), %s: float32[1,9,2], %a: float32[9,4]) -> (%b) {{
          %boxes: float32[1,9,4] = dequantize(%x)
          {RESULTS}{CALL.format("boxes", "s")}
        }}
        """,
        "must be int8 or uint8 with one scale; it is int16[1,9,4]",
    )
