"""Importer functions, one per TFLite operator. Importing the package registers all of them."""

from importlib import import_module
from pkgutil import walk_packages

from microfold.frontend.importers import IMPORTERS

__all__ = ["IMPORTERS"]

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
