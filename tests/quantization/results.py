"""A quantisation with made-up figures, for tests of its texts."""

from __future__ import annotations

from microfold.quantization.build import Verified
from microfold.quantization.compare import LayerQuality, OutputQuality
from microfold.quantization.schemes import SCHEMES
from microfold.quantization.session import Quantisation, SchemeResult
from microfold.quantization.split import SampleSplit
from microfold.reporting.what_if import WhatIfBuild, impossible

EXACT = Verified(True, 20, "")


def scheme_result(
    scheme: str = "int8", verified: Verified = EXACT, *, size: int = 1000, cycles: int | None = 8000
) -> SchemeResult:
    return SchemeResult(
        SCHEMES[scheme],
        bytes(size),
        "",
        WhatIfBuild("cortex-m4", "balanced", None, 300, 2000, True, 5000, cycles),
        verified,
        (OutputQuality("out", 20.0, 0.75, 0.5), OutputQuality("score", None, None)),
        (
            LayerQuality(0, "conv;pad", "CONV_2D", "int8", 30.0, 30.0, 0.005, 0.9, 0, 8),
            LayerQuality(2, "out", "FULLY_CONNECTED", "int8", 20.0, None, 0.0, 0.0, 1, 4),
        ),
        ("advice <b>",),
    )


LAYERED = scheme_result()


def quantisation(verified: Verified = EXACT, *further: SchemeResult) -> Quantisation:
    """A result of int8, and those of further schemes."""
    return Quantisation(
        "net.tflite",
        4000,
        "cortex-m4",
        5,
        SampleSplit((0, 1, 2), (3,)),
        4,
        WhatIfBuild("cortex-m4", "balanced", None, 900, 5000, True, 9000, 12000),
        0.6,
        ("a signature was added",),
        (scheme_result(verified=verified), *further),
    )


UNMADE = SchemeResult(SCHEMES["int4"], b"", "ai-edge-quantizer failed")
UNBUILT = SchemeResult(
    SCHEMES["dynamic"],
    bytes(900),
    "no kernel",
    impossible("cortex-m4", "balanced", "no kernel"),
    Verified(None, 0, "no kernel"),
)
