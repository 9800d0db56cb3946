"""What a test needs from outside: missing, it fails in CI and is skipped elsewhere.

A skip's reason begins with `NEEDS`; the end of a run says once what is missing and which package has it.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

NEEDS = "needs "
CROSS_TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm")

_SANITIZERS = "the sanitizers of "

# Debian's and Ubuntu's packages; of those that are not named here, the package is called like the tool.
_PACKAGES = {
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "arm-none-eabi-objcopy": "binutils-arm-none-eabi",
    "c++": "g++",
    "cc": "gcc",
    "ctest": "cmake",
    "frama-c": "frama-c-base",
    "nm": "binutils",
    "objdump": "binutils",
    f"{_SANITIZERS}clang": "libclang-rt-*-dev, of clang's version",
    f"{_SANITIZERS}gcc": "gcc",
    f"{_SANITIZERS}gcc -m32": "gcc-multilib",
}
_MODULES = {
    "hatchling": "hatchling from PyPI",
    "highspy": "highspy from PyPI",
    "idf_component_manager": "idf-component-manager from PyPI",
    "idf_component_tools": "idf-component-manager from PyPI",
    "kconfiglib": "kconfiglib from PyPI",
    "platformio": "platformio from PyPI",
    "mypy": "mypy from PyPI",
    "playwright": "playwright from PyPI",
    "PIL": "pillow from PyPI",
    "ai_edge_litert": "ai-edge-litert from PyPI, for Linux on x86-64",
    "ai_edge_quantizer": "ai-edge-quantizer from PyPI, for Linux on x86-64",
    "pyright": "pyright from PyPI",
    "serial": "pyserial from PyPI",
    "tflite_micro": "tflite-micro from PyPI, for Linux on x86-64",
}


def need_tools(*tools: str) -> None:
    """Every one of these commands must be on the PATH, and Arm's compiler must have its C library."""
    _need([tool for tool in tools if not _works(tool)])


def need_modules(*modules: str) -> None:
    """Every one of these Python modules must be importable."""
    _need([m for m in modules if importlib.util.find_spec(m) is None])


def need_sanitizers(compiler: str, *flags: str) -> None:
    """The compiler must be there, and link programs with the address and undefined-behaviour sanitizers.

    Args:
        flags: what else it is called with.
    """
    need_tools(compiler)
    name = " ".join([f"{_SANITIZERS}{compiler}", *flags])
    _need([] if _links_sanitizers(compiler, *flags) else [name])


def missing(reasons: Iterable[str]) -> list[str]:
    """One line per missing thing: how many tests need it, and its package.

    Args:
        reasons: those of all skipped tests; the ones of other skips are counted together.
    """
    found: Counter[str] = Counter()
    others = 0
    for reason in reasons:
        if reason.startswith(NEEDS):
            found.update(reason.removeprefix(NEEDS).split(", "))
        else:
            others += 1
    lines = [
        f"{name}: {count} tests skipped; it is in {_source(name)}" for name, count in sorted(found.items())
    ]
    return [*lines, f"{others} tests skipped for reasons of their own: -rs lists them"] if others else lines


def _source(name: str) -> str:
    return _MODULES.get(name) or f"Debian's package {_PACKAGES.get(name, name)}"


def _works(tool: str) -> bool:
    path = shutil.which(tool)
    if path is None:
        return False
    return tool != "arm-none-eabi-gcc" or _has_newlib(path)


@functools.cache
def _has_newlib(compiler: str) -> bool:
    command = [compiler, "-print-file-name=libc_nano.a"]
    return Path(
        subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    ).is_absolute()


@functools.cache
def _links_sanitizers(compiler: str, *flags: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="microfold-") as folder:
        source = Path(folder, "main.c")
        source.write_text("#include <stdio.h>\nint main(void) { return 0; }\n", encoding="utf-8")
        command = [
            compiler,
            *flags,
            "-fsanitize=address,undefined",
            str(source),
            "-o",
            str(source.with_suffix("")),
        ]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _need(what: list[str]) -> None:
    if not what:
        return
    reason = f"{NEEDS}{', '.join(what)}"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}: {'; '.join(map(_source, what))}")
    pytest.skip(reason)
