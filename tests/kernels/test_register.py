"""The list of kernels: names are their own, and features are those that targets can have."""

from __future__ import annotations

import pytest

import microfold.kernels.selection.cheapest  # noqa: F401  (registers all of them)
from microfold.kernels.kernel import KERNELS, Kernel, register


def kernel(of_name: str, *wanted: str) -> type[Kernel]:
    class Made(Kernel):
        name = of_name
        features = frozenset(wanted)

    return Made


def test_a_name_is_taken_once() -> None:
    before = list(KERNELS)
    with pytest.raises(ValueError, match="there is a s8_softmax__c"):
        register(kernel("s8_softmax__c"))
    assert before == KERNELS


def test_features_are_those_of_targets() -> None:
    before = list(KERNELS)
    with pytest.raises(ValueError, match=r"new__kernel wants dps; the features of targets are thumb1, .*dsp"):
        register(kernel("new__kernel", "dps", "thumb2"))
    assert before == KERNELS
