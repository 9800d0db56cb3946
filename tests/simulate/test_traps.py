"""Cores on which unaligned accesses fault, and cores without a floating-point unit: bits as everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_file, compile_graph
from microfold.errors import ToolError
from microfold.options import Options
from microfold.program import Program
from microfold.simulate.boards import find
from microfold.simulate.run import run
from microfold.simulate.toolchain import ARM_COMPILER, compile_object, effective_flags, link
from microfold.verification import verify
from tests.codegen.builds import sample_graphs
from tests.counts import MODELS
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import quick, sampled_rows

from .conftest import CORES, LENGTH, toy

TRAPPED = "-mno-unaligned-access"
ACCESS = '{ uintptr_t a = (uintptr_t)context->arena + %d; __asm__ volatile("%s" : : "r"(a) : "r2", "r3"); }'
MADE = Path(__file__).resolve().parents[1] / "models" / "made"
CALLS_MEMSET = toy(
    "memset(&context->arena[40], 0, (size_t)(context->arena[1] + 5));", prologue="#include <string.h>\n"
)
CALL = [(np.arange(LENGTH, dtype=np.int8),)]


def check(model: str, core: str, *flags: str, optimize: str = "balanced") -> None:
    """Compiles for a core with further flags; every tensor must be the reference's."""
    need_tools(*CROSS_TOOLS)
    loaded = target.load(core)
    loaded = replace(loaded, cpu_flags=(*loaded.cpu_flags, *flags))
    path = MODELS.get(model, MADE / f"{model}.tflite")
    check_program(compile_file(path, loaded, Options(optimize=optimize)))


def check_program(program: Program) -> None:
    result = verify.verify(program, verify.input_sets([buffer.type for buffer in program.inputs], 4)[2:])
    assert result.exact, result.first_difference


@pytest.mark.parametrize("core", quick(["cortex-m4", "cortex-m3", "cortex-m7", "cortex-m33", "cortex-m55"]))
def test_trap_is_set_where_the_compiler_is_told(simulation_tools: None, core: str) -> None:  # noqa: ARG001
    machine, flags = CORES[core]
    unaligned = toy(ACCESS % (1, "ldr r2, [%0]"))
    run(unaligned, find(machine), flags, CALL, layers=False)
    with pytest.raises(ToolError, match="unaligned access"):
        run(unaligned, find(machine), flags, CALL, layers=False, extra_flags=(TRAPPED,))


def test_memcpy_of_the_c_library_faults_under_the_trap(simulation_tools: None) -> None:  # noqa: ARG001
    """As docs/firmware.md says: the flag does not reach a library that is compiled already."""
    machine, flags = CORES["cortex-m4"]
    copy = "memcpy(&context->arena[%d], &context->arena[40], (size_t)(context->arena[1] + 15));"
    for offset in (64, 65):
        calls_memcpy = toy(copy % offset, prologue="#include <string.h>\n")
        run(calls_memcpy, find(machine), flags, CALL, layers=False)
        if offset % 4 == 0:
            run(calls_memcpy, find(machine), flags, CALL, layers=False, extra_flags=(TRAPPED,))
            continue
        with pytest.raises(ToolError, match="unaligned access"):
            run(calls_memcpy, find(machine), flags, CALL, layers=False, extra_flags=(TRAPPED,))


def test_two_words_at_once_are_always_aligned(simulation_tools: None) -> None:  # noqa: ARG001
    """Whatever the trap says: LDRD never takes an unaligned address."""
    machine, flags = CORES["cortex-m4"]
    with pytest.raises(ToolError, match="unaligned access"):
        run(toy(ACCESS % (2, "ldrd r2, r3, [%0]")), find(machine), flags, CALL, layers=False)


@pytest.mark.parametrize("name", ["cortex-m4", "cortex-m33"])
def test_last_of_contradicting_flags_chooses_the_library(simulation_tools: None, name: str) -> None:  # noqa: ARG001
    """GCC would link memset in Arm instructions, in which the core ran for ever."""
    machine, flags = CORES[name]
    soft = ("-mfloat-abi=soft",)
    result = run(CALLS_MEMSET, find(machine), flags, CALL, layers=False, extra_flags=soft, timeout=20)
    assert result.memory.library.text > 0


