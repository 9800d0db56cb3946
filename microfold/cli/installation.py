"""Parts of an installation: packages, compilers, simulators and extras, with what each enables."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from microfold.errors import ToolError
from microfold.prove.analyser import FRAMA_C, INSTALL
from microfold.simulate.toolchain import ARM_COMPILER, EMULATOR
from microfold.support.tools import run_tool

# Packages of `dependencies` in pyproject.toml: name of the distribution and of the module.
PACKAGES = {
    "numpy": "numpy",
    "highspy": "highspy",
    "jinja2": "jinja2",
    "platformdirs": "platformdirs",
    "tflite": "tflite",
    "cffi": "cffi",
    "msgspec": "msgspec",
    "typer": "typer",
    "rich": "rich",
}
# Extras of pyproject.toml: distribution, module and purpose.
EXTRAS = {
    "quantize": ("ai-edge-quantizer", "ai_edge_quantizer", "quantize: int8 and other models of float models"),
    "serial": ("pyserial", "serial", "microfold diff --port: tensors of a board over a serial port"),
    "scheduler": ("distributed", "distributed", "--scheduler: suites and tuning on several machines"),
}
# Commands that install a tool, by the name of the system; other systems get the last text.
_INSTALL = {
    "cc": {
        "linux": "apt install gcc, or your distribution's package of a C compiler",
        "darwin": "xcode-select --install",
        "": "install GCC or Clang, and set CC to its command",
    },
    ARM_COMPILER: {
        "linux": "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi",
        "darwin": "brew install --cask gcc-arm-embedded",
        "": "install the Arm GNU Toolchain from https://developer.arm.com, and add its bin folder to PATH",
    },
    EMULATOR: {
        "linux": "apt install qemu-system-arm",
        "darwin": "brew install qemu",
        "": "install QEMU from https://www.qemu.org, and add its folder to PATH",
    },
}
# Time limit of a tool that prints its version, in seconds. A cold start from a network drive takes some.
_SECONDS = 20.0


class InstalledPart(Struct, frozen=True):
    """Part of an installation.

    Attributes:
        name: what a user installs.
        version: version; empty if the part is missing or does not work.
        path: location; empty if it is missing.
        enables: commands that require the part.
        install: command that installs it, or what else to do.
        required: whether nothing can be compiled without it.
    """

    name: str
    version: str
    path: str
    enables: str
    install: str
    required: bool = False


def find_parts() -> list[InstalledPart]:
    """Return all parts, found or missing, in the order of their importance."""
    return [*_minimum(), _host_compiler(), *_arm_compiler(), _emulator(), _analyser(), *_extras()]


def _minimum() -> Iterator[InstalledPart]:
    supported = sys.version_info >= (3, 10)
    version = platform.python_version() if supported else ""
    advice = "use Python 3.10 or later"
    yield InstalledPart("Python", version, sys.executable, "everything", advice, required=True)
    for distribution, module in PACKAGES.items():
        version, path = _package(distribution, module)
        advice = f"pip install {distribution}"
        yield InstalledPart(distribution, version, path, "everything", advice, required=True)


def _package(distribution: str, module: str) -> tuple[str, str]:
    """Return the version and the path of a package that can be imported; empty texts for others."""
    try:
        found = importlib.import_module(module)
        return importlib.metadata.version(distribution), str(found.__file__ or "")
    except Exception:  # broken packages raise anything
        return "", ""


def _host_compiler() -> InstalledPart:
    try:
        command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError:
        command = [os.environ["CC"]]
    enables = "run, verify and Python sessions on this machine"
    return _tool("C compiler", command[0], enables, _advice("cc"))


def _arm_compiler() -> Iterator[InstalledPart]:
    enables = "sizes of code and stack, and bench, verify and tune for Cortex-M"
    compiler = _tool(ARM_COMPILER, ARM_COMPILER, enables, _advice(ARM_COMPILER))
    yield compiler
    library = _print(compiler.path, "-print-file-name=libc_nano.a") if compiler.path else ""
    path = library if Path(library).is_absolute() else ""
    enables = "headers and functions of C for Cortex-M"
    version = compiler.version if path else ""
    yield InstalledPart("newlib", version, path, enables, _advice(ARM_COMPILER))


def _emulator() -> InstalledPart:
    return _tool(EMULATOR, EMULATOR, "bench, verify and tune on simulated cores", _advice(EMULATOR))


def _analyser() -> InstalledPart:
    return _tool("Frama-C", FRAMA_C, "prove: proofs that no input leads to undefined behaviour", INSTALL)


def _extras() -> Iterator[InstalledPart]:
    for extra, (distribution, module, enables) in EXTRAS.items():
        version, path = _package(distribution, module)
        install = f"pip install 'microfold[{extra}]', or pip install {distribution}"
        yield InstalledPart(f"microfold[{extra}]", version, path, enables, install)


def _tool(name: str, command: str, enables: str, install: str) -> InstalledPart:
    path = shutil.which(command) or ""
    found = re.search(r"\d+(\.\d+)+", _print(path, "--version")) if path else None
    if path and found is None:
        install = f"{path} --version fails: {install}"
    return InstalledPart(name, found[0] if found else "", path, enables, install)


def _print(path: str, option: str) -> str:
    """Return what a tool prints for an option; empty if it fails."""
    try:
        done = run_tool([path, option], Path(), _SECONDS, path)
    except ToolError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _advice(tool: str) -> str:
    systems = _INSTALL[tool]
    return systems.get(sys.platform, systems[""])
