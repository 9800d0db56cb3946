"""Command-line interface.

Exit codes: 0 success, 1 a check failed, 2 invalid input or usage, 3 internal error of microfold, 128 + N
after signal N, as in shells: 130 after Ctrl-C.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the console script and `python -m microfold`.

    Imports, which are most of the start-up time, are inside the `try`, so that Ctrl-C can interrupt them.
    """
    status = 130
    try:
        from microfold.cli.process import run_process

        status = run_process(sys.argv[1:])
    except KeyboardInterrupt:
        pass
    sys.exit(status)
