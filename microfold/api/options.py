"""Keyword options of the Python interface, with their types."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from microfold.errors import InputError
from microfold.options import Options
from microfold.passes.context import Instrument
from microfold.passes.kinds import Pass

_Function = TypeVar("_Function", bound=Callable[..., Any])


class CodeKeywords(TypedDict, total=False):
    """Options of the generated code; `microfold.options.Options` describes them."""

    optimize: Literal["size", "balanced", "speed"]
    flash: int | None
    ram: int | None
    objective: str
    io: Literal["arena", "caller", "rows"]
    rows: Literal["auto", "never"]
    align: Literal[8, 16, 32, 64]
    memory: Literal["context", "split", "parts"]
    io_layout: str
    input_type: Sequence[str]
    output_type: Sequence[str]
    sliding: int | None
    sliding_step: int | None
    single_file: bool
    weights_section: str
    weights: Literal["arrays", "blob"]
    place: Sequence[str]
    place_code: Sequence[str]
    kernels: Sequence[str]
    max_iterations: int | None
    step: bool
    taps: bool
    license: str
    numerics: Literal["exact", "relaxed"]
    external: Sequence[str]
    external_flags: Sequence[str]


class CompileOptions(CodeKeywords, total=False):
    """All keyword options of `microfold.compile`, `build`, `verify` and `report`.

    Attributes:
        name: prefix of all C names; default: the file's name.
        signature: signature of a `.tflite` file whose subgraph is compiled; default: the first subgraph.
        input_shapes: shapes of inputs with open dimensions, each ``NAME=1,49,10,1``.
        labels: file of class names, one per line; default: the labels in the model's metadata.
        custom: files that define custom operators. Python files are executed.
        passes: pass or passes to run instead of `microfold.pipeline.default_pipeline()`. Its `with_pass`
            returns a pipeline with your own pass. Mandatory passes run after the sequence.
        disabled: names of passes to skip.
        opt_level: highest level of passes to run, 0 to 4.
        instruments: observers of the passes.
    """

    name: str
    signature: str | None
    input_shapes: Sequence[str]
    labels: str | os.PathLike[str] | None
    custom: Sequence[str | os.PathLike[str]]
    passes: Pass | Sequence[Pass] | None
    disabled: Collection[str]
    opt_level: int
    instruments: Sequence[Instrument]


# Defaults of the options that are not fields of `Options`.
FURTHER: Mapping[str, Any] = {
    "name": "",
    "signature": None,
    "input_shapes": (),
    "labels": None,
    "custom": (),
    "passes": None,
    "disabled": (),
    "opt_level": 3,
    "instruments": (),
}
# Default of each option of the generated code.
_DEFAULTS: dict[str, Any] = dict(zip(Options.__struct_fields__, Options.__struct_defaults__, strict=True))


def with_options(function: _Function) -> _Function:
    """Give a function with keyword options a signature that names them, for notebooks and `help`."""
    own = inspect.signature(function)
    parameters = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    defaults = _DEFAULTS | dict(FURTHER)
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters += [inspect.Parameter(name, keyword, default=value) for name, value in defaults.items()]
    function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


def code_options(given: Mapping[str, Any]) -> Options:
    """Return the options of the generated code.

    Raises:
        InputError: an option is unknown or has an invalid value.
    """
    unknown = sorted(given.keys() - {*_DEFAULTS, *FURTHER})
    if unknown:
        raise InputError(
            f"unknown option {', '.join(unknown)}; known are {', '.join([*_DEFAULTS, *FURTHER])}"
        )
    # `Options` is hashable, so lists become tuples.
    chosen: dict[str, Any] = {
        name: tuple(value) if type(value) is list else value
        for name, value in given.items()
        if name in _DEFAULTS
    }
    wrong = [
        problem for name, value in chosen.items() if (problem := _type_problem(name, value, _DEFAULTS[name]))
    ]
    if wrong:
        raise InputError("; ".join(wrong))
    return Options(**chosen)


def _type_problem(name: str, value: object, default: object) -> str:
    """Return why the value has the wrong type for an option with this default; empty if it fits."""
    kinds: dict[type, str] = {
        bool: "True or False",
        int: "an integer",
        str: "a text",
        tuple: "a list of texts",
    }
    kind = int if default is None else type(default)
    if type(value) is kind or (value is None and default is None):
        return ""
    more = " or None" if default is None else ""
    return f"{name} must be {kinds[kind]}{more}; got {value!r}"
