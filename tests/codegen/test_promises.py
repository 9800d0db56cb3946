"""What is true of every build: looked up in object files, not in the text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file, compile_graph
from microfold.host.library import HostLibrary
from microfold.ir.types import Array
from microfold.options import Options
from microfold.program import Program
from microfold.verification.verify import input_sets
from tests.codegen import graphs
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import call_graph, objects, run, sections, symbols, write
from tests.needs import need_tools
from tests.sampling import quick

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / "tests" / "models" / "made"
BUNDLED = ("cnn_int8", "dscnn_bn_int8", "cnn_f32", "cnn_int16x8", "cnn_int8_floatio", "tcn1d_int8")
BUILT = (*BUNDLED, "chain", "outputs", "two", "accumulator")

# What generated code may need from outside: moving bytes, and the mathematical functions of float models.
MATHEMATICAL = (
    "atan2f ceilf cosf erfcf erff exp2f expf expm1f fabsf floor floorf fmaxf fminf fmodf log1pf log2f logf "
    "lroundf powf rintf roundf sinf sqrtf tanf tanhf truncf"
)
ALLOWED = {"memcpy", "memset", "memmove", *MATHEMATICAL.split()}


@cache
def built(name: str, options: Options | None = None) -> Program:
    makers = {
        "chain": graphs.chain,
        "outputs": graphs.several_outputs,
        "two": graphs.two_inputs,
        "accumulator": graphs.accumulator,
    }
    if name in makers:
        return compile_graph(makers[name](), target.load("host"), options, name=name)
    return compile_file(MADE / f"{name}.tflite", target.load("host"), options)


Compiled = Callable[[str, Options], list[Path]]
# Hosts may add calls of a stack protector. An array of variable length is an error.
FLAGS = ("-O2", "-fno-stack-protector", "-Wvla")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Object files of a program, made once for all tests that look into them."""

    @cache
    def compile_once(name: str, options: Options) -> list[Path]:
        return objects(tmp_path_factory.mktemp(name), emit(built(name, options)), FLAGS)

    return compile_once


@pytest.mark.parametrize("single_file", quick([False, True]))
@pytest.mark.parametrize("name", BUILT)
def test_no_writable_data(name: str, single_file: bool, compiled: Compiled) -> None:
    for path in compiled(name, Options(single_file=single_file)):
        found = sections(path)
        writable = {
            section: size
            for section, size in found.items()
            # Descriptions that point to constants are relocated on hosts that load code anywhere.
            if section.startswith((".data", ".bss", ".tdata", ".tbss")) and ".rel.ro" not in section and size
        }
        assert not writable, path.name
        assert not {s for s, letter in symbols(path).items() if letter in "BbCcSsGgu"}, path.name


@pytest.mark.parametrize("name", BUILT)
def test_needs_nothing_but_memory_and_mathematical_functions(name: str, compiled: Compiled) -> None:
    program = built(name)
    for path in compiled(name, Options()):
        undefined = set(symbols(path, ["--undefined-only"]))
        own = {symbol for symbol in undefined if symbol.startswith(f"{program.name}_")}
        assert undefined - own <= ALLOWED | {"_GLOBAL_OFFSET_TABLE_"}, path.name


@pytest.mark.parametrize("name", BUILT)
def test_the_linker_sees_only_names_of_the_model(name: str, compiled: Compiled) -> None:
    program = built(name)
    for path in compiled(name, Options()):
        visible = symbols(path, ["--defined-only", "--extern-only"])
        assert all(symbol.startswith(f"{program.name}_") for symbol in visible), path.name
        if path.name == f"{program.name}.o":
            functions = {s.removeprefix(f"{program.name}_") for s in visible}
            ports = [f"input_{i}" for i in range(len(program.inputs))]
            ports += [f"output_{i}" for i in range(len(program.outputs))]
            assert functions == {"init", "reset", "run", *ports}


