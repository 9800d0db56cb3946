"""microfold: an ahead-of-time compiler from `.tflite` models to plain C99 for microcontrollers."""

# Importing `typing` is slow, and until `main` runs, an interrupt would print a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from microfold.host.session import compile

__version__ = "0.1.0"
__all__ = ["__version__", "compile"]


def __getattr__(name: str) -> object:
    # Lazy, so that `microfold --help` does not import numpy.
    if name == "compile":
        from microfold.host.session import compile

        return compile
    raise AttributeError(f"module 'microfold' has no attribute {name!r}")
