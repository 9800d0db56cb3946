"""Generated C, compiled for this machine into a shared library and loaded through cffi."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cffi

from microfold.codegen.emit import emit_build, stand_ins
from microfold.codegen.environment import environment
from microfold.codegen.literals import C_TYPES
from microfold.errors import ToolError
from microfold.program import Program
from microfold.support.scratch import scratch_folder
from microfold.support.tools import COMPILE_SECONDS, run_tool

# Default optimisation flags of the compiler.
FLAGS = ("-O2",)
# Fill byte of uninitialised memory.
RUBBISH = 0xA5


def host_compiler() -> list[str]:
    """Return the command of the host's C compiler: $CC, else cc.

    Raises:
        ToolError: the compiler is not on PATH.
    """
    text = os.environ.get("CC", "")
    try:
        command = shlex.split(text) or ["cc"]
    except ValueError as error:
        raise ToolError(f"CC must be a command with its arguments; it is {text!r}: {error}") from None
    if shutil.which(command[0]) is None:  # a folder, a file that is not executable, or nothing
        raise ToolError(
            f"running a model on this machine requires a C compiler; {command[0]!r} is not on PATH: "
            "on Debian or Ubuntu, `apt install gcc`"
        )
    return command


def run_compiler(command: Sequence[str], folder: Path, program: Program) -> None:
    """Run a compiler command. If it fails, the error has its messages and the required libraries."""
    result = run_tool(command, folder, COMPILE_SECONDS, "compiling for this machine")
    if result.returncode:
        needed = " and ".join(library.name for library in program.libraries)
        hint = f"\nthe code calls {needed}: external_flags (--external-flags) must find it" if needed else ""
        raise ToolError(f"{command[0]} failed ({result.returncode}):\n{result.stderr.strip()[:4000]}{hint}")


class HostLibrary:
    """Generated code of one program, loaded into this process.

    Args:
        program: program for a target whose code the host can run.
        flags: compiler flags; None: `FLAGS`.

    Raises:
        ToolError: no compiler was found, or it failed.
    """

    def __init__(self, program: Program, flags: Sequence[str] | None = None):
        self.program = program
        flags = FLAGS if flags is None else flags
        name = program.name
        self.ffi = cffi.FFI()
        self.ffi.cdef(self._declarations())
        with scratch_folder() as directory:
            external = program.options.external_flags
            build = emit_build(program)
            self._blob = build.blob
            for file, text in (dict(build.files) | stand_ins(program)).items():
                (directory / file).write_text(text, encoding="utf-8")
            for file in ("observer.h", "observer.c"):
                text = (
                    environment()
                    .get_template(f"host/{file}.j2")
                    .render(name=name, macro=name.upper(), has_state=bool(program.state_size))
                )
                (directory / f"{name}_{file}").write_text(text, encoding="utf-8")
            sources = [str(path) for path in sorted(directory.glob("*.c"))]
            library = directory / f"lib{name}.so"
            hooks = f'-D{name.upper()}_HOOKS="{name}_observer.h"'
            command = [*host_compiler(), "-std=c99", *flags, hooks, "-fPIC", "-shared", f"-I{directory}"]
            run_compiler([*command, *sources, *external, "-lm", "-o", str(library)], directory, program)
            # The loaded library stays mapped after its file is gone.
            try:
                self.functions: Any = self.ffi.dlopen(str(library))
            except OSError as error:
                raise ToolError(f"{command[0]} must make code for this machine; {error}") from None

    def new_context(self) -> Any:
        """Return an uninitialised context, which is freed with the last reference."""
        return self.new_object(self.context_size)

    def new_object(self, size: int) -> Any:
        """Return uninitialised memory with the program's alignment.

        It is freed with the last reference to the pointer.
        """
        alignment = self.program.options.align
        whole = self.ffi.new("uint8_t[]", size + alignment)
        self.ffi.buffer(whole)[:] = bytes([RUBBISH]) * (size + alignment)
        start = int(self.ffi.cast("uintptr_t", whole))
        # The aligned pointer keeps the whole object alive.
        return self.ffi.gc(whole + -start % alignment, lambda _pointer, _whole=whole: None)

    def new_arenas(self) -> list[Any]:
        """Return the objects of the arena; an empty list if the arena is part of the context."""
        sizes = self.program.arena_parts if self.program.options.split else ()
        return [self.new_object(size) for size in sizes]

    def init(self, context: Any) -> Any:
        """Prepare a context.

        Returns:
            A handle that must be kept as long as the context is used.

        Raises:
            ToolError: the code rejects its own weights.
        """
        if self._blob is None:
            self.call("init", context)
            return None
        # cffi aligns memory only as the C type requires.
        weights = self.ffi.new("max_align[]", -(-len(self._blob) // self.ffi.sizeof("max_align")))
        self.ffi.memmove(weights, self._blob, len(self._blob))
        status = int(self.call("init", context, weights, len(self._blob)))
        if status:
            raise ToolError(f"the code must accept its own weights; init returned {status}")
        return weights

    @property
    def context_size(self) -> int:
        return int(self.call("context_size"))

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function by its name without the model's prefix."""
        return getattr(self.functions, f"{self.program.name}_{function}")(*arguments)

    def run(self, *arguments: Any) -> None:
        """Run one inference.

        Raises:
            ToolError: a function of a library that the code calls has failed.
        """
        self.call("run", *arguments)
        status = int(self.call("external_failure"))
        if status:
            libraries = " or ".join(library.name for library in self.program.libraries)
            raise ToolError(f"a function of {libraries} failed with status {status}; is its version right?")

    def observe(self, observer: Callable[[int], None] | None) -> Any:
        """Call `observer` after every layer, with its index. Inner layers have the indices after all others.

        Returns:
            A handle that must be kept as long as the observer can be called.
        """
        handle = self.ffi.callback("void(int)", observer) if observer is not None else self.ffi.NULL
        self.call("set_observer", handle)
        return handle

    def _declarations(self) -> str:
        program = self.program
        name = program.name
        memory = ", ".join(["void *"] * (1 + program.options.split * len(program.arena_parts)))
        ports = [("input", i, b, "const ") for i, b in enumerate(program.inputs)]
        ports += [("output", i, b, "") for i, b in enumerate(program.outputs)]
        lines = [
            f"void {name}_init(void *);"
            if self.program.options.weights == "arrays"
            else f"int32_t {name}_init(void *, const void *, uint32_t);",
            "typedef struct { long double wide; } max_align;",
            f"void {name}_reset(void *);",
            f"unsigned long {name}_context_size(void);",
            f"unsigned long {name}_state_offset(void);",
            f"void {name}_set_observer(void (*)(int));",
            f"int {name}_external_failure(void);",
        ]
        if program.pushed_input is not None:
            row = C_TYPES[program.inputs[program.pushed_input].type.dtype]
            lines.append(f"void {name}_begin(void *);")
            lines.append(f"int32_t {name}_push_rows({memory}, const {row} *);")
            lines.append(f"void {name}_run({memory}, const {row} *);")
            lines += [
                f"{C_TYPES[b.type.dtype]} *{name}_{k}_{i}(void *);"
                for k, i, b, _ in ports
                if (k, i) != ("input", program.pushed_input)
            ]
        elif program.options.io == "caller":
            more = "".join(f", {const}{C_TYPES[b.type.dtype]} *" for _, _, b, const in ports)
            lines.append(f"void {name}_run({memory}{more});")
        else:
            lines.append(f"void {name}_run({memory});")
            lines += [f"{C_TYPES[b.type.dtype]} *{name}_{kind}_{i}(void *);" for kind, i, b, _ in ports]
        return "\n".join(lines)
