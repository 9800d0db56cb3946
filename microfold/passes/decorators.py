"""Decorators that create passes from functions, and from classes with options."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.passes.context import PassContext, Transform
from microfold.passes.kinds import FunctionPass, ModulePass, Pass, check_declaration
from microfold.passes.option_types import check_options

P = ParamSpec("P")


class Transformer(Protocol):
    """Class form of a pass: its fields are options, and it has this method."""

    def transform(self, graph: Graph, context: PassContext) -> Graph: ...


class PassFactory(Generic[P]):
    """Factory of passes with options, created by decorating a class. Call it with options to get a pass.

    Attributes:
        form: decorated class; its fields are the options.
        name, opt_level, required, mandatory: see `Pass`; the options have no effect on them.

    Raises:
        InputError: see `Pass`.
    """

    def __init__(
        self,
        form: Callable[P, Transformer],
        kind: type[ModulePass],
        name: str,
        *,
        opt_level: int = 0,
        required: Sequence[Pass | str] = (),
        mandatory: bool = False,
    ):
        check_declaration(name, opt_level, required)
        self.form = form
        self.name = name
        self.opt_level = opt_level
        self.required = tuple(required)
        self.mandatory = mandatory
        self._kind = kind

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Pass:
        """Return the pass with these options.

        Raises:
            InputError: an option is unknown or missing, or a value has the wrong type.
        """
        if args or kwargs:
            check_options(self.name, self.form, args, kwargs)
        transform = self.form(*args, **kwargs).transform
        return self._kind(
            transform,
            self.name,
            opt_level=self.opt_level,
            required=self.required,
            mandatory=self.mandatory,
        )


S = TypeVar("S", bound=ModulePass)


class _Decorator(Generic[S]):
    def __init__(self, kind: type[S], name: str | None, options: dict[str, Any]):
        self.kind = kind
        self.name = name
        self.options = options

    # A class is also a callable: the first overload must be the one that fits classes only.
    @overload
    def __call__(self, target: Callable[P, Transformer]) -> PassFactory[P]: ...
    @overload
    def __call__(self, target: Transform) -> S: ...
    def __call__(self, target: Any) -> Any:
        if not callable(target):
            raise InputError(f"a pass must be made from a function or a class; got {target!r}")
        name = self.name or _snake_case(getattr(target, "__name__", ""))
        if not name.isidentifier():
            raise InputError(
                f"the name of a pass must consist of letters, digits and '_'; set name=, not {name!r}"
            )
        if isinstance(target, type):
            if not callable(getattr(target, "transform", None)):
                raise InputError(
                    f"a class that is a pass must have a method transform(graph, context); {target.__name__} "
                    "has none"
                )
            form = cast("Callable[..., Transformer]", target)
            return PassFactory(form, self.kind, name, **self.options)
        return self.kind(cast("Transform", target), name, **self.options)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@overload
def function_pass(
    pass_func: None = None,
    *,
    opt_level: int,
    name: str | None = None,
    required: Sequence[Pass | str] = (),
    mandatory: bool = False,
) -> _Decorator[FunctionPass]: ...
@overload
def function_pass(
    pass_func: Callable[P, Transformer],
    *,
    opt_level: int,
    name: str | None = None,
    required: Sequence[Pass | str] = (),
    mandatory: bool = False,
) -> PassFactory[P]: ...
@overload
def function_pass(
    pass_func: Transform,
    *,
    opt_level: int,
    name: str | None = None,
    required: Sequence[Pass | str] = (),
    mandatory: bool = False,
) -> FunctionPass: ...
def function_pass(
    pass_func: Any = None,
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[Pass | str] = (),
    mandatory: bool = False,
) -> Any:
    """Create a pass on single graphs from a function, or from a class with `transform`.

    Args:
        pass_func: function or class; without it, the result is a decorator.
        opt_level, required, mandatory: see `Pass`; the level has no default.
        name: name of the pass; default: the name of the function, or of the class in snake case.

    Raises:
        InputError: an argument is invalid.
    """
    return _make(FunctionPass, pass_func, opt_level, name, required, mandatory)


@overload
def module_pass(
    pass_func: None = None,
    *,
    opt_level: int,
    name: str | None = None,
    required: Sequence[Pass | str] = (),
    mandatory: bool = False,
) -> _Decorator[ModulePass]: ...
@overload
def module_pass(
    pass_func: Callable[P, Transformer],
    *,
    opt_level: int,
    name: str | None = None,
    required: Sequence[Pass | str] = (),
    mandatory: bool = False,
) -> PassFactory[P]: ...
@overload
def module_pass(
    pass_func: Transform,
    *,
    opt_level: int,
    name: str | None = None,
    required: Sequence[Pass | str] = (),
    mandatory: bool = False,
) -> ModulePass: ...
def module_pass(
    pass_func: Any = None,
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[Pass | str] = (),
    mandatory: bool = False,
) -> Any:
    """Create a pass on the main graph with its subgraphs from a function, or a class with `transform`.

    Args:
        pass_func, opt_level, required, mandatory, name: see `function_pass`.

    Raises:
        InputError: an argument is invalid.
    """
    return _make(ModulePass, pass_func, opt_level, name, required, mandatory)


def _make(
    kind: type[ModulePass],
    pass_func: Any,
    opt_level: int | None,
    name: str | None,
    required: Sequence[Pass | str],
    mandatory: bool,
) -> Any:
    check_declaration(name or "a pass", opt_level, required)
    options = {"opt_level": opt_level, "required": required, "mandatory": mandatory}
    decorator = _Decorator(kind, name, options)
    return decorator if pass_func is None else decorator(pass_func)
