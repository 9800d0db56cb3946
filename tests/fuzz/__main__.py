"""Fuzzes for a while, from the root of the repository: ``python -m tests.fuzz KIND --seconds N --seed S``.

Failures are made small and saved in a folder of their own, `fuzz-KIND` by default.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz.engine import Session
from tests.fuzz.kinds import KINDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--count", type=int, default=1 << 40, help="cases at most")
    parser.add_argument("--folder", type=Path, help="for failures")
    a = parser.parse_args()
    folder = a.folder or Path(f"fuzz-{a.kind}")
    session = Session(KINDS[a.kind], a.seed, a.jobs, a.seconds, folder, a.count)
    faults = session.run()
    print(session.summary())
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
