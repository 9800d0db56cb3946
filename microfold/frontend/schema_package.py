"""Lazy import of the modules of the `tflite` package, which implements the file format's schema.

The package imports a module for each of 180 tables, unions and enumerations. That takes as long as compiling
a small model, which uses only a dozen of them. For its users, the lazy package behaves like the original.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType

_NAME = "tflite"


class _Package(ModuleType):
    """Package that imports a module when its name is accessed, or all modules for any other name."""

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
        """Set an attribute. Instead of a module, set its object of the same name, like the package does."""
        super().__setattr__(name, vars(value).get(name, value) if isinstance(value, ModuleType) else value)


def import_on_demand() -> None:
    """Make `import tflite` lazy from now on, if the package is installed and not yet imported."""
    spec = find_spec(_NAME) if _NAME not in sys.modules else None
    if spec is None:
        return
    package = module_from_spec(spec)
    package.__class__ = _Package
    sys.modules[_NAME] = package
