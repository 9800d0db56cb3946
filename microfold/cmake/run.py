"""Runs the microfold that this file is part of, ``run.py build ...``; ``--check`` tries whether it can."""

import sys
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036  # whichever Python CMake has found
    sys.exit("Python 3.10 or later is needed; it is " + sys.version.split()[0])
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

if sys.argv[1:] == ["--check"]:
    import microfold.cli.app
    import microfold.codegen.emit
    import microfold.compiler  # noqa: F401
else:
    from microfold.cli import main

    main()
