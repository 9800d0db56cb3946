"""The command line. Exit codes: 0 good, 1 a check failed, 2 bad input or usage."""

from microfold.cli.app import main

__all__ = ["main"]