def test_library_in_arm_code_is_refused(simulation_tools: None, tmp_path: Path) -> None:  # noqa: ARG001
    """What GCC links for flags that it finds no library for."""
    (tmp_path / "a.c").write_text(
        "#include <string.h>\nvoid f(char *a, int n) { memset(a, 0, (size_t)n); }\n"
    )
    (tmp_path / "a.ld").write_text("ENTRY(f)\n")
    flags = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=soft", "-Wl,-n")
    found = compile_object(ARM_COMPILER, flags, tmp_path, "a.c")
    link(ARM_COMPILER, flags, tmp_path, [found], "a.ld", "a.elf")
    with pytest.raises(ToolError, match="libraries must consist of Thumb instructions"):
        link(ARM_COMPILER, ("-mfloat-abi=hard", *flags), tmp_path, [found], "a.ld", "a.elf")


def test_effective_flags() -> None:
    given = ["-mcpu=cortex-m4", "-mfloat-abi=hard", "-O2", "-mfpu=auto", "-mfloat-abi=soft", "-O2"]
    assert effective_flags(given) == ["-mcpu=cortex-m4", "-O2", "-mfpu=auto", "-mfloat-abi=soft", "-O2"]


def test_constants_of_any_size_before_initialised_data(simulation_tools: None) -> None:  # noqa: ARG001
    """Initial values behind an odd number of bytes are copied without an unaligned access."""
    machine, flags = CORES["cortex-m0plus"]
    prologue = "static const char odd[3] = {1, 2, 3};\nstatic volatile int value = 77;\n"
    use = "context->arena[2] = odd[context->arena[2] & 1]; context->arena[32] = (int8_t)value;"
    result = run(toy(use, prologue=prologue), find(machine), flags, CALL, layers=False)
    assert result.outputs[0][0][0] == 77


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "core", "optimize"),
    sampled_rows(
        [
            ("ops/dw_int8", "cortex-m4", "balanced"),
            ("digits", "cortex-m7", "speed"),
            ("dscnn_bn_int8", "cortex-m55", "balanced"),
            ("dscnn_bn_int8", "cortex-m3", "balanced"),
        ],
        every=3,
    ),
)
def test_trapped(model: str, core: str, optimize: str) -> None:
    check(model, core, TRAPPED, optimize=optimize)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("core", "optimize"),
    sampled_rows(
        [
            ("cortex-m4", "balanced"),
            ("cortex-m4", "size"),
            ("cortex-m33", "speed"),
            ("cortex-m55", "balanced"),
            ("cortex-m3", "balanced"),
        ],
        every=3,
    ),
)
def test_trapped_in_odd_shapes(core: str, optimize: str) -> None:
    """Rows and pixels that begin at all addresses."""
    need_tools(*CROSS_TOOLS)
    loaded = target.load(core)
    loaded = replace(loaded, cpu_flags=(*loaded.cpu_flags, TRAPPED))
    graphs = [graph for graph in sample_graphs().values() if not graph.subgraphs]
    check_program(compile_graph(merge(graphs), loaded, Options(optimize=optimize)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "core"),
    sampled_rows(
        [
            ("dscnn_bn_int8", "cortex-m4"),
            ("digits", "cortex-m7"),
            ("dscnn_bn_int8", "cortex-m33"),
            ("cnn_f32", "cortex-m4"),
        ],
        every=3,
    ),
)
def test_without_fpu_though_made_for_one(model: str, core: str) -> None:
    check(model, core, "-mfloat-abi=soft")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "core"),
    sampled_rows(
        [
            ("dscnn_bn_int8", "cortex-m4-nofp"),
            ("digits", "cortex-m7-nofp"),
            ("dscnn_bn_int8", "cortex-m33-nofp"),
            ("digits", "cortex-m33-nodsp"),
            ("dscnn_bn_int8", "cortex-m55-nofp"),
            ("digits", "cortex-m55-nomve"),
            ("cnn_f32", "cortex-m33-nofp"),
        ],
        every=3,
    ),
)
def test_targets_without_fpu(model: str, core: str) -> None:
    check(model, core)
