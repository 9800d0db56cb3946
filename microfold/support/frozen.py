"""Frozen dataclasses that are fast to define.

`dataclasses.dataclass` compiles six methods of every frozen class, which dominates the import time of the
package's hundreds of classes. Here, methods are closures, and `__init__` is compiled only for classes with
many instances. The `dataclasses` module treats the classes as frozen dataclasses: `fields`, `replace` and
other functions accept them, and both kinds of classes can be derived from each other.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from operator import attrgetter, ge, gt, le, lt
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda function: function


_Class = TypeVar("_Class", bound=type)
_Fields = dict[str, "dataclasses.Field[Any]"]


@dataclasses.dataclass(frozen=True)
class _Sample:
    """Sample class, from which the internal attributes of `dataclasses` are copied."""

    field: int


# Instances of a class before its `__init__` is compiled. Creating them takes as long as compiling it.
_FEW = 8

_PARAMETERS: Any = vars(_Sample)["__dataclass_params__"]
_ORDINARY: Any = dataclasses.fields(_Sample)[0]


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: _Class, /) -> _Class: ...


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(*, eq: bool = True, order: bool = False) -> Callable[[_Class], _Class]: ...


def frozen(cls: type | None = None, /, *, eq: bool = True, order: bool = False) -> Any:
    """Decorate a class like `dataclasses.dataclass(frozen=True)`.

    Args:
        eq: whether objects compare and hash by their fields; otherwise as in the base class.
        order: whether objects are ordered like tuples of their fields.
    """

    def decorate(cls: type) -> type:
        fields = _collect(cls)
        initialized = tuple(field.name for field in fields.values() if field.init)
        methods: dict[str, Any] = {
            "__init__": _initializer(cls, fields),
            "__setattr__": _refusal(cls, fields, "assign to"),
            "__delattr__": _refusal(cls, fields, "delete"),
            "__repr__": _text,
            "__match_args__": initialized,
        }
        if eq:
            methods |= _comparisons(fields, order)
        own = vars(cls)
        for name, method in methods.items():
            # A class that defines __eq__ has None for __hash__.
            if own.get(name) is None:
                setattr(cls, name, method)
        cls.__dataclass_fields__ = fields  # type: ignore[attr-defined]
        cls.__dataclass_params__ = _PARAMETERS  # type: ignore[attr-defined]
        return cls

    return decorate if cls is None else decorate(cls)


def _collect(cls: type) -> _Fields:
    """Return the fields of a class, inherited ones first, and set the defaults as class attributes."""
    fields: _Fields = {}
    for base in cls.__mro__[:0:-1]:
        fields |= vars(base).get("__dataclass_fields__", {})
    for name, annotation in inspect.get_annotations(cls).items():
        if str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        given = vars(cls).get(name, dataclasses.MISSING)
        found: Any = given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)
        found.name, found.type, found.kw_only = name, annotation, False
        found._field_type = _ORDINARY._field_type
        fields[name] = found
        if found is given and found.default is dataclasses.MISSING:
            delattr(cls, name)
        elif found is given:
            setattr(cls, name, found.default)
    return fields


def _initializer(cls: type, fields: _Fields) -> Callable[..., None]:
    names = dict.fromkeys(name for name, field in fields.items() if field.init)
    made = 0

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:
        nonlocal made
        made += 1
        values = dict(zip(names, args, strict=False)) | kwargs
        understood = len(values) == len(args) + len(kwargs) and values.keys() <= names.keys()
        _add_defaults(values, fields)
        if made > _FEW or not understood or not values.keys() >= names.keys():
            compiled = _compiled_initializer(cls, fields)  # it also reports wrong arguments
            cls.__init__ = compiled  # type: ignore[misc]
            return compiled(self, *args, **kwargs)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()  # type: ignore[attr-defined]
        return None

    return __init__


def _add_defaults(values: dict[str, Any], fields: _Fields) -> None:
    for name, field in fields.items():
        if name in values:
            continue
        if field.default_factory is not dataclasses.MISSING:
            values[name] = field.default_factory()
        elif field.init and field.default is not dataclasses.MISSING:  # otherwise the class attribute is used
            values[name] = field.default


def _compiled_initializer(cls: type, fields: _Fields) -> Callable[..., None]:
    known: dict[str, Any] = {"set_field": object.__setattr__, "UNSET": object()}
    parameters, lines = ["self"], list[str]()
    for name, field in fields.items():
        value = name
        if field.default_factory is not dataclasses.MISSING:
            known[f"make_{name}"] = field.default_factory
            value = f"make_{name}() if {name} is UNSET else {name}" if field.init else f"make_{name}()"
            default = "=UNSET"
        else:
            known[f"default_{name}"] = field.default
            default = "" if field.default is dataclasses.MISSING else f"=default_{name}"
            if not field.init:
                continue  # the class attribute is used
        parameters += [f"{name}{default}"] if field.init else []
        lines.append(f"set_field(self, {name!r}, {value})")
    lines.append("self.__post_init__()" if hasattr(cls, "__post_init__") else "return")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines), known)
    made: Any = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _refusal(cls: type, fields: _Fields, what: str) -> Callable[..., None]:
    """Return `__setattr__` or `__delattr__`. Undecorated subclasses can have other attributes."""
    name = "__setattr__" if what == "assign to" else "__delattr__"

    def refuse(self: object, attribute: str, *value: Any) -> None:
        if type(self) is cls or attribute in fields:
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {attribute!r}")
        getattr(super(cls, self), name)(attribute, *value)

    return refuse


def _text(self: Any) -> str:
    shown = (field.name for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _comparisons(fields: _Fields, order: bool) -> dict[str, Callable[..., Any]]:
    key = _values(*(field.name for field in fields.values() if field.compare))

    def compared(compare: Callable[[Any, Any], Any]) -> Callable[[object, object], Any]:
        def method(self: object, other: object) -> Any:
            return compare(key(self), key(other)) if other.__class__ is self.__class__ else NotImplemented

        return method

    def __eq__(self: object, other: object) -> Any:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:
        return hash(key(self))

    ordering = {"__lt__": lt, "__le__": le, "__gt__": gt, "__ge__": ge} if order else {}
    return {"__eq__": __eq__, "__hash__": __hash__} | {n: compared(each) for n, each in ordering.items()}


def _values(*names: str) -> Callable[[object], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda owner: tuple(getattr(owner, name) for name in names)
