from __future__ import annotations

from microfold.ir.text import parse
from tests.kernels.choice import candidates_of


def test_every_kernel_refuses_another_layout() -> None:
    graph = parse("""graph @g(%x: int8[1,4,6,6] q(0.5, 0)) -> (%y) {
      %y: int8[1,4,3,3] q(0.5, 0) = max_pool2d(%x) {size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0)), layout="NCHW"}
    }""")  # noqa: E501
    for name in ("cortex-m4", "cortex-m55", "host"):
        found = candidates_of(graph, name)
        assert found
        for candidate in found:
            assert candidate.cost is None
            assert candidate.reason is not None
            assert "its layout is NCHW, not NHWC" in candidate.reason or "lacks" in candidate.reason
        assert any("layout" in str(candidate.reason) for candidate in found)
