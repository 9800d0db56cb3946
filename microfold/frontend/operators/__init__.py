"""One short function per TFLite operator; importing the package registers them all."""

from importlib import import_module
from pkgutil import iter_modules

from microfold.frontend.context import IMPORTERS

__all__ = ["IMPORTERS"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
