"""User-defined custom operators: Python files that define them, and C functions that compute them.

A Python file registers operators, importers and kernels like the modules of microfold. It may also define
passes, which options can then name. A TOML file names the C function of each custom operator.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from microfold.errors import InputError, MicrofoldError
from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import IMPORTERS, ImportFunction
from microfold.ir.types import TensorType
from microfold.ops.external.custom_call import NAMES, CustomCall
from microfold.passes.decorators import PassFactory
from microfold.passes.kinds import Pass
from microfold.passes.registry import register_passes, registered_passes
from microfold.support.toml import read_toml

loaded: set[Path] = set()


def load(path: Path) -> None:
    """Register the operators and passes of a file. Further calls with the same file have no effect.

    Args:
        path: Python file, or TOML file of C functions.

    Raises:
        InputError: the file cannot be read or run, or defines an operator that already exists.
    """
    path = path.resolve()
    if path in loaded:
        return
    readers: Mapping[str, Callable[[Path], None]] = {".py": _run, ".toml": _read_calls}
    if path.suffix not in readers:
        raise InputError(f"custom operators must be in a .py or .toml file; it is {path.name}")
    readers[path.suffix](path)
    loaded.add(path)


def _run(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(f"microfold_custom_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # required by dataclasses
    try:
        spec.loader.exec_module(module)
        _register_passes(module, path)
    except Exception as error:  # the file may raise anything
        del sys.modules[spec.name]
        if isinstance(error, MicrofoldError):
            raise
        raise InputError(f"{path.name}: its operators cannot be loaded: {error!r}") from error


def _register_passes(module: ModuleType, path: Path) -> None:
    """Register the passes that a file defines, so that options can name them.

    Raises:
        InputError: another pass has the name of one of them.
    """
    known = registered_passes()
    # Passes that the file imports are in the module, too.
    defined = [item for item in vars(module).values() if isinstance(item, Pass | PassFactory)]
    own = {item.name: item for item in defined if known.get(item.name) is not item}
    taken = sorted(own.keys() & known.keys())
    if taken:
        raise InputError(f"{path.name}: pass {taken[0]} already exists; use another name")
    register_passes(lambda: own)


class _Call(Struct, frozen=True):
    """C function with its declared input and output types, e.g. ``int16[1,480]``; None: any types."""

    function: str
    header: str
    inputs: tuple[str, ...] | None
    outputs: tuple[str, ...] | None


def _read_calls(path: Path) -> None:
    try:
        tables = read_toml(path)
    except ValueError as error:
        raise InputError(f"{path.name} must be a TOML file: {error}") from None
    calls = {name: _call(path, name, table) for name, table in tables.items()}
    taken = sorted(name for name in calls if f"CUSTOM {name}" in IMPORTERS)
    if taken:
        raise InputError(f"{path.name}: custom operator {taken[0]} already exists; use another name")
    IMPORTERS.update({f"CUSTOM {name}": _importer(call) for name, call in calls.items()})


def _call(path: Path, name: str, table: Any) -> _Call:
    where = f"{path.name}: [{name}]"
    keys = {"function", "header", "inputs", "outputs"}
    if not isinstance(table, dict) or not {"function", "header"} <= table.keys() <= keys:  # type: ignore[reportUnknownMemberType]
        raise InputError(f"{where} must be a table of function, header and, optionally, inputs and outputs")
    found: dict[str, Any] = table  # type: ignore[reportUnknownVariableType]
    for key, pattern, what in NAMES:
        if not isinstance(found[key], str) or not pattern.fullmatch(found[key]):
            raise InputError(f"{where}: {key} must be {what}; it is {found[key]!r}")
    for key in ("inputs", "outputs"):
        types = found.get(key)
        if types is not None and not (isinstance(types, list) and all(isinstance(t, str) for t in types)):  # type: ignore[reportUnknownVariableType]
            raise InputError(
                f'{where}: {key} must be a list of types like "int16[1,480]"; they are {types!r}'
            )
    return _Call(
        found["function"], found["header"], *(_types(found.get(key)) for key in ("inputs", "outputs"))
    )


def _types(found: list[str] | None) -> tuple[str, ...] | None:
    return None if found is None else tuple(text.replace(" ", "") for text in found)


def _importer(call: _Call) -> ImportFunction:
    def custom_call(context: OperatorContext) -> None:
        inputs = context.inputs()
        results = tuple(context.declared_type(index) for index in range(len(context.raw.outputs)))
        _check("inputs", call.inputs, [value.type for value in inputs])
        _check("outputs", call.outputs, results)
        op = CustomCall(call.function, call.header, results)
        names = [context.name(index) for index in range(len(results))]
        context.finish(*context.emit(op, *inputs, names=names))

    return custom_call


def _check(what: str, declared: tuple[str, ...] | None, found: Any) -> None:
    types: list[TensorType] = list(found)
    if declared is not None and [str(type) for type in types] != list(declared):
        raise Unsupported(
            f"its {what} must match its C function, {', '.join(declared)}; "
            f"they are {', '.join(map(str, types))}"
        )
