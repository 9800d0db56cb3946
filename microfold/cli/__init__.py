"""The command line.

Exit codes: 0 good, 1 a check failed, 2 bad input or usage, 3 a defect of microfold; 128 + N after signal N,
as shells count: 130 after Ctrl-C.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script and of `python -m microfold`.

    Nothing is imported before the first statement that can be interrupted: most of the start is imports.
    """
    status = 130
    try:
        from microfold.cli.process import run_process

        status = run_process(sys.argv[1:])
    except KeyboardInterrupt:
        pass
    sys.exit(status)
