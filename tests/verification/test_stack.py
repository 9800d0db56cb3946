"""The bound of the stack: of hand-written listings, and against stacks that simulated cores have painted."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file
from microfold.errors import ToolError
from microfold.options import Options
from microfold.program import Program
from microfold.simulate.program import simulator
from microfold.simulate.toolchain import ARM_COMPILER, find_tool
from microfold.support.tools import run_tool
from microfold.verification.measure import measure
from microfold.verification.stack import UnboundedStackError, stack_bound
from microfold.verification.verify import input_sets
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled_rows

MODELS = Path(__file__).resolve().parents[1] / "models" / "made"
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
BOARDS = [name for name in target.available() if target.load(name).board]
BUILDS: dict[str, dict[str, str]] = {
    "zoo_f32": {},
    "cnn_int8": {"optimize": "speed"},
    "zoo_int8": {"optimize": "size", "io": "caller"},
}


def listing(**functions: str) -> str:
    """What objdump prints of functions that lie 0x100 apart; each line is an instruction of four bytes."""
    text = ""
    for index, (name, body) in enumerate(functions.items()):
        start = 0x8000 + 0x100 * index
        text += f"\n{start:08x} <{name}>:\n"
        for number, line in enumerate(body.strip().splitlines()):
            mnemonic, _, operands = line.strip().partition(" ")
            text += f"    {start + 4 * number:x}:\t{'00' * 4} \t{mnemonic}\t{operands}\n"
    return text


@pytest.mark.parametrize(
    ("body", "bound"),
    [
        ("bx lr", 0),
        ("push {r4, lr}\nsub sp, #16\nadd sp, #16\npop {r4, pc}", 24),
        ("stmdb sp!, {r4-r11, lr}\nvpush {d8-d15}\nsub.w sp, sp, #4096\nbx lr", 36 + 64 + 4096),
        ("vpush {s16-s19}\nbx lr", 16),
        ("str lr, [sp, #-4]!\nstrd r4, r5, [sp, #-16]!\nldr pc, [sp], #4", 20),
        ("movw ip, #5000\nsub sp, sp, ip\nbx lr", 5000),
        # Two frames that are not there at the same time.
        ("cbz r0, 800c <f+0xc>\npush {r4}\npop {r4}\npush {r5, r6}\npop {r5, r6}\nbx lr", 8),
        # A conditional return leaves the frame to those who stay.
        ("push {r4, lr}\npopeq {r4, pc}\npush {r5}\nbx lr", 12),
        ("push {r4, lr}\nb.n 800c <f+0xc>\npush {r5}\npop {r4, pc}", 8),
        # Cases of a switch are where nothing else goes.
        ("push {lr}\ntbb [pc, r0]\npush {r5}\npop {r5}\npop {pc}", 8),
        ("push {lr}\ntbb [pc, r0]\npop {pc}\npush {r5}\npop {r5}\npop {pc}\nnop", 8),
        # What is written to the stack, or read off it, is no move of it.
        ("str r0, [sp, #4]\nadd r0, sp, #8\ncmp sp, r0\nbx lr", 0),
    ],
)
def test_frames(body: str, bound: int) -> None:
    assert stack_bound(listing(f=body), ["f"]) == bound


def test_calls_add_up_where_they_are() -> None:
    code = listing(
        run="push {r4, lr}\nbl 8100 <small>\nsub sp, #40\nadd sp, #40\nbl 8200 <large>\npop {r4, pc}",
        small="push {r4-r7}\npop {r4-r7}\nbx lr",
        large="sub sp, #20\nadd sp, #20\nb.w 8300 <last>",
        last="sub sp, #24\nadd sp, #24\nbx lr",
        other="sub sp, #500\nbx lr",
    )
    assert stack_bound(code, ["run"]) == 48
    assert stack_bound(code, ["large", "missing"]) == 24  # a tail call has the frame behind it
    assert stack_bound(code, ["run", "other"]) == 500


@pytest.mark.parametrize(
    ("functions", "reason"),
    [
        ({"f": "push {lr}\nbl 8000 <f>\npop {pc}"}, "f is recursive"),
        ({"f": "bl 8100 <g>\nbx lr", "g": "bl 8000 <f>\nbx lr"}, "is recursive"),
        ({"f": "blx r3\nbx lr"}, "calls a function by its address"),
        ({"f": "bx r3"}, "goes to a function by its address"),
        ({"f": "ldr.w pc, [r3]"}, "jumps by an address"),
        ({"f": "bl 0 <f-0x8000>\nbx lr"}, "which has no code"),
        ({"f": "sub sp, sp, r3\nbx lr"}, "by the content of r3"),
        ({"f": "mov sp, r7\nbx lr"}, "moves the stack pointer"),
        ({"f": "push {r4}\nb.n 8000 <f>"}, "in a loop"),
    ],
)
def test_what_has_no_bound(functions: dict[str, str], reason: str) -> None:
    with pytest.raises(UnboundedStackError, match=reason):
        stack_bound(listing(**functions), ["f"])


def test_what_objdump_does_not_know() -> None:
    """What stands behind may be as deep as anything."""
    code = (
        "00008000 <f>:\n    8000:\tb510      \tpush\t{r4, lr}\n"
        "    8002:\tea53 b3a3 \t\t\t@ <UNDEFINED> instruction: 0xea53b3a3\n"
        "    8006:\tbd10      \tpop\t{r4, pc}\n"
    )
    with pytest.raises(UnboundedStackError, match="f has an instruction that objdump does not know"):
        stack_bound(code, ["f"])


def test_jumps_of_armv6m() -> None:
    code = listing(
        f="push {lr}\nbl 8100 <__gnu_thumb1_case_uqi>\npush {r4}\npop {r4}\npop {pc}",
        __gnu_thumb1_case_uqi="push {r0, r1}\npop {r0, r1}\nbx lr",
        far="push {lr}\nbl 820c <far+0xc>\nbx lr\npush {r4-r7}\npop {r4-r7, pc}",
    )
    assert stack_bound(code, ["f"]) == 12
    assert stack_bound(code, ["far"]) == 20


CODE = """
#include <alloca.h>
#include <math.h>
#include <string.h>
void use(volatile char *p) { *p = 1; }
void large(void) { volatile char array[70000]; use(array); }
float function(float x) { return expf(x) + powf(x, 3.1f); }
void array(int n) { use(alloca((unsigned)n)); }
"""


@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m4"])
def test_compiled_code(core: str, tmp_path: Path) -> None:
    """A frame of more than an immediate can say; libm; an array of variable length, which has no bound."""
    need_tools(ARM_COMPILER)
    (tmp_path / "code.c").write_text(CODE)
    names = ("large", "function", "array")
    command = [find_tool(ARM_COMPILER), *target.load(core).cpu_flags, "-O2", "-fno-inline", "-nostartfiles"]
    command += [f"-Wl,-u,{name}" for name in names]
    done = run_tool([*command, "-Wl,-e,large", "code.c", "-lm", "-o", "code.elf"], tmp_path, 60.0, "linking")
    assert done.returncode == 0, done.stderr
    objdump = find_tool("arm-none-eabi-objdump")
    code = run_tool([objdump, "-d", "code.elf"], tmp_path, 60.0, "disassembling").stdout
    assert 70000 <= stack_bound(code, ["large"]) <= 70016
    assert 16 <= stack_bound(code, ["function"]) < 1000
    with pytest.raises(UnboundedStackError):
        stack_bound(code, ["array"])


def compiled(model: str, core: str, **options: str) -> Program:
    return compile_file(MODELS / f"{model}.tflite", target.load(core), Options(**options))


def test_flash_is_what_the_linker_says() -> None:
    """Compared with GNU size: of an image with nothing else in it."""
    need_tools(ARM_COMPILER)
    program = compiled("cnn_f32", "cortex-m4")
    found = measure(program)
    assert found is not None
    assert found.library is not None
    assert found.padding is not None
    from microfold.support.scratch import scratch_folder
    from microfold.verification.measure import _api, _compile, _link

    with scratch_folder() as folder:
        compiler = find_tool(ARM_COMPILER)
        files = emit(program)
        sources = [name for name in files if name.endswith(".c")]
        objects = _compile([program], files, sources, compiler, folder)
        assert objects is not None
        image = next(_link(program, _api(program), compiler, folder, objects))
        size = run_tool([find_tool("arm-none-eabi-size"), image.name], folder, 10.0, "size").stdout
        symbols = run_tool([find_tool("arm-none-eabi-nm"), image.name], folder, 10.0, "nm").stdout
    text, data, _ = map(int, size.splitlines()[1].split()[:3])
    assert program.weight_bytes + found.code + found.library + found.padding == text + data
    assert found.library > 500  # expf
    assert " T expf" in symbols
    assert " U " not in symbols


def test_without_a_disassembler_there_is_no_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools(ARM_COMPILER)
    wrapper = tmp_path / ARM_COMPILER
    wrapper.write_text(
        '#!/bin/sh\ncase "$1" in -print-prog-name=*) echo missing-objdump;; '
        f'*) exec {find_tool(ARM_COMPILER)} "$@";; esac\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = measure(compiled("stream_int8", "cortex-m3"))
    assert found is not None
    assert found.stack is None
    assert found.code > 0


def test_what_no_compiler_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for script, message in (
        ("exit 0", "ended successfully without"),
        ("echo no >&2; exit 1", "must match its features"),
    ):
        (tmp_path / ARM_COMPILER).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / ARM_COMPILER).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        with pytest.raises(ToolError, match=message):
            measure(compiled("stream_int8", "cortex-m3"))


@pytest.mark.slow
@pytest.mark.parametrize(("core", "model"), sampled_rows(itertools.product(BOARDS, BUILDS), 13))
def test_no_painted_stack_is_deeper(core: str, model: str) -> None:
    need_tools(*CROSS_TOOLS)
    options = BUILDS[model]
    program = compiled(model, core, **options)
    found = measure(program)
    assert found is not None
    assert found.stack is not None
    with simulator(program) as machine:
        result = machine.run(input_sets([b.type for b in program.inputs], 4), layers=False)
    assert result.memory.stack <= found.stack <= result.memory.stack + 200


@pytest.mark.slow
def test_conditional_selection_without_vectors() -> None:
    """Of images of Armv8.1-M without Helium, objdump does not find out that they have CSEL."""
    need_tools(*CROSS_TOOLS)
    program = compile_file(DIGITS, target.load("cortex-m55-nomve"))
    found = measure(program)
    with simulator(program) as machine:
        result = machine.run(input_sets([b.type for b in program.inputs], 4)[3:], layers=False)
    assert found is not None and found.stack is not None
    assert result.memory.stack <= found.stack <= result.memory.stack + 200
