"""Data goes down only: a module imports what stands above it, never what stands below."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "microfold"

# Each part with the parts that it may import, beside itself. A part is a package or a module of microfold.
SUPPORT = ["errors", "support"]
IR = [*SUPPORT, "ir"]
OPS = [*IR, "arithmetic", "ops"]
SETTINGS = [*SUPPORT, "target", "options"]
KERNELS = [*OPS, *SETTINGS, "analysis", "kernels"]
PASSES = [*OPS, "analysis", "passes", "transform", "pipeline"]
PROGRAM = [*KERNELS, "passes", "transform", "plan", "program"]
CODEGEN = [*PROGRAM, "codegen"]
EXTERNAL = [*KERNELS, *PASSES, "external"]
LOWERING = [*CODEGEN, *EXTERNAL, "lowering"]
COMPILER = [*LOWERING, "frontend", "compiler"]
RUN = [*COMPILER, "host", "simulate", "verification", "prove", "reporting"]

MAY_IMPORT: dict[str, list[str]] = {
    "errors": [],
    "support": ["errors"],
    "ir": IR,
    "arithmetic": IR,
    "ops": OPS,
    "frontend": [*OPS, "passes"],
    "passes": IR,
    "analysis": OPS,
    "transform": [*OPS, "analysis", "passes", "options"],
    "pipeline": PASSES,
    "target": SETTINGS,
    "options": SETTINGS,
    "kernels": KERNELS,
    "plan": KERNELS,
    "program": PROGRAM,
    "codegen": CODEGEN,
    "external": EXTERNAL,
    "lowering": LOWERING,
    "compiler": COMPILER,
    "host": COMPILER,
    "simulate": COMPILER,
    "verification": [*COMPILER, "host", "simulate"],
    "prove": CODEGEN,
    "reporting": [*COMPILER, "host", "simulate", "verification", "prove"],
    "export": RUN,
    "workers": [*SUPPORT, "workers"],
    "tune": [*RUN, "workers", "tune"],
    "quantization": [*RUN, "quantization"],
    "api": [*RUN, "quantization"],
}
# At the bottom: anything but the command line.
BOTTOM = ["api", "host", "simulate", "verification", "reporting", "export", "workers", "tune", "quantization"]
MAY_IMPORT |= {
    "cli": [*RUN, "export", "workers", "tune", "quantization", "cli"],
    "__main__": ["cli"],
    "cmake": ["cli"],
    "__init__": ["api"],
}


def part_of(module: str) -> str:
    """``microfold.ir.graph`` belongs to ``ir``."""
    return module.split(".")[1] if "." in module else "__init__"


@cache
def imports(path: Path) -> list[str]:
    """The modules of microfold that a file imports, wherever in it."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            # `from microfold import numerics` names a part, `from microfold.ir import op` a module of one.
            found += [
                f"{node.module}.{alias.name}" if node.module == "microfold" else str(node.module)
                for alias in node.names
            ]
    return [name for name in found if name.split(".")[0] == "microfold"]


def test_imports_go_up() -> None:
    wrong: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        part = relative.parts[0] if len(relative.parts) > 1 else relative.stem
        if part not in MAY_IMPORT:
            wrong.append(f"{relative}: say in MAY_IMPORT what {part} may import")
            continue
        allowed = {part, *MAY_IMPORT[part]}
        found = sorted({name for name in imports(path) if part_of(name) not in allowed | {"__version__"}})
        if found:
            wrong.append(
                f"{relative} must not import {', '.join(found)}: {part} may import {sorted(allowed)}"
            )
    assert not wrong, "\n".join(wrong)


def test_the_core_knows_nothing_of_the_bottom() -> None:
    # Said once more, through all that the allowed parts import in turn.
    reach: dict[str, set[str]] = {part: set(MAY_IMPORT[part]) for part in MAY_IMPORT}
    for core in ("ir", "ops", "frontend", "passes", "transform", "pipeline", "kernels", "plan", "codegen"):
        reached = {core}
        while more := set().union(*(reach.get(part, set()) for part in reached)) - reached:
            reached |= more
        assert reached.isdisjoint({*BOTTOM, "cli", "compiler", "__main__"}), core


# What a kernel must not know: the rest of the model, and what the user asks for. Selection does.
HIDDEN_FROM_KERNELS = {"microfold.ir.graph", "microfold.options"}


def test_kernels_see_a_layer_only() -> None:
    wrong: list[str] = []
    for path in sorted((PACKAGE / "kernels").rglob("*.py")):
        if path.parent.name == "selection":
            continue
        wrong += [
            f"{path.relative_to(PACKAGE)} imports {name}"
            for name in imports(path)
            if name in HIDDEN_FROM_KERNELS or name.startswith("microfold.kernels.selection")
        ]
    assert not wrong, "\n".join(wrong)
