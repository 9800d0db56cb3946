"""Hooks, and layers one by one: the same bits as a run, and no cost where they are not used."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file, compile_graph
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.options import WHOLE_IO, Options
from microfold.program import Program
from microfold.verification.measure import measure
from microfold.verification.verify import compare, input_sets
from tests.codegen import graphs
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import objects, run, symbols, write
from tests.counts import MODELS, executed
from tests.needs import CROSS_TOOLS, need_tools

GRAPHS = (graphs.chain, graphs.several_outputs, graphs.two_inputs, graphs.accumulator, graphs.swapped_states)

# Two contexts: one runs, one steps, after a run given up in the middle and with layers that there are not.
MAIN = """
#include <stdio.h>
#include <string.h>
#include "{name}.h"

static {name}_context one, other;
{buffers}

int main(void)
{{
    {name}_init(&one);
    {name}_init(&other);
    for (int call = 0; call < 3; call++) {{
{fill}
        {name}_run(&one{first});
        for (uint32_t end = {macro}_LAYER_COUNT - 1; end <= {macro}_LAYER_COUNT; end++) {{
{refill}
            for (uint32_t layer = 0; layer < end; layer++) {{
                {name}_step(&other, layer{second});
            }}
            {name}_step(&other, {macro}_LAYER_COUNT{second});
            {name}_step(&other, UINT32_MAX{second});
        }}
{compare}
    }}
    return 0;
}}
"""


def main(program: Program) -> str:
    """A program that fails where steps differ from a run."""
    name, macro, caller = program.name, program.name.upper(), program.options.io == "caller"
    ports = [("input", i) for i in range(len(program.inputs))]
    ports += [("output", i) for i in range(len(program.outputs))]
    of = {key: [f"{kind}_{i}_{key}" for kind, i in ports] for key in ("one", "other")}

    def address(kind: str, i: int, context: str) -> str:
        return f"{kind}_{i}_{context}" if caller else f"{name}_{kind}_{i}(&{context})"

    def fill(context: str) -> str:
        inputs = [(kind, i) for kind, i in ports if kind == "input"]
        return "\n".join(
            f"memset({address(kind, i, context)}, 7 * {i} + 11 * call + 1, {macro}_INPUT_{i}_SIZE);"
            for kind, i in inputs
        )

    c_types = {"int8": "int8_t", "float32": "float"}
    buffers = [
        f"static {c_types[b.type.dtype.value]} {kind}_{i}_{key}[{b.type.size}];"
        for key in of
        for (kind, i), b in zip(ports, (*program.inputs, *program.outputs), strict=True)
    ]
    return MAIN.format(
        name=name,
        macro=macro,
        buffers="\n".join(buffers) if caller else "",
        fill=fill("one"),
        refill=fill("other"),
        first="".join(f", {name}" for name in of["one"]) if caller else "",
        second="".join(f", {name}" for name in of["other"]) if caller else "",
        compare="\n".join(
            f"if (memcmp({address(kind, i, 'one')}, {address(kind, i, 'other')}, {macro}_OUTPUT_{i}_SIZE))"
            f" return {i + 1};"
            for kind, i in ports
            if kind == "output"
        ),
    )


@pytest.mark.parametrize("io", WHOLE_IO)
@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_steps_give_what_a_run_gives(make: Callable[[], Graph], io: str, tmp_path: Path) -> None:
    need_tools("cc")
    program = compile_graph(make(), target.load("host"), Options(io=io, step=True))
    sources = write(tmp_path, emit(program) | {"main.c": main(program)})
    run(["cc", *STRICT, "-O1", f"-I{tmp_path}", *sources, "-lm", "-o", tmp_path / "steps"])
    run([tmp_path / "steps"])


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_a_run_of_steps_equals_the_interpreter(make: Callable[[], Graph]) -> None:
    graph = make()
    session = Session(compile_graph(graph, target.load("host"), Options(step=True)))
    interpreter = Interpreter(graph)
    for call in input_sets([value.type for value in graph.inputs], 4):
        expected = interpreter.run(*call)
        for actual, wanted in zip(session.run(*call), expected, strict=True):
            assert compare(actual, wanted) is None


@pytest.mark.parametrize("step", [False, True])
def test_hooks_stand_around_every_layer(step: bool, tmp_path: Path) -> None:
    need_tools("cc")
    program = compile_graph(graphs.chain(), target.load("host"), Options(step=step))
    hooks = """
    #include <stdio.h>
    #define NET_RUN_BEGIN(context) printf("run %d ", (context) == &network)
    #define NET_LAYER_BEGIN(context, layer) printf("(%d", layer)
    #define NET_LAYER_DONE(context, layer) printf("%d) ", layer)
    extern net_context network;
    """
    text = """
    #include "net.h"
    net_context network;
    int main(void) { net_init(&network); net_run(&network); net_run(&network); return 0; }
    """
    sources = write(tmp_path, emit(program) | {"hooks.h": hooks, "main.c": text})
    command = ["cc", *STRICT, '-DNET_HOOKS="hooks.h"', f"-I{tmp_path}", *sources, "-o", tmp_path / "hooked"]
    run(command)
    one = "run 1 (00) (11) (22) "
    assert run([tmp_path / "hooked"]) == one + one


def test_without_the_option_there_is_no_step(tmp_path: Path) -> None:
    for step in (False, True):
        program = compile_graph(graphs.chain(), target.load("host"), Options(step=step))
        found = [symbols(path) for path in objects(tmp_path / str(step), emit(program))]
        assert any("net_step" in names for names in found) == step


def test_hooks_that_nobody_defines_are_no_instructions(tmp_path: Path) -> None:
    program = compile_graph(graphs.chain(), target.load("host"))
    files = emit(program)
    bare = {name: re.sub(r"(?m)^ *NET_(RUN|LAYER)_\w+\(.*\);\n", "", text) for name, text in files.items()}
    assert bare["net.c"].count("\n") == files["net.c"].count("\n") - 7
    one, other = (
        objects(tmp_path / name, text)[0].read_bytes() for name, text in (("hooks", files), ("bare", bare))
    )
    assert one == other


@pytest.mark.slow
def test_a_run_of_steps_takes_little_more() -> None:
    """Kernels are in the code once; what is added is the jump table and its use."""
    need_tools(*CROSS_TOOLS)
    core = target.load("cortex-m4")
    plain, stepped = (compile_file(MODELS["digits"], core, Options(step=step)) for step in (False, True))
    sizes = [measure(program) for program in (plain, stepped)]
    assert sizes[0] is not None and sizes[1] is not None
    assert sizes[1].code - sizes[0].code < 100
    assert executed(stepped) - executed(plain) < 30 * len(plain.layers)
