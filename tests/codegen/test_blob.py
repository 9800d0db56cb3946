"""Constants in a binary file: read where they lie, checked before, replaced without the code."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.codegen import blob
from microfold.codegen.emit import emit_build
from microfold.codegen.provenance import Build
from microfold.compiler import compile_file, compile_graph
from microfold.errors import InputError, ToolError
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.options import Options
from microfold.simulate import boards
from microfold.simulate.program import model_sources, simulator
from microfold.simulate.run import run as simulate
from microfold.verification.verify import compare, input_sets
from tests.codegen import graphs
from tests.codegen.builds import STRICT, sample_graphs
from tests.codegen.toolchain import run, write
from tests.counts import MODELS
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

MADE = Path(__file__).resolve().parents[2] / "tests" / "models" / "made"
GRAPHS = (graphs.chain, graphs.several_outputs, graphs.accumulator, graphs.constant_operand)
BLOB = Options(weights="blob")


def retrained(graph: Graph) -> Graph:
    """The same graph with its weights in another order; the values' bounds stay."""
    constants = {v: np.flip(a, -1).copy() if a.ndim > 1 else a for v, a in graph.constants.items()}
    return Graph(graph.name, graph.inputs, graph.outputs, graph.nodes, constants, graph.state)


def built(graph: Graph, options: Options = BLOB) -> tuple[Build, bytes]:
    build = emit_build(compile_graph(graph, target.load("host"), options))
    assert build.blob is not None
    return build, build.blob


@pytest.mark.parametrize("io", ["arena", "caller"])
@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_it_computes_the_same(make: Callable[[], Graph], io: str) -> None:
    graph = make()
    session = Session(compile_graph(graph, target.load("host"), Options(weights="blob", io=io, step=True)))
    interpreter = Interpreter(graph)
    for _ in range(2):
        for call in input_sets([value.type for value in graph.inputs], 3):
            expected = interpreter.run(*call)
            for actual, wanted in zip(session.run(*call), expected, strict=True):
                assert compare(actual, wanted) is None
        session.reset()
        interpreter.reset()


@pytest.mark.parametrize("name", ["cnn_int8", "cnn_f32", "cnn_int16x8", "attn_int8", "tcn1d_int8"])
def test_bundled_models_compute_the_same(name: str) -> None:
    program, plain = (
        compile_file(MADE / f"{name}.tflite", target.load("host"), options) for options in (BLOB, Options())
    )
    call = input_sets([buffer.type for buffer in program.inputs], 4)[3]
    for actual, wanted in zip(Session(program).run(*call), Session(plain).run(*call), strict=True):
        assert compare(actual, wanted) is None


@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++"])
def test_compilers_are_silent(compiler: str, tmp_path: Path) -> None:
    need_tools(compiler)
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-x", "c++"] if compiler == "g++" else [*STRICT]
    for name, graph in sample_graphs().items():
        program = compile_graph(graph, target.load("host"), BLOB, name=f"a_{name}")
        run([compiler, *flags, "-fsyntax-only", *write(tmp_path, emit_build(program).files)])


# Prints what init says of a file, and the outputs of a run if it says that all is well.
MAIN = """
#include <stdio.h>
#include <string.h>
#include "net.h"

static union { unsigned char bytes[1 << 16]; long double alignment; } weights;
static net_context network;

int main(int count, char **arguments)
{
    FILE *const file = fopen(arguments[1], "rb");
    const size_t size = fread(weights.bytes + (count > 2), 1, sizeof weights - 1, file);
    const int status = (int)net_init(&network, weights.bytes + (count > 2), (uint32_t)size);

    printf("%d", status);
    if (status == NET_WEIGHTS_OK) {
        memset(net_input_0(&network), 3, NET_INPUT_0_SIZE);
        net_run(&network);
        for (int i = 0; i < NET_OUTPUT_0_LENGTH; i++) {
            printf(" %d", net_output_0(&network)[i]);
        }
    }
    return fclose(file);
}
"""


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[int]]:
    """A program of `graphs.chain` that is given blobs."""
    need_tools("cc")
    folder = tmp_path_factory.mktemp("loader")
    sources = write(folder, {**built(graphs.chain())[0].files, "main.c": MAIN})
    run(["cc", *STRICT, f"-I{folder}", *sources, "-o", folder / "loader"])

    def load(content: bytes, *arguments: str) -> list[int]:
        (folder / "weights.bin").write_bytes(content)
        return [int(word) for word in run([folder / "loader", folder / "weights.bin", *arguments]).split()]

    return load


