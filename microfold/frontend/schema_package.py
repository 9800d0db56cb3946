"""The package `tflite`, the schema of the files, with modules that are imported when they are asked for.

It has one for each of 180 tables, unions and enumerations and imports them all, which takes as long as to
compile a small model; reading one takes a dozen. To whoever imports it, it is the same package.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType

_NAME = "tflite"


class _Package(ModuleType):
    """Has what its modules define below their own names; all else once it has imported all of them."""

    def __getattr__(self, name: str) -> object:
        module = f"{self.__name__}.{name}"
        if not name.startswith("_"):
            try:
                import_module(module)
            except ModuleNotFoundError as missing:
                if missing.name != module:
                    raise
            else:
                return vars(self)[name]
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(self)
        return getattr(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        """What a module defines below its own name hides it, as where all are imported."""
        super().__setattr__(name, vars(value).get(name, value) if isinstance(value, ModuleType) else value)


def import_on_demand() -> None:
    """Let `import tflite` give the package so, from here on, if it is there and nobody has imported it."""
    spec = find_spec(_NAME) if _NAME not in sys.modules else None
    if spec is None:
        return
    package = module_from_spec(spec)
    package.__class__ = _Package
    sys.modules[_NAME] = package
