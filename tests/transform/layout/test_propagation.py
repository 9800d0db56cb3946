"""The algebra of orders, against numpy."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from microfold.transform.layout.propagation.arrangement import Arrangement, group
from microfold.transform.layout.propagation.message import as_permutation


@st.composite
def shapes(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """A shape with that many elements."""
    shape: list[int] = []
    for _ in range(draw(st.integers(0, 3))):
        extent = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
        shape.append(extent)
        size //= extent
    return (*shape, size)


@st.composite
def arrangements(draw: st.DrawFn, size: int) -> Arrangement:
    sizes = draw(shapes(size))
    return Arrangement(sizes, tuple(draw(st.permutations(range(len(sizes))))))


sizes = st.sampled_from([1, 2, 12, 24, 36, 60, 64])


@settings(deadline=None, max_examples=300)
@given(data=st.data(), size=sizes)
def test_everything_means_the_same(data: st.DataObject, size: int) -> None:
    first, second = data.draw(arrangements(size)), data.draw(arrangements(size))
    shape = data.draw(shapes(size))
    x = np.arange(size)
    value = first.apply(x).reshape(-1)
    for same in (first.simplified(), first.split_source(shape), first.split_value(shape)):
        if same is not None:
            np.testing.assert_array_equal(same.apply(x).reshape(-1), value)
    np.testing.assert_array_equal(first.inverse.apply(value).reshape(-1), x)
    assert first.is_view == np.array_equal(value, x)
    both = first.then(second)
    if both is not None:
        np.testing.assert_array_equal(both.apply(x).reshape(-1), second.apply(value).reshape(-1))


@settings(deadline=None, max_examples=200)
@given(data=st.data(), size=sizes)
def test_factors_of_axes(data: st.DataObject, size: int) -> None:
    arrangement, shape = data.draw(arrangements(size)), data.draw(shapes(size))
    split = arrangement.split_value(shape)
    if split is not None:
        groups = group(split.value_sizes, shape)
        assert [place for places in groups for place in places] == list(range(len(split.order)))
        assert tuple(math.prod(split.value_sizes[p] for p in places) for places in groups) == shape


@settings(deadline=None, max_examples=200)
@given(data=st.data(), size=sizes)
def test_a_transpose_of_axes_is_found(data: st.DataObject, size: int) -> None:
    shape = data.draw(shapes(size))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    result = tuple(shape[axis] for axis in order)
    found = as_permutation(shape, Arrangement(shape, order), result)
    assert found is not None
    x = np.arange(size).reshape(shape)
    np.testing.assert_array_equal(x.transpose(found), x.transpose(order))


@settings(deadline=None, max_examples=200)
@given(data=st.data(), size=sizes)
def test_a_transpose_of_axes_means_the_same(data: st.DataObject, size: int) -> None:
    arrangement = data.draw(arrangements(size))
    source, result = data.draw(shapes(size)), data.draw(shapes(size))
    found = as_permutation(source, arrangement, result)
    if found is not None:
        x = np.arange(size)
        moved = x.reshape(source).transpose(found)
        assert moved.shape == result
        np.testing.assert_array_equal(moved.reshape(-1), arrangement.apply(x).reshape(-1))


def test_a_permutation_within_an_axis_is_no_transpose_of_axes() -> None:
    assert as_permutation((3, 4), Arrangement((3, 2, 2), (2, 1, 0)), (4, 3)) is None
    assert as_permutation((3, 4), Arrangement((3, 2, 2), (1, 2, 0)), (4, 3)) == (1, 0)


def test_what_has_no_common_factors() -> None:
    assert Arrangement((4, 6), (1, 0)).then(Arrangement((8, 3), (1, 0))) is None
    assert Arrangement((4, 6), (1, 0)).then(Arrangement((2, 12), (1, 0))) is not None


def test_a_channel_shuffle_is_one_transpose() -> None:
    """[N, 12, H, W] shuffled in NCHW, between transposes from and to NHWC, moves channels only."""
    to_nchw = Arrangement((1, 4, 4, 12), (0, 3, 1, 2))
    shuffle = Arrangement((1, 2, 6, 4, 4), (0, 2, 1, 3, 4))
    to_nhwc = Arrangement((1, 12, 4, 4), (0, 2, 3, 1))
    whole = to_nchw.then(shuffle)
    whole = whole.then(to_nhwc) if whole is not None else None
    assert whole is not None
    assert whole.simplified() == Arrangement((16, 2, 6), (0, 2, 1))