@pytest.mark.parametrize("name", quick(BUILT, 4))
def test_no_recursion_and_no_function_pointers(name: str, tmp_path: Path) -> None:
    graph = call_graph(tmp_path, emit(built(name)))
    assert f"{built(name).name}_run" in graph
    assert "__indirect_call" not in {callee for callees in graph.values() for callee in callees}
    finished: set[str] = set()

    def visit(function: str, callers: tuple[str, ...]) -> None:
        assert function not in callers, f"recursion: {' -> '.join((*callers, function))}"
        if function not in finished:
            for callee in graph.get(function, ()):
                visit(callee, (*callers, function))
            finished.add(function)

    for function in graph:
        visit(function, ())


def test_no_variable_length_arrays(compiled: Compiled) -> None:
    assert "-Wvla" in FLAGS and "-Werror" in STRICT
    assert all(compiled(name, Options()) for name in BUILT)


@pytest.mark.parametrize("single_file", [False, True])
def test_constants_go_to_the_section_asked_for(single_file: bool, tmp_path: Path) -> None:
    program = built("chain", Options(weights_section=".flash.weights", single_file=single_file))
    found = [sections(path).get(".flash.weights", 0) for path in objects(tmp_path, emit(program))]
    assert program.weight_bytes <= sum(found) <= program.weight_bytes + 16 * 8


def test_the_section_can_be_chosen_when_the_c_is_compiled(tmp_path: Path) -> None:
    program = built("chain")
    flag = '-DCHAIN_WEIGHTS_SECTION=__attribute__((section(".qspi")))'
    found = [sections(path).get(".qspi", 0) for path in objects(tmp_path, emit(program), ("-O2", flag))]
    assert sum(found) >= program.weight_bytes


@pytest.mark.parametrize("name", BUILT)
def test_weight_bytes_are_those_of_the_object(name: str, compiled: Compiled) -> None:
    program = built(name)
    (weights,) = [path for path in compiled(name, Options()) if path.name.endswith("_weights.o")]
    size = sum(size for section, size in sections(weights).items() if section.startswith(".rodata"))
    arrays = emit(program)[f"{program.name}_weights.h"].count("extern const")
    assert program.weight_bytes <= size <= program.weight_bytes + 32 * arrays


def test_two_models_in_one_program(tmp_path: Path) -> None:
    need_tools("cc")
    one, other = built("cnn_int8"), built("chain")
    files = emit(one) | emit(other) | {"main.c": MAIN}
    sources = write(tmp_path, files)
    run(["cc", "-O1", "-std=c99", "-Wall", "-Werror", *sources, "-lm", "-o", tmp_path / "both"])
    printed = list(map(int, run([tmp_path / "both"]).split()))
    expected: list[int] = []
    for program in (one, other):
        inputs = [np.ones(b.type.shape, b.type.dtype.numpy) for b in program.inputs]
        expected += [int(v) for v in Context(HostLibrary(program)).run(inputs)[0].reshape(-1)]
    assert printed == expected


MAIN = """
#include <stdio.h>
#include <string.h>
#include "cnn_int8.h"
#include "chain.h"

int main(void)
{
    static cnn_int8_context one;
    static chain_context other;

    cnn_int8_init(&one);
    chain_init(&other);
    memset(cnn_int8_input_0(&one), 1, CNN_INT8_INPUT_0_SIZE);
    memset(chain_input_0(&other), 1, CHAIN_INPUT_0_SIZE);
    cnn_int8_run(&one);
    chain_run(&other);
    for (int i = 0; i < CNN_INT8_OUTPUT_0_LENGTH; i++) {
        printf("%d ", cnn_int8_output_0(&one)[i]);
    }
    for (int i = 0; i < CHAIN_OUTPUT_0_LENGTH; i++) {
        printf("%d ", chain_output_0(&other)[i]);
    }
    return 0;
}
"""


class Context:
    """A context of a loaded model, driven by hand (arena inputs and outputs)."""

    def __init__(self, library: HostLibrary) -> None:
        self.library = library
        self.memory = library.new_context()
        library.call("init", self.memory)

    def fill(self, inputs: list[Array]) -> None:
        for index, array in enumerate(inputs):
            place = self.library.call(f"input_{index}", self.memory)
            self.library.ffi.memmove(place, array.tobytes(), array.nbytes)

    def outputs(self) -> list[Array]:
        found: list[Array] = []
        for index, buffer in enumerate(self.library.program.outputs):
            place = self.library.call(f"output_{index}", self.memory)
            data = bytes(self.library.ffi.buffer(place, buffer.type.nbytes))
            found.append(np.frombuffer(data, buffer.type.dtype.numpy).reshape(buffer.type.shape))
        return found

    def run(self, inputs: list[Array]) -> list[Array]:
        self.fill(inputs)
        self.library.call("run", self.memory)
        return self.outputs()


