"""When kernels are imported: those of an operator before somebody asks which there are.

A model has a few operators, and to import all kernels takes longer than to compile a small one.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import microfold.kernels
from microfold.ir.op import Op

# Folders of kernels are named as the file of their operator, or as the folder of that; and beside these:
_ALSO = {
    "fast_math": ("normalize",),
    "fully_connected": ("batch_matmul", "conv2d"),
    "hybrid_conv2d": ("conv2d",),
    "hybrid_depthwise_conv2d": ("depthwise_conv2d",),
    "mean": ("pool2d",),
    "transpose_conv2d": ("conv2d",),
}
# How the names of modules begin that have microfold's own kernels.
OWN = f"{microfold.kernels.__name__}."
_FOLDER = Path(microfold.kernels.__path__[0])


def load_kernels(op: type[Op]) -> None:
    """Import the kernels of an operator: they are in `kernel.KERNELS` from here on."""
    for folder in folders_of(op):
        _load(folder)


def folders_of(op: type[Op]) -> tuple[str, ...]:
    """Where the kernels of an operator may be: names of folders, as far as there are such."""
    words = op.__module__.split(".")
    return (*words, *_ALSO.get(words[-1], ()))


def load_all_kernels() -> None:
    """Import every kernel."""
    for folder in sorted(_FOLDER.iterdir()):
        _load(folder.name)


@cache
def _load(folder: str) -> None:
    """Import all modules of a folder, if there is one."""
    if (_FOLDER / folder / "__init__.py").exists():
        package = import_module(f"{OWN}{folder}")
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
