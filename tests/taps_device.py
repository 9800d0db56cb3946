"""A device for tests of taps: a program that runs a model and writes its records to a file."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from microfold.codegen.emit import emit_build
from microfold.codegen.literals import C_TYPES
from microfold.codegen.tensor_trace import CHECKSUM_ONLY, FORMAT, HEAD, MAGIC
from microfold.ir.types import Array
from microfold.program import Program
from microfold.verification.tensor_trace.records import TraceRecord
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run, write
from tests.needs import need_tools

# Under QEMU, newlib takes it to the host's files, too. Behind some record a byte changes, as by an interrupt.
MAIN = """
#include <stdio.h>
#include "{name}.h"

#ifndef FLIP_AFTER
#define FLIP_AFTER 0 /* records */
#define FLIP_BYTE 0  /* of the context */
#endif

void run_all(FILE *inputs);

static {name}_context context;
static FILE *records;
static unsigned long writes;
{buffers}

void {name}_tap_write(const void *bytes, uint32_t size)
{{
    fwrite(bytes, 1, size, records);
    writes++;
    if (writes == 3ul * FLIP_AFTER) {{
        ((uint8_t *)&context)[FLIP_BYTE] ^= 0x10u;
    }}
}}

void run_all(FILE *inputs)
{{
    while (1) {{
{fill}
        {name}_run(&context{arguments});
    }}
}}

int main(void)
{{
    FILE *inputs = fopen("inputs.bin", "rb");

    records = fopen("records.bin", "wb");
{init}
    run_all(inputs);
    fclose(inputs);
    fclose(records);
    return 0;
}}
"""
BLOB = """
    static uint8_t weights[{macro}_WEIGHTS_SIZE] __attribute__((aligned({macro}_WEIGHTS_ALIGNMENT)));
    FILE *blob = fopen("{name}_weights.bin", "rb");
    if (fread(weights, 1, sizeof weights, blob) != sizeof weights) {{ return 1; }}
    fclose(blob);
    if ({name}_init(&context, weights, sizeof weights) != {macro}_WEIGHTS_OK) {{ return 2; }}
"""


def tapped(program: Program) -> Program:
    """The program as it is built with taps."""
    return replace(program, options=replace(program.options, taps=True))


def main(program: Program) -> str:
    """The device's main file."""
    name, macro, caller = program.name, program.name.upper(), program.options.io == "caller"
    ports = [(f"input_{i}", b) for i, b in enumerate(program.inputs)]
    outputs = [(f"output_{i}", b) for i, b in enumerate(program.outputs)]
    buffers = [f"static {C_TYPES[b.type.dtype]} {port}[{b.type.size}];" for port, b in (*ports, *outputs)]
    fill = [
        f"if (fread({port if caller else f'{name}_{port}(&context)'}, 1, {b.type.nbytes}u, inputs)"
        f" != {b.type.nbytes}u) {{ return; }}"
        for port, b in ports
    ]
    init = BLOB if program.options.weights == "blob" else "{name}_init(&context);"
    return MAIN.format(
        name=name,
        buffers="\n".join(buffers) if caller else "",
        fill="\n".join(fill),
        arguments="".join(f", {port}" for port, _ in (*ports, *outputs)) if caller else "",
        init=init.format(name=name, macro=macro),
    )


def files(program: Program, patches: Mapping[str, tuple[str, str]] | None = None) -> dict[str, str]:
    """The C of the device.

    Args:
        patches: text that is replaced in generated files, which must be there once.
    """
    found = {**emit_build(program).files, "main.c": main(program)}
    for name, (old, new) in (patches or {}).items():
        assert found[name].count(old) == 1, old
        found[name] = found[name].replace(old, new)
    return found


def write_device(
    folder: Path,
    program: Program,
    calls: Sequence[Sequence[Array]],
    patches: Mapping[str, tuple[str, str]] | None = None,
) -> list[Path]:
    """The files of the device and its inputs; the C among them."""
    sources = write(folder, files(program, patches))
    (folder / "inputs.bin").write_bytes(b"".join(array.tobytes() for call in calls for array in call))
    blob = emit_build(program).blob
    if blob is not None:
        (folder / f"{program.name}_weights.bin").write_bytes(blob)
    return sources


def records(
    folder: Path,
    program: Program,
    calls: Sequence[Sequence[Array]],
    *flags: str,
    patches: Mapping[str, tuple[str, str]] | None = None,
) -> bytes:
    """What a device writes that is this machine.

    Args:
        program: see `tapped`.
        flags: of the compiler, e.g. a flip.
    """
    need_tools("cc")
    sources = write_device(folder, program, calls, patches)
    run(["cc", *STRICT, "-O0", *flags, f"-I{folder}", *sources, "-lm", "-o", folder / "device"])
    run([folder / "device"], folder)
    return (folder / "records.bin").read_bytes()


def encode(record: TraceRecord, version: int = FORMAT) -> bytes:
    """As the generated C writes a record."""
    payload = record.payload
    role = record.role | (CHECKSUM_ONLY if payload is None else 0)
    if payload is None:
        payload = record.crc.to_bytes(4, "little")
    head = HEAD.pack(
        *(MAGIC, version, role, record.index, record.layer, record.run, record.ticks, record.build),
        *(record.size, 0),
    )[:-4]
    head += zlib.crc32(head).to_bytes(4, "little")
    return head + payload + zlib.crc32(payload).to_bytes(4, "little")