def calls_of(program: Program, count: int) -> Iterator[list[Array]]:
    return map(list, input_sets([b.type for b in program.inputs], count, seed=5))


@pytest.mark.parametrize("name", ["chain", "accumulator", "cnn_int8", "outputs"])
def test_contexts_are_independent(name: str) -> None:
    library = HostLibrary(built(name))
    calls = list(calls_of(built(name), 6))
    alone = [Context(library) for _ in range(2)]
    expected = [[context.run(call) for call in calls[k::2]] for k, context in enumerate(alone)]
    both = [Context(library) for _ in range(2)]
    results: list[list[list[Array]]] = [[], []]
    for first, second in zip(calls[0::2], calls[1::2], strict=True):
        # Both are filled before either runs, and run before either is read.
        both[0].fill(first)
        both[1].fill(second)
        for context in both:
            library.call("run", context.memory)
        for context, found in zip(both, results, strict=True):
            found.append(context.outputs())
    for k in range(2):
        for one, other in zip(expected[k], results[k], strict=True):
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "name",
    [
        "accumulator",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("chain", *BUNDLED)),
    ],
)
def test_the_compilers_optimisation_does_not_matter(name: str) -> None:
    program = built(name)
    results = [
        [Context(HostLibrary(program, flags)).run(call) for call in calls_of(program, 4)]
        for flags in (("-O0",), ("-Os",), ("-O3",), ("-O2", "-fno-strict-aliasing", "-fwrapv"))
    ]
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            for a, b in zip(one, two, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("options", [(), ("-DWITH_IO",)])
def test_the_header_is_cplusplus(options: tuple[str, ...], tmp_path: Path) -> None:
    need_tools("c++")
    for name in ("chain", "accumulator", "two"):
        program = built(name, Options(io="caller") if options else None)
        write(tmp_path, emit(program))
        user = tmp_path / f"{name}.cpp"
        user.write_text(f'#include "{name}.h"\n#include "{name}.h"\n{name}_context context;\n')
        run(["c++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", user, "-o", os.devnull])


def test_a_core_without_the_instructions_is_told_so(tmp_path: Path) -> None:
    need_tools("arm-none-eabi-gcc")
    program = compile_graph(graphs.chain(), target.load("cortex-m4"))
    write(tmp_path, emit(program))
    command = ["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-c", "net.c", "-o", os.devnull]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "net.c requires DSP instructions: compile it for cortex-m4, -mcpu=cortex-m4" in result.stderr


SCRIPT = """
import hashlib, sys
from microfold import target
from microfold.codegen.emit import emit
from microfold.compiler import compile_file
for core in ("host", "cortex-m4", "cortex-m55"):
    for name, text in emit(compile_file(sys.argv[1], target.load(core))).items():
        print(core, name, hashlib.sha256(text.encode()).hexdigest())
"""


@pytest.mark.slow
def test_the_bytes_depend_on_nothing_else(tmp_path: Path) -> None:
    """Not on the process, its hash seed, its folder, nor the folder of the model."""
    outputs: set[str] = set()
    for seed in ("0", "1", "4711"):
        folder = tmp_path / seed
        folder.mkdir()
        copy = folder / "cnn_int8.tflite"
        copy.write_bytes((MADE / "cnn_int8.tflite").read_bytes())
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", SCRIPT, str(copy)]
        result = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
        outputs.add(result.stdout)
    assert len(outputs) == 1


@pytest.mark.parametrize("name", BUILT)
def test_the_text_is_plain_ascii_without_paths(name: str) -> None:
    for file, text in emit(built(name)).items():
        assert text.isascii(), file
        assert "\t" not in text and "\r" not in text and text.endswith("\n"), file
        assert not [line for line in text.split("\n") if line != line.rstrip()], file
        assert str(ROOT) not in text and "/home" not in text and "/tmp" not in text, file