def test_other_weights_of_the_same_structure_are_taken(loader: Callable[..., list[int]]) -> None:
    outputs: list[list[int]] = []
    for graph in (graphs.chain(), retrained(graphs.chain())):
        status, *values = loader(built(graph)[1])
        (x,) = graph.inputs
        (wanted,) = Interpreter(graph).run(np.full(x.type.shape, 3, x.type.dtype.numpy))
        assert status == 0 and values == wanted.reshape(-1).tolist()
        outputs.append(values)
    assert outputs[0] != outputs[1]


def damaged(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Blobs that must be refused, and how."""
    layout, crc = 8, blob.HEADER_SIZE - 4
    yield b"", 2
    yield content[:31], 2
    yield content[:-1], 2
    yield b"\xff" * len(content), 3
    yield content[:4] + b"\2" + content[5:], 3
    yield content[:layout] + b"\0\1\2\3" + content[layout + 4 :], 4
    yield built(graphs.dense_chain("net", "x", ["a"]))[1].ljust(len(content)), 4
    yield content[:crc] + bytes([content[crc] ^ 1]) + content[crc + 1 :], 5
    for place in (20, 24, 32, len(content) // 2, len(content) - 1):
        yield content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :], 5


def test_wrong_blobs_are_refused(loader: Callable[..., list[int]]) -> None:
    _, content = built(graphs.chain())
    assert loader(content + b"behind it")[0] == 0
    assert loader(content, "misaligned") == [1]
    for wrong, status in damaged(content):
        assert loader(wrong) == [status]


def test_what_changes_the_code_changes_the_layout() -> None:
    layouts = [
        struct.unpack_from("<Q", built(graph, options)[1], 8)[0]
        for graph, options in (
            (graphs.chain(), BLOB),
            (graphs.chain(layers=("other", "names", "of /* layers")), BLOB),
            (graphs.chain(), Options(weights="blob", license="MIT")),
            (graphs.chain(), Options(weights="blob", step=True)),
        )
    ]
    assert layouts[1:3] == layouts[:1] * 2 and layouts[3] != layouts[0]


def test_the_header_is_as_it_is_described() -> None:
    build, content = built(graphs.chain())
    magic, form, low, high, size, made, zero, crc = struct.unpack_from("<8I", content)
    assert content[:4] == b"MFWB" and (magic, form, size, zero) == (blob.MAGIC, blob.FORMAT, len(content), 0)
    assert f"0x{low:08x}u" in build.files["net.c"] and f"0x{high:08x}u" in build.files["net.c"]
    assert f"0x{made:08x}u" == build.id
    assert crc == zlib.crc32(content[:28] + content[32:])
    assert sorted(build.files) == ["net.c", "net.h", "net_helpers.h"]


@pytest.mark.parametrize("other", [{"single_file": True}, {"weights_section": ".x"}, {"place": ("a=.x",)}])
def test_options_that_place_constants_are_refused(other: dict[str, object]) -> None:
    with pytest.raises(InputError, match="weights=blob cannot be combined with single_file"):
        Options(weights="blob", **other)  # type: ignore[reportArgumentType]


@pytest.mark.slow
@pytest.mark.parametrize("core", sampled(["cortex-m4", "cortex-m55", "cortex-m0plus"]))
def test_on_a_core(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    outputs: list[list[bytes]] = []
    for options in (BLOB, Options()):
        program = compile_file(MODELS["digits"], target.load(core), options)
        calls = input_sets([buffer.type for buffer in program.inputs], 3)
        with simulator(program) as machine:
            outputs.append([call[0].tobytes() for call in machine.run(calls, layers=False).outputs])
    assert outputs[0] == outputs[1]


@pytest.mark.slow
def test_a_damaged_blob_on_a_core() -> None:
    need_tools(*CROSS_TOOLS)
    core = target.load("cortex-m4")
    sources = model_sources(compile_file(MODELS["digits"], core, BLOB))
    assert sources.blob is not None
    wrong = sources.blob[:-1] + bytes([sources.blob[-1] ^ 1])
    call = [np.zeros(spec.length, spec.dtype) for spec in sources.inputs]
    with pytest.raises(ToolError, match="init rejected the weights"):
        simulate(replace(sources, blob=wrong), boards.find(core.board), core.cpu_flags, [call], layers=False)
