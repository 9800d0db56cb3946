"""Loading of kernels on demand: selection imports the kernels of one operator before it lists them.

A model has few operators, and the import of all kernels needs more time than the compilation of a small
model.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import microfold.kernels
from microfold.ir.op import Op

# A folder of kernels has the name of its operator's module, or of the folder of that module. This table has
# the additional folders of an operator.
_ALSO = {
    "fast_math": ("normalize",),
    "fully_connected": ("batch_matmul", "conv2d"),
    "hybrid_conv2d": ("conv2d",),
    "hybrid_depthwise_conv2d": ("depthwise_conv2d",),
    "mean": ("pool2d",),
    "transpose_conv2d": ("conv2d",),
}
# Prefix of the names of modules with microfold's own kernels.
OWN = f"{microfold.kernels.__name__}."
_FOLDER = Path(microfold.kernels.__path__[0])


def load_kernels(op: type[Op]) -> None:
    """Import the kernels of an operator, which adds them to `kernel.KERNELS`."""
    for folder in folders_of(op):
        _load(folder)


def folders_of(op: type[Op]) -> tuple[str, ...]:
    """Return the names of the folders that can have an operator's kernels. Some may not exist."""
    words = op.__module__.split(".")
    return (*words, *_ALSO.get(words[-1], ()))


def load_all_kernels() -> None:
    """Import every kernel."""
    for folder in sorted(_FOLDER.iterdir()):
        _load(folder.name)


@cache
def _load(folder: str) -> None:
    """Import all modules of a folder, if it exists."""
    if (_FOLDER / folder / "__init__.py").exists():
        package = import_module(f"{OWN}{folder}")
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
