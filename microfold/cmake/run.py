"""Script that runs the microfold it belongs to, ``run.py build ...``; ``--check`` checks that it can."""

import sys
from importlib import import_module
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036  # CMake may have found any Python
    sys.exit("Python 3.10 or later is required; this is " + sys.version.split()[0])
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

if sys.argv[1:] == ["--check"]:
    for module in ("cli.app", "compiler", "codegen.emit"):
        import_module("microfold." + module)
else:
    from microfold.cli import main

    main()
