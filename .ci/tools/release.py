"""Release build in `dist/`: source distribution, wheel, bill of materials, checksums.

The bytes depend only on the commit, and not on folder, clock, umask or uncommitted files in the checkout.

    python -m tools.release
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(source: Path, dist: Path, epoch: int | None = None) -> tuple[Path, Path]:
    """Build a source distribution and a wheel from it, with the build tools of this environment.

    Args:
        epoch: date of the files in both, in seconds since 1970; None: hatchling's fixed date.
    """
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    if epoch is not None:
        environment["SOURCE_DATE_EPOCH"] = str(epoch)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, source]
    # Run in another folder, because a folder `build` in the checkout would hide the module.
    subprocess.run(command, check=True, cwd=source.parent, env=environment, stdout=subprocess.DEVNULL)
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    return sdist, wheel


def install(wheel: Path, folder: Path) -> Path:
    """Create an environment with the wheel and its locked dependencies, and return its Python."""
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    subprocess.run([*pip, "--require-hashes", "-r", ROOT / ".ci" / "requirements" / "run.lock"], check=True)
    subprocess.run([*pip, "--no-deps", wheel], check=True)
    return python


def bill_of_materials(python: Path, path: Path) -> None:
    """Write a bill of materials, as CycloneDX JSON: installed packages and their dependencies."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
    command += ["--pyproject", str(ROOT / "pyproject.toml"), "--output-file", str(path), str(python)]
    subprocess.run(command, check=True)


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def main() -> None:
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    if _git("status", "--porcelain"):
        print("the checkout has uncommitted changes, which are not in the release")
    with tempfile.TemporaryDirectory(prefix="microfold-") as temporary:
        folder = Path(temporary)
        with tarfile.open(fileobj=io.BytesIO(_git("archive", "HEAD"))) as archive:
            archive.extractall(folder / "source", filter="data")
        sdist, wheel = build(folder / "source", dist, int(_git("log", "-1", "--format=%ct")))
        bill = dist / f"{wheel.name.split('-py3')[0]}.cdx.json"
        bill_of_materials(install(wheel, folder / "environment"), bill)
    sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in (sdist, wheel, bill)]
    (dist / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    print("".join(sums), end="")


if __name__ == "__main__":
    main()
