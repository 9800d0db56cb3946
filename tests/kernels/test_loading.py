"""Kernels are imported when somebody asks for those of an operator: these are all that there are of it."""

from __future__ import annotations

import pytest

from microfold.ir.op import REGISTRY
from microfold.kernels.kernel import KERNELS
from microfold.kernels.loading import OWN, folders_of


@pytest.mark.parametrize("name", REGISTRY)
def test_kernels_are_where_they_are_looked_for(name: str) -> None:
    op = REGISTRY[name]
    for kernel in KERNELS:
        if kernel.op is op and type(kernel).__module__.startswith(OWN):
            folder = type(kernel).__module__.split(".")[2]
            assert folder in folders_of(op), f"{kernel.name}: say in `loading` that {name} has kernels there"
