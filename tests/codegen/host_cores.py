"""The C of a core under this machine's sanitizers: assembly by its C forms, intrinsics by models of them.

The program is one of 32 bits: kernels keep addresses in words of their scratch.

As a plugin, it takes the simulator's place in tests of kernels, whose graphs of one node reach every
specification: ``python -m pytest -p tests.codegen.host_cores tests/kernels``.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jinja2
import numpy as np
import pytest

from microfold.codegen.emit import emit
from microfold.codegen.literals import C_TYPES
from microfold.ir.node import Value
from microfold.ir.types import Array
from microfold.program import Buffer, Program
from microfold.verification import verify

# Headers with models of intrinsics: what they do, in plain C.
MODELS = Path(__file__).with_name("host_models")
# Arithmetic of SSE rounds floats as the cores do. Leaks are the main program's business.
# Types of 64 bits are aligned as on the cores.
FLAGS = ("-std=c99", "-g", "-O0", "-m32", "-malign-double", "-msse2", "-mfpmath=sse", "-DMF_NO_ASM")
SANITIZERS = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
ENVIRONMENT = {"UBSAN_OPTIONS": "print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=0"}
TIMEOUT = 300  # seconds
# Macros by which compilers tell what a core has, by the target's feature.
_MACROS = {
    "thumb1": ("__ARM_ARCH_ISA_THUMB=1",),
    "thumb2": ("__ARM_ARCH_ISA_THUMB=2", "__ARM_FEATURE_UNALIGNED=1"),
    "dsp": ("__ARM_FEATURE_DSP=1",),
    "mve": ("__ARM_FEATURE_MVE=3", "__ARM_FP=0xe"),
}


def run(program: Program, calls: Sequence[Sequence[Array]], compiler: str = "gcc") -> list[list[Array]]:
    """Build and run the program for this machine; return the outputs of each call.

    Raises:
        AssertionError: the C does not compile, or a sanitizer has something to report.
    """
    with tempfile.TemporaryDirectory(prefix="microfold-") as name:
        folder = Path(name)
        files = emit(program)
        files["main.c"] = _main(program, len(calls))
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        (folder / "inputs").write_bytes(b"".join(array.tobytes() for inputs in calls for array in inputs))
        macros = [f"-D{macro}" for key, own in _MACROS.items() if program.target.has(key) for macro in own]
        sources = sorted(file for file in files if file.endswith(".c"))
        command = [compiler, *FLAGS, *SANITIZERS, *macros, f"-I{MODELS}", *sources, "-lm", "-o", "check"]
        built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr[:4000]
        done = subprocess.run(
            ["./check"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | ENVIRONMENT,
            timeout=TIMEOUT,
        )
        assert done.returncode == 0 and not done.stderr, f"{done.returncode}: {done.stderr[:4000]}"
        return _read(program, (folder / "outputs").read_bytes(), len(calls))


def _main(program: Program, calls: int) -> str:
    """The main program: reads the calls' inputs from a file, writes their outputs to another one."""
    tensors = [_tensor(buffer, f"input_{index}", True) for index, buffer in enumerate(program.inputs)]
    tensors += [_tensor(buffer, f"output_{index}", False) for index, buffer in enumerate(program.outputs)]
    text = Path(__file__).with_name("host_main.c.j2").read_text(encoding="utf-8")
    template = jinja2.Template(text, trim_blocks=True)
    return template.render(name=program.name, tensors=tensors, calls=calls)


def _tensor(buffer: Buffer, name: str, read: bool) -> dict[str, object]:
    return {
        "name": name,
        "read": read,
        "given": buffer.region in ("input", "output"),
        "element": C_TYPES[buffer.type.dtype],
        "bytes": buffer.type.nbytes,
    }


def _read(program: Program, written: bytes, calls: int) -> list[list[Array]]:
    """The arrays that the main program has written."""
    found: list[list[Array]] = []
    offset = 0
    for _ in range(calls):
        arrays: list[Array] = []
        for buffer in program.outputs:
            kind = buffer.type
            array = np.frombuffer(written, kind.dtype.numpy, kind.size, offset)
            arrays.append(array.reshape(kind.shape))
            offset += kind.nbytes
        found.append(arrays)
    assert offset == len(written)
    return found


def assert_exact(program: Program, runs: int, compiler: str = "gcc") -> None:
    """No report of a sanitizer; outputs equal the reference where no layer computes floats."""
    calls = verify.input_sets([buffer.type for buffer in program.inputs], runs)
    outputs = run(program, calls, compiler)
    layers = [each for layer in program.layers for each in layer.all_layers]
    values = [value for layer in layers for value in (*layer.node.operands, *layer.node.outputs)]
    if any(value.type.dtype.is_float for value in values):
        return
    interpreter = verify.Interpreter(program.source)
    for call, (inputs, found) in enumerate(zip(calls, outputs, strict=True)):
        for index, (actual, wanted) in enumerate(zip(found, interpreter.run(*inputs), strict=True)):
            assert np.array_equal(actual, wanted), f"{program.name}, call {call}, output {index}"


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin: programs that hand all results out run here instead of on the simulated core."""
    del config
    simulated = verify._run_simulated

    def run_here(program: Program, calls: Sequence[Sequence[Array]]) -> list[dict[Value, Array]]:
        if not verify._hands_all_out(program):
            return simulated(program, calls)
        return [verify._by_output(program, arrays) for arrays in run(program, calls)]

    verify._run_simulated = run_here
