"""Firmware that measures the layers of a model on a board."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from microfold.codegen.environment import environment
from microfold.program import Program
from microfold.simulate.program import model_sources
from microfold.simulate.toolchain import compile_object, effective_flags, find_tool, link
from microfold.tune.board import Board

_MODEL_FLAGS = ("-std=c99", "-ffunction-sections", "-fdata-sections")
_FILES = ("tune.h", "startup.c", "counter.c", "main.c", "link.ld")


def build_image(program: Program, board: Board, folder: Path) -> Path:
    """Build the image of a program for a board, in a folder.

    Raises:
        ToolError: the compiler is missing or fails, or the program does not fit the board.
    """
    sources = model_sources(program)
    for part in ("model", "firmware"):
        (folder / part).mkdir()
    for name, text in (dict(sources.stand_ins) | dict(sources.files)).items():
        (folder / "model" / name).write_text(text, encoding="utf-8")
    counter = board.counter
    if counter == "auto" and program.target.has("thumb1"):
        counter = "systick"  # Armv6-M has no DWT cycle counter
    values: dict[str, Any] = {
        "sources": sources,
        "prefix": sources.name.upper(),
        "board": board,
        "counter": counter,
        "holders": [sources.part(tensor.offset)[0].removeprefix("simulate_") for tensor in sources.inputs],
    }
    jinja = environment()
    for name in _FILES:
        text = jinja.get_template(f"tune/{name}.j2").render(values)
        (folder / "firmware" / name).write_text(text + "\n", encoding="utf-8")
    target = program.target
    find_tool(target.compiler)
    flags = effective_flags([*target.cpu_flags, *sources.compile_flags])
    model = [*flags, *_MODEL_FLAGS, program.options.compiler_flag]
    hook = f'-D{sources.name.upper()}_HOOKS="firmware/tune.h"'
    objects = [
        compile_object(target.compiler, [*model, hook], folder, f"model/{name}")
        for name in sources.files
        if name.endswith(".c")
    ]
    objects += [
        compile_object(target.compiler, model, folder, f"model/{name}")
        for name in sources.stand_ins
        if name.endswith(".c")
    ]
    # The startup code must not call library functions before the memory is initialised.
    own = [
        *flags,
        *_MODEL_FLAGS,
        "-Os",
        "-ffreestanding",
        "-fno-tree-loop-distribute-patterns",
        "-fno-tree-vectorize",
    ]
    objects += [
        compile_object(target.compiler, own, folder, f"firmware/{name}")
        for name in _FILES
        if name.endswith(".c")
    ]
    objects += _of_the_board(board, target.compiler, [*flags, *_MODEL_FLAGS, "-O2", "-Ifirmware"], folder)
    image = f"{sources.name}.elf"
    link(target.compiler, flags, folder, [*objects, *sources.link_flags], "firmware/link.ld", image)
    return folder / image


def _of_the_board(board: Board, compiler: str, flags: list[str], folder: Path) -> list[str]:
    found: list[str] = []
    for number, source in enumerate(board.sources):
        path = Path(board.folder, source)
        name = f"firmware/board_{number}.c"
        (folder / name).write_bytes(path.read_bytes())
        found.append(compile_object(compiler, [*flags, f"-I{path.parent}", *board.flags], folder, name))
    return found
