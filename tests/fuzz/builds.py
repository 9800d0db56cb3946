"""Generated C under the sanitizers, run on given inputs."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jinja2
import numpy as np

from microfold.codegen.emit import emit
from microfold.ir.interpret import Interpreter
from microfold.ir.types import Array
from microfold.program import Program
from tests.fuzz.engine import Fault, unlimited
from tests.oracle import difference

FLAGS = (
    "-std=c99",
    "-O1",
    "-w",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
)
SECONDS = 60
_MAIN = Path(__file__).with_name("main.c.j2")


def run_sanitized(program: Program, calls: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The outputs of each call.

    Raises:
        Fault: the code does not compile, or a sanitizer complains.
    """
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        files = emit(program)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        sizes = {
            "inputs": [b.type.size * b.type.dtype.itemsize for b in program.inputs],
            "outputs": [b.type.size * b.type.dtype.itemsize for b in program.outputs],
        }
        template = jinja2.Template(_MAIN.read_text(encoding="utf-8"), trim_blocks=True)
        (folder / "main.c").write_text(template.render(name=program.name, calls=len(calls), **sizes))
        sources = [file for file in files if file.endswith(".c")]
        built = subprocess.run(
            ["gcc", *FLAGS, *sources, "main.c", "-lm", "-o", "run"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=unlimited,
        )
        if built.returncode:
            raise Fault(f"the C does not compile\n{built.stderr[:3000]}")
        given = b"".join(np.ascontiguousarray(array).tobytes() for call in calls for array in call)
        ran = subprocess.run(
            ["./run"],
            cwd=folder,
            input=given,
            capture_output=True,
            check=False,
            preexec_fn=unlimited,
            timeout=SECONDS,
            env=os.environ | {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=0"},
        )
    if ran.returncode or ran.stderr:
        complaint = ran.stderr.decode(errors="replace")
        line = next((x for x in complaint.splitlines() if "rror" in x), f"exit status {ran.returncode}")
        raise Fault(f"sanitizer: {line.partition('error:')[2] or line}\n{complaint[:3000]}")
    results: list[list[Array]] = []
    rest = ran.stdout
    for _ in calls:
        outputs: list[Array] = []
        for buffer in program.outputs:
            size = buffer.type.size * buffer.type.dtype.itemsize
            outputs.append(np.frombuffer(rest[:size], buffer.type.dtype.numpy).reshape(buffer.type.shape))
            rest = rest[size:]
        results.append(outputs)
    return results


def check_program(program: Program, calls: Sequence[Sequence[Array]], reference: Interpreter) -> None:
    """The generated C against the reference of the imported graph.

    Raises:
        Fault: an output differs, or see `run_sanitized`.
    """
    for call, (inputs, outputs) in enumerate(zip(calls, run_sanitized(program, calls), strict=True)):
        with np.errstate(all="ignore"):
            wanted = reference.run(*inputs)
        for index, (ours, theirs) in enumerate(zip(outputs, wanted, strict=True)):
            text = difference(ours, theirs)
            if text:
                raise Fault(f"C against reference\ncall {call}, output {index}: {text}")
