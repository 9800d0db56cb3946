"""A hand-written model on every simulated core."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from microfold.errors import InputError, RunError, TargetError, ToolError
from microfold.simulate.boards import BOARDS, SimulatedBoard, find
from microfold.simulate.firmware import Firmware
from microfold.simulate.run import SimulationResult, Simulator, run
from microfold.simulate.toolchain import find_tool

from .conftest import CORES, LENGTH, STRICT, caller_toy, inner_toy, toy

Core = tuple[SimulatedBoard, tuple[str, ...]]
INPUT = np.arange(LENGTH, dtype=np.int8)

# Two instructions a round. (Inline assembly for Armv6-M has the old syntax unless told.)
LOOP = (
    '{ uint32_t n = %du; __asm__ volatile(".syntax unified\\n1: subs %%0, #1\\n\\tbne 1b"'
    ' : "+l"(n) : : "cc"); }'
)


def nops(count: int) -> str:
    return f'__asm__ volatile(".rept {count}; nop; .endr");'


def simulate(core: Core, model=None, calls=1, **options) -> SimulationResult:
    board, flags = core
    return run(model or toy(), board, flags, [(INPUT,)] * calls, **options)


def test_outputs_state_and_captured_layers(core: Core):
    result = simulate(core, calls=3, capture_layers=True, extra_flags=STRICT)
    for call in range(3):
        (output,) = result.outputs[call]
        first, second = result.layer_tensors[call]
        np.testing.assert_array_equal(output, INPUT + 3 + call)  # the state counts the calls
        np.testing.assert_array_equal(first[0], INPUT + 3)
        np.testing.assert_array_equal(second[0], INPUT + 3 + call)
        assert second[1].tolist() == [call + 1]
    assert [len(layers) for layers in result.layer_instructions] == [2, 2, 2]


def test_captured_inner_layers(core: Core):
    """The last time of each run; nothing of a layer that the run left out, and nothing between the counts."""
    result = simulate(core, inner_toy(), calls=3, capture_layers=True, extra_flags=STRICT)
    for call in range(3):
        counted, skipped = result.inner_tensors[call]
        np.testing.assert_array_equal(counted[0], INPUT + 3 + 4)
        assert len(skipped) == (1 if call == 1 else 0)
    assert simulate(core, inner_toy(), extra_flags=STRICT).inner_tensors == ()
    # Writing what was captured counts for no layer; the calls of the hook are some instructions.
    (plain,) = simulate(core, inner_toy()).layer_instructions
    (watched,) = simulate(core, inner_toy(), capture_layers=True).layer_instructions
    assert plain[0] <= watched[0] <= plain[0] + 500


def test_buffers_of_the_caller(core: Core):
    board, flags = core
    offsets = np.array([1, -1, 2, 5], np.int16)
    calls = [(INPUT, offsets), (INPUT[::-1], offsets)]
    result = run(caller_toy(), board, flags, calls, capture_layers=True, extra_flags=STRICT)
    for call, (data, _) in enumerate(calls):
        expected = (data + np.resize(offsets, LENGTH)).astype(np.int8)
        np.testing.assert_array_equal(result.outputs[call][0], expected)
        np.testing.assert_array_equal(result.layer_tensors[call][0][0], expected)


def test_instructions_are_deterministic(core: Core):
    first, second = (simulate(core, calls=2) for _ in range(2))
    assert first.instructions == second.instructions
    assert first.layer_instructions == second.layer_instructions


def test_total_is_exact(core: Core):
    model = toy()
    head, _, _ = model.files["toy.c"].partition("void toy_run")
    run = '__attribute__((naked)) void toy_run(toy_context *c) { __asm__(".rept 99; nop; .endr; bx lr"); }\n'
    counted = replace(model, files={**model.files, "toy.c": head + run})
    assert simulate(core, counted, layers=False).instructions == (100,)


def test_instructions_of_a_known_loop_are_exact(core: Core):
    short = simulate(core, toy(LOOP % 10), layers=False)
    long = simulate(core, toy(LOOP % 123_456), layers=False)
    assert long.instructions[0] - short.instructions[0] == 2 * (123_456 - 10)


def test_instructions_of_each_layer_are_exact(core: Core):
    (short,) = simulate(core, toy(nops(1), nops(2))).layer_instructions
    (long,) = simulate(core, toy(nops(51), nops(72))).layer_instructions
    assert [b - a for a, b in zip(short, long, strict=True)] == [50, 70]


def test_layers_add_up_to_the_total(core: Core):
    result = simulate(core, toy(LOOP % 1000, LOOP % 2000))
    # What the hooks change: registers saved around their calls, loops that are no longer merged.
    assert sum(result.layer_instructions[0]) == pytest.approx(result.instructions[0], abs=20)


@pytest.mark.exhaustive
def test_counter_wraps(cortex_m4: Core):
    """At 3.2 ticks an instruction, the 32-bit counter wraps after 1.34e9 of them."""
    short = simulate(cortex_m4, toy(LOOP % 10), layers=False)
    long = simulate(cortex_m4, toy(LOOP % 1_500_000_000), layers=False)
    assert long.instructions[0] - short.instructions[0] == 2 * (1_500_000_000 - 10)


def test_stack_is_measured(core: Core):
    board, flags = core
    fill = "{ volatile char local[1000]; for (int k = 0; k < 1000; k++) { local[k] = 1; } }"
    for model in (toy(), toy(fill)):
        with Firmware(model, board, flags, extra_flags=("-fstack-usage",)) as firmware:
            usage = (firmware.elf.parent / "model" / "toy.su").read_text()
            (call,) = firmware.run([(INPUT,)])
        (expected,) = re.findall(r"toy_run\t(\d+)", usage)
        # The compiler may leave the lowest words of a frame unwritten, for its alignment.
        assert int(expected) - 4 <= call.stack <= int(expected)


def test_memory_of_the_image(core: Core):
    board, flags = core
    model = toy(
        "context->arena[2] = (int8_t)expf((float)table[context->arena[2] & 511]);",
        prologue="#include <math.h>\nstatic const signed char table[512] = {1, 2};\n",
    )
    with Firmware(model, board, flags) as firmware:
        memory = firmware.memory(stack=0)
        listing = subprocess.run(
            [find_tool("arm-none-eabi-size"), "-A", firmware.elf], capture_output=True, text=True, check=True
        ).stdout
    sizes = {name: int(size) for name, size in re.findall(r"^(\.\S+)\s+(\d+)", listing, re.MULTILINE)}
    image = memory.image
    assert image.text == sizes[".vectors"] + sizes[".text"]
    assert image.rodata == sizes[".rodata"] + sizes.get(".ARM.exidx", 0)
    assert (image.data, image.bss) == (sizes.get(".data", 0), sizes[".bss"])
    assert memory.context == 96 + 4
    assert memory.model.rodata >= 512
    assert memory.model.ram == 0
    assert memory.library.text > 0  # expf
    assert memory.flash == memory.model.flash + memory.library.flash < image.flash


def test_harness_links_no_library(core: Core):
    assert simulate(core, layers=False).memory.library.flash == 0


def test_weights_in_a_section_of_their_own(cortex_m4: Core):
    table = 'static const signed char table[4096] __attribute__((section("model_weights"))) = {7};\n'
    model = toy("context->arena[2] = table[context->arena[2] & 4095];", prologue=table)
    assert simulate(cortex_m4, model, layers=False).memory.model.rodata == 4096


def test_images_are_reused(cortex_m4: Core):
    board, flags = cortex_m4
    with Simulator(toy(), board, flags) as simulator:
        image = simulator.firmware(hooked=False)
        for shift in range(2):
            result = simulator.run([(INPUT + np.int8(shift),)], layers=False)
            np.testing.assert_array_equal(result.outputs[0][0], INPUT + 3 + shift)  # the state starts anew
        assert simulator.firmware(hooked=False) is image


def test_uninitialised_context_is_not_zero(cortex_m4: Core):
    model = toy()
    body = model.files["toy.c"].replace("{ context->state[0] = 0; }", "{ (void)context; }")
    forgetful = replace(model, files={**model.files, "toy.c": body})
    result = simulate(cortex_m4, forgetful, layers=False)
    assert not np.array_equal(result.outputs[0][0], INPUT + 3)


def test_outputs_that_depend_on_the_hooks_are_an_error(cortex_m4: Core):
    depends = "#ifdef TOY_HOOKS\n#define HOOKED 1\n#else\n#define HOOKED 0\n#endif\n"
    model = toy("context->arena[32] = HOOKED;", prologue=depends)
    with pytest.raises(ToolError, match="same outputs with and without layer hooks; output 0 of call 0"):
        simulate(cortex_m4, model)


def test_undefined_instruction_is_reported(core: Core):
    with pytest.raises(RunError, match=r"faulted in toy_run\(\): undefined instruction.*cfsr=00010000"):
        simulate(core, toy('__asm__ volatile("udf #0");'), layers=False)


def test_access_without_memory_is_reported(core: Core):
    address = {"mps2-an505": "a0000000", "mps3-an547": "e8000000"}.get(core[0].machine, "50000000")
    with pytest.raises(RunError, match=rf"faulted in toy_run\(\): data access.*bfar={address}"):
        simulate(core, toy(f"*(volatile int *)0x{address}u = 1;"), layers=False)


def test_stack_overflow_is_reported(core: Core):
    recursion = """
        void deep(int n);
        void deep(int n) { volatile char b[256]; b[0] = b[255] = 1; if (n > 0) { deep(n - 1); } b[0] = 2; }
    """
    with pytest.raises(ToolError, match=r"stack (of 65536 bytes overflowed|overflow)"):
        simulate(core, toy("deep(100000);", prologue=recursion), layers=False)


def test_division_by_zero_faults(cortex_m4: Core):
    divide = "{ volatile int zero = 0; context->state[0] = 5 / zero; }"
    with pytest.raises(ToolError, match="division by zero"):
        simulate(cortex_m4, toy(divide), layers=False)


@pytest.mark.parametrize("name", ["cortex-m0plus", "cortex-m3"])
def test_unaligned_access_faults_only_on_armv6m(simulation_tools: None, name: str):  # noqa: ARG001
    machine, flags = CORES[name]
    access = (
        "{ volatile uintptr_t address = (uintptr_t)&context->arena[1];"
        " *(volatile int32_t *)address = *(volatile int32_t *)address; }"
    )
    if name == "cortex-m0plus":
        with pytest.raises(ToolError, match="unaligned access"):
            simulate((find(machine), flags), toy(access), layers=False)
    else:
        simulate((find(machine), flags), toy(access), layers=False)


def test_endless_loop_is_stopped(cortex_m4: Core):
    with pytest.raises(RunError, match=r"must end within 1 s; it did not"):
        simulate(cortex_m4, toy('for (;;) { __asm__ volatile(""); }'), layers=False, timeout=1.0)


def test_compiler_error_is_reported(cortex_m4: Core):
    with pytest.raises(ToolError, match=r"compiling model/toy\.c failed: [^\n]*\n[^\n]*"):
        simulate(cortex_m4, toy("nonsense"))


def test_unknown_core_has_a_hint(cortex_m4: Core):
    with pytest.raises(ToolError, match="this compiler is older than the core"):
        simulate((cortex_m4[0], ("-mcpu=cortex-m999", "-mthumb")))


def test_model_larger_than_the_board_has_a_hint(cortex_m4: Core):
    table = "static const signed char table[5000000] = {7};\n"
    with pytest.raises(ToolError, match="larger than the memory of the simulated board"):
        simulate(cortex_m4, toy("context->arena[2] = table[context->arena[2] + 1];", prologue=table))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ((), "has 1 inputs; call 0 has 0"),
        ((INPUT[:5],), "32 elements of int8; call 0 has 5"),
        ((INPUT.astype(np.int16),), "has 32 of int16"),
    ],
)
def test_inputs_that_do_not_fit(call: tuple, message: str):
    with pytest.raises(InputError, match=message):
        toy().pack(call, 0)


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ((), "requires arm-none-eabi-gcc, which is not on PATH: install the package gcc-arm-none-eabi"),
        (
            ("arm-none-eabi-gcc",),
            "requires qemu-system-arm, which is not on PATH: install the package qemu-system-arm",
        ),
    ],
)
def test_missing_tool_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: tuple[str, ...], message: str
):
    for name in kept:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match=message):
        run(toy(), BOARDS["mps2-an386"], (), [(INPUT,)])


def test_unknown_board():
    with pytest.raises(TargetError, match="it is 'mps2'"):
        find("mps2")
