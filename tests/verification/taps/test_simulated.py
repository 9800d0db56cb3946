"""Taps on simulated cores: over semihosting to a file, with faults planted in what runs there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.tensor_trace import Role, schedule
from microfold.compiler import compile_file
from microfold.options import Options
from microfold.program import Program
from microfold.verification.tensor_trace.diagnosis import Diagnosis, RunResult
from microfold.verification.tensor_trace.dump import Dump
from microfold.verification.tensor_trace.profile import profile
from microfold.verification.verify import input_sets
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run
from tests.counts import MODELS
from tests.needs import CROSS_TOOLS, need_tools
from tests.taps_device import write_device

ROOT = Path(__file__).resolve().parents[3]
FIRMWARE = ROOT / "examples" / "firmware"
MADE = ROOT / "tests" / "models" / "made"
QEMU = ("qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-serial", "none", "-monitor", "none")
SEMIHOSTING = ("-semihosting-config", "enable=on,target=native")
LINK = ("-nostartfiles", "--specs=nano.specs", "--specs=rdimon.specs", "-T", str(FIRMWARE / "mps2-an386.ld"))
# The board's counter of 25 MHz; with -icount, time goes by instructions.
TICKS = "_TAP_TICKS()=(*(volatile uint32_t *)0x40028018u)"


def simulated(
    folder: Path, program: Program, *flags: str, patches: Mapping[str, tuple[str, str]] | None = None
) -> list[RunResult]:
    """The runs of a device that is simulated."""
    need_tools(*CROSS_TOOLS)
    core, macro = program.target, program.name.upper()
    calls = input_sets([buffer.type for buffer in program.inputs], 5)[3:]
    sources = [*write_device(folder, program, calls, patches), FIRMWARE / "startup.c"]
    defines = [f"-D{macro}{flag}" if flag.startswith("_") else f"-D{flag}" for flag in (TICKS, *flags)]
    command = [core.compiler, *core.cpu_flags, *STRICT, "-Wno-cast-qual", "-O2", *defines, f"-I{folder}"]
    run([*command, *LINK, *sources, "-lm", "-o", folder / "image.elf"])
    run([*QEMU, *SEMIHOSTING, "-icount", "shift=7,sleep=off", "-kernel", folder / "image.elf"], folder)
    dump = Dump((folder / "records.bin").read_bytes())
    (build,) = dump.builds
    assert dump.parser.whole == dump.parser.total
    diagnosis = Diagnosis(program)
    return [diagnosis.check(each) for each in dump.runs(program, build)]


def digits(**options: object) -> Program:
    return compile_file(MODELS["digits"], target.load("cortex-m4"), Options(taps=True, **options))  # type: ignore[arg-type]


def assert_equal(found: list[RunResult]) -> None:
    assert len(found) == 2 and all(result.run.ended and result.tensors for result in found)
    assert not any(result.faults or result.missing or result.unchecked for result in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"io": "caller", "weights": "blob", "step": True}], ids=["plain", "all"]
)
def test_what_is_right_is_equal(options: dict[str, object], tmp_path: Path) -> None:
    program = digits(**options)
    found = simulated(tmp_path, program)
    assert_equal(found)
    ticks = profile(program, [result.run for result in found])
    assert ticks is not None and ticks.runs == 2
    # A convolution takes longest, and a tick is some instructions.
    means = [layer.mean or 0 for layer in ticks.layers]
    assert program.layers[means.index(max(means))].node.op.name in ("conv2d", "depthwise_conv2d")
    assert sum(means) == pytest.approx(ticks.total)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["stream_int8", "attn_f32"])
def test_state_and_floats(model: str, tmp_path: Path) -> None:
    program = compile_file(MADE / f"{model}.tflite", target.load("cortex-m4"), Options(taps=True))
    assert_equal(simulated(tmp_path, program))


@pytest.mark.slow
def test_a_bit_that_flips_between_layers(tmp_path: Path) -> None:
    """The sum of a residual block waits in memory while other layers run."""
    program = digits()
    waiting = program.layers[0].outputs[0]
    keys = [tap.key for tap in schedule(program)]
    behind = keys.index((Role.LAYER_OUTPUT, 2, 0)) + 2
    flags = (f"FLIP_AFTER={behind}", f"FLIP_BYTE={waiting.offset + 100}")
    first, second = simulated(tmp_path, program, *flags)
    (fault,) = first.faults
    assert (fault.kind, fault.layer, fault.written_by, fault.tensor) == ("memory", 3, 0, waiting.value)
    assert fault.elements is not None and fault.elements.first == (0, 0, 6, 4)
    assert not second.faults


@pytest.mark.slow
def test_a_wrong_kernel(tmp_path: Path) -> None:
    """The pooling of layer 4 leaves out every other element; all behind it is right on what it gets."""
    program = digits()
    right = "largest = digits_mf_maximum_bytes(largest, four1);"
    wrong = "(void)four1;"
    _, second = simulated(tmp_path, program, patches={"digits.c": (right, wrong)})
    (fault,) = second.faults
    assert (fault.kind, fault.layer, fault.tensor.type.shape) == ("kernel", 4, (1, 4, 4, 16))
    assert fault.elements is not None and fault.elements.actual < fault.elements.expected
