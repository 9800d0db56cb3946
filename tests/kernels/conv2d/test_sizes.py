"""Sizes that Python and C, or C and assembly, must agree on."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.codegen.environment import environment
from microfold.compiler import compile_graph
from microfold.kernels.conv2d import dsp, dsp_fpu
from microfold.kernels.kernel import KERNELS
from microfold.ops.convolution.conv2d import Conv2D
from tests.codegen.toolchain import run, write
from tests.kernels import graphs

CORE = ("-mcpu=cortex-m4", "-mthumb")

pytestmark = pytest.mark.needs("arm-none-eabi-gcc")


@pytest.mark.parametrize(
    ("kernel", "module", "name", "window"),
    [
        ("s8_conv2d__dsp_4x2", dsp, "QUAD_GROUP_BYTES", 3),
        ("s8_conv2d__dsp_tile", dsp, "QUAD_GROUP_BYTES", 3),
        ("s8_conv2d__dsp_fpu", dsp_fpu, "SPACED_GROUPS_BYTES", 3),
        ("s8_conv2d__dsp_fpu", dsp_fpu, "GROUPS_BYTES", 1),
    ],
)
def test_compilers_check_what_scratch_is_planned_for(
    kernel: str, module: ModuleType, name: str, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [k for k in KERNELS if k.op is not Conv2D or k.name == kernel]
    monkeypatch.setattr("microfold.kernels.selection.candidates.KERNELS", chosen)
    core = target.load("cortex-m4")
    command = ["arm-none-eabi-gcc", *core.cpu_flags, "-fsyntax-only"]

    def compile_conv() -> None:
        graph = graphs.conv2d_graph(
            16, 16, 32, 32, (window, window), padding=2 * ((window // 2, window // 2),)
        )
        program = compile_graph(graph, core)
        assert [layer.kernel.name for layer in program.layers] == [kernel]
        run([*command, *write(tmp_path, emit(program))])

    compile_conv()
    monkeypatch.setattr(module, name, getattr(module, name) + 4)
    with pytest.raises(AssertionError, match="_scratch_check"):
        compile_conv()


@pytest.mark.parametrize("packing", ["paired", "int16"])
@pytest.mark.parametrize(
    ("order", "arguments"),
    [
        ("dsp_steps", {"rest": "[r1], #8", "next": "[r1], #8"}),
        ("dsp_block_dual", {"inputs": 16, "next": 32, "weights": 8, "wide": True}),
    ],
)
def test_bytes_of_machine_code(order: str, arguments: dict[str, Any], packing: str, tmp_path: Path) -> None:
    """A jump into the loop leaves out whole steps."""
    macros = vars(environment().get_template(f"conv2d/{order}.j2").make_module())
    code = str(macros["step"](packing, **arguments))
    planned = int(str(macros["step_bytes"](packing)))
    source = tmp_path / "step.s"
    source.write_text(f'.syntax unified\n1:\n{code}\n.if (. - 1b) != {planned}\n.error "{planned}"\n.endif\n')
    run(["arm-none-eabi-gcc", *CORE, "-c", source, "-o", tmp_path / "step.o"])
    source.write_text(source.read_text().replace("1:\n", "1:\nnop.w\n"))
    with pytest.raises(AssertionError, match="Error: "):
        run(["arm-none-eabi-gcc", *CORE, "-c", source, "-o", tmp_path / "step.o"])
