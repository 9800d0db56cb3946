"""How a pass is written: a function, or a class with options, under a decorator."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.passes.context import PassContext, Transform
from microfold.passes.kinds import FunctionPass, ModulePass, Pass

P = ParamSpec("P")


class Transformer(Protocol):
    """The class form of a pass: options as fields, and this method."""

    def transform(self, graph: Graph, context: PassContext) -> Graph: ...


class PassFactory(Generic[P]):
    """A pass with options, made by decorating a class; call it with the options to get the pass.

    Attributes:
        form: the class; its fields are the options.
        name, opt_level, required, mandatory: see `Pass`; they do not depend on the options.
    """

    def __init__(
        self,
        form: Callable[P, Transformer],
        kind: type[ModulePass],
        name: str,
        *,
        opt_level: int = 0,
        required: Sequence[Pass] = (),
        mandatory: bool = False,
    ):
        self.form = form
        self.name = name
        self.opt_level = opt_level
        self.required = tuple(required)
        self.mandatory = mandatory
        self._kind = kind

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Pass:
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
        name = self.name or _snake_case(target.__name__)
        if isinstance(target, type):
            if not callable(getattr(target, "transform", None)):
                raise InputError(
                    f"a class that is a pass must have a method transform(graph, context); {target.__name__} "
                    "has none"
                )
            form = cast("Callable[..., Transformer]", target)
            return PassFactory(form, self.kind, name, **self.options)
        return self.kind(target, name, **self.options)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def function_pass(
    *, opt_level: int, name: str | None = None, required: Sequence[Pass] = (), mandatory: bool = False
) -> _Decorator[FunctionPass]:
    """Decorator: the function, or the class's `transform`, works on each graph of a model alone.

    Args:
        opt_level, required, mandatory: see `Pass`.
        name: default is the function's name, or the class's in snake case.
    """
    options = {"opt_level": opt_level, "required": required, "mandatory": mandatory}
    return _Decorator(FunctionPass, name, options)


def module_pass(
    *, opt_level: int, name: str | None = None, required: Sequence[Pass] = (), mandatory: bool = False
) -> _Decorator[ModulePass]:
    """Decorator: the function, or the class's `transform`, sees the main graph with its subgraphs.

    Args:
        opt_level, required, mandatory, name: see `function_pass`.
    """
    options = {"opt_level": opt_level, "required": required, "mandatory": mandatory}
    return _Decorator(ModulePass, name, options)
