"""Declarations of layers' fields."""

from __future__ import annotations

import pytest

from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.fields import Field, declare, describe, inner_fields
from microfold.kernels.kernel import KERNELS

FIELDS = declare("count", Field("step", "bytes"))


def test_names_are_fields_without_comments() -> None:
    assert (Field("count"), Field("step", "bytes")) == FIELDS


def test_comments_of_a_function() -> None:
    assert describe(FIELDS, count="rows") == (Field("count", "rows"), Field("step", "bytes"))
    with pytest.raises(ValueError, match="declared fields; not declared: rows"):
        describe(FIELDS, rows="of pixels")


def test_fields_of_an_inner_layer() -> None:
    assert inner_fields("row", FIELDS) == (Field("row.count"), Field("row.step", "bytes"))


def test_parameters_must_be_declared() -> None:
    function = CFunction("t", "s8_add__c", (), FIELDS)
    assert KernelCall(function, {"count": 1}).parameters == {"count": 1}
    with pytest.raises(
        ValueError, match="s8_add__c: parameters must be declared fields; pitch, rows are not"
    ):
        KernelCall(function, {"count": 1, "rows": 2, "pitch": 3})


def test_a_field_is_declared_once() -> None:
    for kernel in KERNELS:
        names = [field.name for field in kernel.fields]
        assert sorted(set(names)) == sorted(names), kernel.name
