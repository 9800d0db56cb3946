"""The stack that a header states is the one that was measured, and the report's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.emit import emit_build
from microfold.codegen.stack_size import STACK_BOUND, state_stacks
from microfold.compiler import compile_graph
from microfold.options import Options
from tests.codegen import graphs
from tests.command_line import succeed
from tests.counts import MODELS
from tests.needs import need_tools

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def stated(header: str) -> tuple[int | None, str]:
    """The value of the macro, and the comment in front of it."""
    found = re.search(r"/\*([^/]*)\*/\n(?:#define \w+_STACK_SIZE (\d+)\n)", header)
    return (int(found[2]), found[1]) if found else (None, "")


@pytest.mark.parametrize(
    ("core", "options", "size", "says"),
    [
        ("cortex-m4", {}, 224, "computed from the machine code"),
        ("cortex-m4", {"weights": "blob"}, 224, "computed from the machine code"),
        ("cortex-m4", {"taps": True}, STACK_BOUND, "_tap_write"),
        ("host", {}, None, ""),
    ],
)
def test_a_header_states_what_was_measured(
    core: str, options: dict[str, object], size: int | None, says: str
) -> None:
    """The identity of a build does not depend on it: whoever builds again may have another compiler."""
    program = compile_graph(graphs.chain(), target.load(core), Options(**options))  # type: ignore[arg-type]
    header = f"{program.name}.h"
    before = emit_build(program)
    after = state_stacks(before, [(program, None if core == "host" else 224)])
    found, comment = stated(after.files[header])
    assert found == size and says in " ".join(comment.split())
    assert after.id == before.id and after.blob == before.blob
    unmeasured = None if core == "host" else STACK_BOUND
    assert stated(before.files[header])[0] == unmeasured
    changed = {name for name, text in after.files.items() if text != before.files[name]}
    assert changed <= {header}


@pytest.mark.slow
def test_header_and_report_have_one_figure(tmp_path: Path) -> None:
    need_tools("arm-none-eabi-gcc")
    models = [MODELS["digits"], EXAMPLES / "sine" / "sine.tflite"]
    for folder, given in (("one", models[:1]), ("two", models)):
        succeed("build", *given, "-t", "cortex-m4", "-o", tmp_path / folder)
        stacks = []
        for name in ("digits", "sine")[: len(given)]:
            report = json.loads((tmp_path / folder / f"{name}_report.json").read_text())
            size, _ = stated((tmp_path / folder / f"{name}.h").read_text())
            assert size == report["ram"]["stack"] and size is not None
            assert any(f"{size:,} ({name.upper()}_STACK_SIZE)" in need for need in report["needs"])
            stacks.append(size)
        if len(given) > 1:
            assert json.loads((tmp_path / folder / "models_report.json").read_text())["ram"]["stack"] == max(
                stacks
            )
