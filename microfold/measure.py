"""Code size and stack bound of generated C, measured with the target's own compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from microfold.codegen.emit import emit, stand_ins
from microfold.errors import ToolError
from microfold.program import Program


@dataclass(frozen=True)
class Measurement:
    """What the compiler makes of the generated C at its own level of optimisation.

    Attributes:
        code: bytes of flash besides the weights: instructions and layer descriptions.
        stack: bytes that the deepest chain of the model's own functions takes, by the compiler's account;
            None if the compiler cannot tell. Calls into the C library are not in it.
    """

    code: int
    stack: int | None


def measure(program: Program) -> Measurement | None:
    """Compile for the target and look at the result; None if its compiler is not on the PATH.

    None too if the code calls libraries whose headers the compiler does not find.

    Raises:
        ToolError: the compiler refuses the code.
    """
    compiler = shutil.which(program.target.compiler)
    if compiler is None:
        return None
    flags = [*program.target.cpu_flags, "-std=c99", program.options.compiler_flag]
    flags += ["-ffunction-sections", "-fdata-sections"]
    with tempfile.TemporaryDirectory(prefix="microfold-") as folder:
        flags += program.options.external_compile_flags
        files = emit(program)
        for name, text in (files | stand_ins(program)).items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        sources = sorted(name for name in files if name.endswith(".c"))
        # GCC writes a call graph with stack sizes; other compilers do not know the option.
        for graph in (["-fcallgraph-info=su"], []):
            command = [compiler, *flags, *graph, "-c", *sources]
            result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if result.returncode == 0:
                break
        else:
            if program.libraries and not program.options.external_flags:
                return None
            raise ToolError(f"{program.target.compiler} refused the generated code:\n{result.stderr[:4000]}")
        sizes = [_flash(compiler, path) for path in sorted(Path(folder).glob("*.o"))]
        graphs = "\n".join(path.read_text() for path in sorted(Path(folder).glob("*.ci")))
    return Measurement(sum(sizes) - program.weight_bytes, _deepest(graphs, f"{program.name}_run"))


def _flash(compiler: str, path: Path) -> int:
    """Bytes of text and initialised data of an object file."""
    folder, _, name = compiler.rpartition("/")
    sibling = f"{folder}/{re.sub(r'(gcc|cc|clang)(-[0-9.]+)?$', 'size', name)}"
    tool = sibling if shutil.which(sibling) else "size"
    result = subprocess.run([tool, str(path)], capture_output=True, text=True, check=False)
    if result.returncode:
        raise ToolError(f"measuring {path.name} needs {tool}: {result.stderr.strip()}")
    text, data = result.stdout.splitlines()[1].split()[:2]
    return int(text) + int(data)


def _deepest(graph: str, root: str) -> int | None:
    """Longest chain of stack frames from `root` in GCC's call graph (VCG text)."""
    frames: dict[str, int] = {}
    for title, label in re.findall(r'node: \{ title: "([^"]+)" label: "([^"]*)"', graph):
        size = re.search(r"(\d+) bytes", label)
        frames[title] = int(size.group(1)) if size else 0
    calls: dict[str, set[str]] = {}
    for source, target in re.findall(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', graph):
        calls.setdefault(source, set()).add(target)
    if root not in frames:
        return None
    depth: dict[str, int] = {}

    def visit(name: str) -> int:
        # Generated code has no recursion, so that the graph has no cycles.
        if name not in depth:
            depth[name] = 0
            below = max((visit(callee) for callee in calls.get(name, ())), default=0)
            depth[name] = frames.get(name, 0) + below
        return depth[name]

    return visit(root)
