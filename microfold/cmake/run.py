"""Runs the microfold that this file is part of, ``run.py build ...``; ``--check`` tries whether it can."""

import sys
from importlib import import_module
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036  # whichever Python CMake has found
    sys.exit("Python 3.10 or later is needed; it is " + sys.version.split()[0])
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

if sys.argv[1:] == ["--check"]:
    for module in ("cli.app", "compiler", "codegen.emit"):
        import_module("microfold." + module)
else:
    from microfold.cli import main

    main()
