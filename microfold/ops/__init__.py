"""Operators of the IR. Importing this package makes every operator's name known to the text form."""

from importlib import import_module
from pkgutil import walk_packages

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
