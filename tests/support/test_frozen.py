"""Classes made frozen by the house's decorator are what frozen dataclasses are."""

from __future__ import annotations

import dataclasses
import pickle
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from microfold.support.frozen import frozen


@frozen
class Made:
    kind: ClassVar[str] = "made"
    first: int
    second: tuple[int, ...] = ()
    third: list[int] = dataclasses.field(default_factory=list[int], compare=False, repr=False)
    fourth: int = dataclasses.field(init=False)
    fifth: int = dataclasses.field(default=5, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fourth", self.first + 1)


@dataclasses.dataclass(frozen=True)
class Standard:
    kind: ClassVar[str] = "made"
    first: int
    second: tuple[int, ...] = ()
    third: list[int] = dataclasses.field(default_factory=list[int], compare=False, repr=False)
    fourth: int = dataclasses.field(init=False)
    fifth: int = dataclasses.field(default=5, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fourth", self.first + 1)


@dataclasses.dataclass(frozen=True)
class StandardOfMade(Made):
    last: str = ""


@frozen
class MadeOfStandard(StandardOfMade):
    final: str = ""


@frozen(order=True)
class Ordered:
    first: int
    second: str = dataclasses.field(compare=False)


@frozen(eq=False)
class Apart:
    first: int


class WithMore(Made):
    """Derived without the decorator."""


SOURCES = Path(__file__).resolve().parents[2] / "microfold"
# What imports nothing of microfold, and what `frozen` itself is held against.
EXCEPTIONS = {"errors.py", "support/frozen.py"}

BOTH: list[Any] = [Made, Standard]


def test_fields() -> None:
    one, other = ([(f.name, f.type, f.init, f.default) for f in dataclasses.fields(each)] for each in BOTH)
    assert one == other
    assert Made.__match_args__ == Standard.__match_args__


@pytest.mark.parametrize("made", [Made, StandardOfMade, MadeOfStandard])
def test_values(made: Any) -> None:
    value = made(1, second=(2,))
    assert (value.first, value.second, value.third, value.fourth, value.fifth) == (1, (2,), [], 2, 5)
    assert value.third is not made(1).third
    assert value == made(1, (2,), [3]) != made(2, (2,))
    assert hash(value) == hash(made(1, (2,), [3]))
    assert dataclasses.replace(value, first=7) == made(7, (2,))
    assert dataclasses.asdict(value)["fourth"] == 2
    assert pickle.loads(pickle.dumps(value)) == value


def test_text_and_hash() -> None:
    one, other = (each(1, (2,)) for each in BOTH)
    assert repr(one) == repr(other).replace("Standard", "Made")
    assert hash(one) == hash(other)
    assert one != other


def test_nothing_is_assigned() -> None:
    for value in (Made(1), MadeOfStandard(1), WithMore(1)):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'first'"):
            value.first = 2  # type: ignore[misc]
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'first'"):
            del value.first
    with_more = WithMore(1)
    with_more.more = 3  # type: ignore[attr-defined]
    assert vars(with_more)["more"] == 3


def test_wrong_arguments() -> None:
    for value in BOTH:
        with pytest.raises(TypeError, match=f"{value.__name__}.__init__.. missing 1 required .* 'first'"):
            value()
        with pytest.raises(TypeError, match="unexpected keyword argument 'fourth'"):
            value(1, fourth=2)


def test_comparisons() -> None:
    assert Ordered(1, "b") < Ordered(2, "a")
    assert Ordered(1, "b") <= Ordered(1, "a") >= Ordered(0, "a")
    with pytest.raises(TypeError):
        assert Ordered(1, "b") < (1, "b")  # type: ignore[operator]
    assert Apart(1) != Apart(1)
    assert len({Apart(1), Apart(1)}) == 2


def test_all_frozen_classes_are() -> None:
    paths = {path.relative_to(SOURCES).as_posix(): path for path in SOURCES.rglob("*.py")}
    standard = {
        name
        for name, path in paths.items()
        if re.search(r"^ *@(dataclasses\.)?dataclass\(.*frozen=True", path.read_text("utf-8"), re.MULTILINE)
    }
    assert standard == EXCEPTIONS
