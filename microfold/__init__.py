"""microfold: an ahead-of-time compiler from `.tflite` models to plain C99 for microcontrollers.

`compile` runs a model on this machine. `build` writes C for a target, `verify` compares all tensors of that C
with the reference, and `report` returns a page about it. `quantize` turns a float model into an int8 model.
`load_target` reads the description of a target.
"""

# Importing `typing` is slow, and until `main` runs, an interrupt would print a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from microfold.api.functions import build, compile, load_target, quantize, report, verify

__version__ = "0.1.0"
__all__ = ["__version__", "build", "compile", "load_target", "quantize", "report", "verify"]


def __getattr__(name: str) -> object:
    # Lazy, so that `microfold --help` does not import numpy.
    if name in __all__:
        from microfold.api import functions

        return getattr(functions, name)
    raise AttributeError(f"module 'microfold' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING"})
