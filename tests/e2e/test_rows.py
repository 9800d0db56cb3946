"""Models that are handed rows, `--io rows`: rows and outputs are the reference's on all kinds of cores."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from microfold import target
from microfold.cli.common import to_json
from microfold.codegen.emit import emit
from microfold.compiler import compile_file, compile_graph
from microfold.errors import InputError, UnsupportedModelError
from microfold.host.library import HostLibrary
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.graph import verify as check_graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Value, make_node
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.mul import Mul
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.transpose import Transpose
from microfold.ops.pool2d import AveragePool2D
from microfold.ops.reduce.pixel_sums import MeanOfSums, PixelSums
from microfold.options import Options
from microfold.program import Program
from microfold.reporting.data import build_report
from microfold.reporting.rows import rows_report
from microfold.reporting.terminal.figures import print_memory
from microfold.verification.verify import input_sets, verify
from tests.codegen.builds import STRICT
from tests.needs import CROSS_TOOLS, need_tools
from tests.plan.stream.nets import Nets
from tests.reporting.test_schema import faults
from tests.sampling import quick, sampled

ROWS = Options(io="rows")
# Those of `Nets` whose operators between them have padding, strides, dilation, branches and joints.
HOST = (1, 3, 8)
# Those that end with a pool over rows.
POOLED = (17, 25)
SIMULATED = (20, 21, 22, 23)
# Those whose rows stay in rings where they may.
RINGED = (1, 3, 8, 11)
CORES = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m55")


def host_and_cores(first: int) -> list[Any]:
    """The host, every other core from one on, and, in exhaustive runs, the others."""
    return quick(["host", *sampled(CORES[first:] + CORES[:first], 2)])


def dense() -> Graph:
    """A model whose only layer is no image's."""
    x = Value("x", TensorType(DType.FLOAT32, (1, 4)))
    weights = Value("w", TensorType(DType.FLOAT32, (3, 4)))
    node = make_node(FullyConnected(ElementType(DType.FLOAT32)), [x, weights], ["y"])
    return Graph("dense", (x,), (node.output,), (node,), {weights: np.ones((3, 4), np.float32)})


def program(seed: int, core: str = "host", options: Options = ROWS) -> Program:
    return compile_graph(Nets(seed).draw(), target.load(core), options, name=f"net{seed}")


def images(graph: Graph, count: int) -> list[Array]:
    return [call[0] for call in input_sets([graph.inputs[0].type], count)]


@pytest.mark.parametrize("seed", HOST)
def test_rows_on_the_host(seed: int) -> None:
    built = program(seed)
    result = verify(built, input_sets([b.type for b in built.inputs], 4))
    assert result.exact, result.first_difference
    assert built.arena.size < built.source.inputs[0].type.nbytes * 8


@pytest.mark.slow
@pytest.mark.parametrize("core", sampled(CORES, 2))
def test_rows_on_simulated_cores(core: str) -> None:
    """Unaligned accesses trap where the core traps them."""
    need_tools(*CROSS_TOOLS)
    for seed in SIMULATED:
        graph = Nets(seed).draw(pooled=seed % 2 == 0)
        built = compile_graph(graph, target.load(core), ROWS, name=f"net{seed}")
        result = verify(built, input_sets([b.type for b in built.inputs], 4))
        assert result.exact, (seed, result.first_difference)


def rings(built: Program) -> int:
    assert built.stream is not None
    return sum(len(region.rings) for region in built.stream.timeline.regions)


def carried(built: Program) -> int:
    assert built.stream is not None
    return sum(len(region.carried) for region in built.stream.timeline.regions)


def count_apart(core: str, count: Callable[[Program], int]) -> int:
    """Of networks that are computed by rows, bit for bit as the reference: the sum of what is counted."""
    if core != "host":
        need_tools(*CROSS_TOOLS)
    found = 0
    for graph in (Nets(0).tall(), Nets(0).narrow(), *(Nets(seed).draw() for seed in RINGED)):
        built = compile_graph(graph, target.load(core), Options(io="rows", objective="ram=1"))
        found += count(built)
        result = verify(built, input_sets([b.type for b in built.inputs], 4))
        assert result.exact, result.first_difference
    return found


def on_stages(built: Program) -> int:
    """Values whose rows come to a stage."""
    report = rows_report(built)
    assert report is not None
    return sum(window.kept == "carried" and window.apart > 0 for window in report.windows)


@pytest.mark.usefixtures("all_rings")
@pytest.mark.parametrize("core", host_and_cores(1))
def test_rows_that_stay_in_rings(core: str) -> None:
    """Rows move once, and calls are given their addresses."""
    assert count_apart(core, rings) >= 8


@pytest.mark.usefixtures("all_carried")
@pytest.mark.parametrize("core", host_and_cores(0))
def test_carried_rows(core: str) -> None:
    """Rows go to a stage to be read, and home again."""
    assert count_apart(core, on_stages) >= 8


@pytest.mark.usefixtures("no_rings")
def test_rows_are_carried_where_kernels_read_no_rings() -> None:
    """The arena is smaller than with windows; where these fit, nothing is carried."""
    graph = Nets(0).narrow()
    m4 = target.load("cortex-m4")
    free = compile_graph(graph, m4, ROWS)
    smallest = compile_graph(graph, m4, Options(io="rows", optimize="size"))
    assert smallest.arena.size < free.arena.size
    assert carried(smallest) > 0
    loose = compile_graph(graph, m4, Options(io="rows", ram=free.arena.size * 2))
    assert carried(loose) == 0


def test_rings_where_windows_do_not_fit() -> None:
    """Windows need more for rows that are new; what fits without rings has none."""
    graph = Nets(0).narrow()
    m4 = target.load("cortex-m4")
    free = compile_graph(graph, m4, ROWS)
    smallest = compile_graph(graph, m4, Options(io="rows", optimize="size"))
    assert smallest.arena.size < free.arena.size
    assert rings(smallest) > 0
    limited = compile_graph(graph, m4, Options(io="rows", ram=smallest.arena.size))
    assert limited.arena.size <= smallest.arena.size
    assert rings(limited) > 0
    loose = compile_graph(graph, m4, Options(io="rows", ram=free.arena.size * 2))
    assert rings(loose) == 0


def test_rows_that_need_nothing_of_the_input() -> None:
    """A pad's first rows, which are there before the first one that is handed in; constants that are read."""
    quant = Quant.per_tensor(0.1, 3)
    image = Value("image", TensorType(DType.INT8, (1, 5, 4, 3), quant))
    scale = Value("scale", TensorType(DType.INT8, (1, 1, 4, 3), quant))
    pad = make_node(Pad(((0, 0), (2, 1), (1, 0), (0, 0)), 3), [image], ["padded"])
    product = make_node(Mul(ElementType(DType.INT8, quant)), [image, scale], ["product"])
    rng = np.random.default_rng(0)
    constants = {scale: rng.integers(-128, 128, scale.type.shape).astype(np.int8)}
    for nodes in ([pad], [product]):
        graph = Graph("rows", (image,), (nodes[-1].output,), tuple(nodes), constants)
        built = compile_graph(graph, target.load("host"), ROWS)
        result = verify(built, input_sets([image.type], 5))
        assert result.exact, result.first_difference
        (given,) = images(graph, 5)[4:]
        np.testing.assert_array_equal(Session(built).run(given)[0], Interpreter(graph).run(given)[0])


@pytest.mark.parametrize("seed", POOLED)
def test_a_pool_over_all_rows_is_summed_up(seed: int) -> None:
    """Its image, however high, is never there."""
    graph = Nets(seed).draw(pooled=True)
    built = compile_graph(graph, target.load("host"), ROWS)
    assert any(isinstance(layer.node.op, PixelSums) for layer in built.layers)
    result = verify(built, input_sets([b.type for b in built.inputs], 6))
    assert result.exact, result.first_difference


def averaged(dtype: DType) -> Graph:
    """A convolution, and the mean of all of its pixels."""
    quant = Quant.per_tensor(0.02, 0) if dtype is DType.INT16 else None
    image = Value("image", TensorType(dtype, (1, 19, 7, 3), quant))
    weights = Value(
        "weights",
        TensorType(DType.FLOAT32, (5, 3, 3, 3))
        if quant is None
        else TensorType(DType.INT8, (5, 3, 3, 3), Quant.per_tensor(0.01, 0)),
    )
    conv = make_node(
        Conv2D((1, 1), (1, 1), ((1, 1), (1, 1)), ElementType(dtype, quant)), [image, weights, None], ["conv"]
    )
    pool = make_node(AveragePool2D((19, 7), (1, 1), ((0, 0), (0, 0))), [conv.output], ["mean"])
    rng = np.random.default_rng(1)
    values = rng.integers(-127, 128, weights.type.shape)
    constants = {weights: (values / 64 if quant is None else values).astype(weights.type.dtype.numpy)}
    return Graph("averaged", (image,), (pool.output,), (conv, pool), constants)


@pytest.mark.parametrize("dtype", [DType.INT16, DType.FLOAT32])
@pytest.mark.parametrize("core", host_and_cores(1))
def test_sums_of_other_types(core: str, dtype: DType) -> None:
    """Floats are added in the order in which a pool over the whole image adds them: the bits are its own."""
    if core != "host":
        need_tools(*CROSS_TOOLS)
    graph = averaged(dtype)
    built = compile_graph(graph, target.load(core), ROWS)
    assert any(isinstance(layer.node.op, PixelSums) for layer in built.layers)
    result = verify(built, input_sets([b.type for b in built.inputs], 6))
    assert result.exact, result.first_difference
    if core == "host":
        whole = Session(compile_graph(graph, target.load(core)))
        for image in images(graph, 6):
            np.testing.assert_array_equal(Session(built).run(image)[0], whole.run(image)[0])


def test_means_of_sums_round_like_pools() -> None:
    """All sums that a small image can have, and both signs of halves."""
    quant = Quant.per_tensor(0.1, 3)
    for count in (2, 3, 5, 6):
        sums = np.arange(-128 * count, 127 * count + 1, dtype=np.int32)
        pixels = np.stack([(sums + index) // count for index in range(count)]).astype(np.int8)
        image = Tensor(TensorType(DType.INT8, (1, count, 1, sums.size), quant), pixels[None, :, None])
        (wanted,) = AveragePool2D((count, 1), (1, 1), ((0, 0), (0, 0))).evaluate([image])
        (summed,) = PixelSums().evaluate([image])
        np.testing.assert_array_equal(summed.data.reshape(-1), sums)
        (mean,) = MeanOfSums(count, ElementType(DType.INT8, quant)).evaluate([summed])
        np.testing.assert_array_equal(mean.data, wanted.data)


def test_rows_are_pushed_one_by_one() -> None:
    """Runs of two contexts are independent; rows behind the end change nothing; a run may begin anew."""
    built = program(HOST[0])
    first, second, third = images(built.source, 6)[3:]
    reference = Interpreter(built.source)
    wanted = [reference.run(image)[0] for image in (first, second, third)]
    library = HostLibrary(built)
    contexts = [library.new_context(), library.new_context()]
    for context in contexts:
        library.init(context)

    def push(context: object, image: Array, row: int) -> int:
        data = np.ascontiguousarray(image[0, row])
        return int(library.call("push_rows", context, library.ffi.cast("int8_t *", data.ctypes.data)))

    def output(context: object) -> Array:
        t = built.outputs[0].type
        data = bytes(library.ffi.buffer(library.call("output_0", context), t.nbytes))
        return np.frombuffer(data, t.dtype.numpy).reshape(t.shape)

    height = first.shape[1]
    # A run that is given up.
    for row in range(height // 2):
        assert push(contexts[0], third, row) == 0
    library.call("begin", contexts[0])
    done = [0, 0]
    for row in range(height):
        done = [push(context, image, row) for context, image in zip(contexts, (first, second), strict=True)]
    assert done == [1, 1]
    np.testing.assert_array_equal(output(contexts[0]), wanted[0])
    np.testing.assert_array_equal(output(contexts[1]), wanted[1])
    assert push(contexts[0], third, 0) == 1
    np.testing.assert_array_equal(output(contexts[0]), wanted[0])
    library.call("reset", contexts[0])
    assert [push(contexts[0], third, row) for row in range(height)][-1] == 1
    np.testing.assert_array_equal(output(contexts[0]), wanted[2])


def test_what_is_left_behind_is_computed() -> None:
    """A region ends where the arena is smallest; a limit of RAM is kept."""
    graph = Nets(HOST[1]).draw()
    free = compile_graph(graph, target.load("cortex-m4"), ROWS)
    assert free.stream is not None
    limited = compile_graph(graph, target.load("cortex-m4"), Options(io="rows", ram=free.arena.size))
    assert limited.arena.size <= free.arena.size
    with pytest.raises(InputError, match="computed by rows, the smallest arena found"):
        compile_graph(graph, target.load("cortex-m4"), Options(io="rows", ram=40))


@pytest.mark.parametrize("core", ["host", pytest.param("cortex-m4", marks=pytest.mark.slow)])
def test_rows_within_a_run_where_only_they_fit_the_ram(core: str) -> None:
    """The caller's image is read row by row; nothing else about its code changes."""
    graph = Nets(0).tall()
    whole = compile_graph(graph, target.load(core), Options(io="caller"))
    rows = compile_graph(graph, target.load(core), ROWS)
    assert whole.stream is None
    assert rows.arena.size * 3 < whole.arena.size
    for ram in (whole.arena.size, rows.arena.size):
        built = compile_graph(graph, target.load(core), Options(io="caller", ram=ram))
        assert built.arena.size <= ram
        assert (built.stream is None) == (ram == whole.arena.size)
        result = verify(built, input_sets([b.type for b in built.inputs], 4))
        assert result.exact, result.first_difference
    with pytest.raises(InputError, match=r"arena found needs .* computed by rows, the smallest .*: allow"):
        compile_graph(graph, target.load(core), Options(io="caller", ram=40))


@pytest.mark.parametrize("core", host_and_cores(0))
def test_rows_of_an_input_in_the_arena(core: str) -> None:
    """What is computed lies over rows of it that are given up; the input is written as ever."""
    graph = Nets(0).tall()
    whole = compile_graph(graph, target.load(core))
    rows = compile_graph(graph, target.load(core), ROWS)
    ram = graph.inputs[0].type.nbytes + rows.arena.size
    assert whole.stream is None
    assert ram < whole.arena.size
    for limit in (whole.arena.size, ram):
        built = compile_graph(graph, target.load(core), Options(ram=limit))
        assert built.arena.size <= limit
        assert (built.stream is None) == (limit == whole.arena.size)
        result = verify(built, input_sets([b.type for b in built.inputs], 4))
        assert result.exact, result.first_difference
    with pytest.raises(InputError, match=r"arena found needs .* computed by rows, the smallest .*: allow"):
        compile_graph(graph, target.load(core), Options(ram=40))


def bulge() -> Graph:
    """Layers on vectors, and between them images that are large in the middle only."""
    draw = Nets(5)
    vector = Value("vector", TensorType(DType.INT8, (1, 16), draw.quant()))
    out = [ElementType(DType.INT8, draw.quant()) for _ in range(5)]
    point, three = ((0, 0), (0, 0)), ((1, 1), (1, 1))
    dense = make_node(FullyConnected(out[0]), [vector, draw.weights((256, 16), 0)], ["dense"])
    small = make_node(Reshape((1, 16, 4, 4)), [dense.output], ["small"])
    weights = [draw.weights((48, 1, 1, 4), 0), draw.weights((1, 3, 3, 48), 3), draw.weights((4, 3, 3, 48), 0)]
    wide = make_node(Conv2D((1, 1), (1, 1), point, out[1]), [small.output, weights[0]], ["wide"])
    deep = make_node(DepthwiseConv2D((1, 1), (1, 1), three, out[2]), [wide.output, weights[1]], ["deep"])
    thin = make_node(Conv2D((2, 1), (1, 1), three, out[3]), [deep.output, weights[2]], ["thin"])
    flat = make_node(Reshape((1, 128)), [thin.output], ["flat"])
    last = make_node(FullyConnected(out[4]), [flat.output, draw.weights((3, 128), 0)], ["last"])
    nodes = (dense, small, wide, deep, thin, flat, last)
    graph = Graph("bulge", (vector,), (last.output,), nodes, draw.constants)
    check_graph(graph)
    return graph


@pytest.mark.parametrize("io", ["arena", "caller"])
@pytest.mark.parametrize("core", host_and_cores(1))
def test_a_region_in_the_middle(io: str, core: str) -> None:
    """Layers before and behind it compute whole tensors."""
    graph = bulge()
    built = compile_graph(graph, target.load(core), Options(io=io, ram=graph.nodes[2].output.type.nbytes))
    assert built.stream is not None
    (region,) = built.stream.timeline.regions
    assert region.start > 0
    result = verify(built, input_sets([b.type for b in built.inputs], 4))
    assert result.exact, result.first_difference


@pytest.mark.parametrize("core", host_and_cores(0))
def test_other_inputs_are_there_whole(core: str) -> None:
    """One image is handed in row by row; others are written before its first row."""
    draw = Nets(7)
    images = [Value(name, TensorType(DType.INT8, (1, 9, 5, 4), draw.quant())) for name in ("a", "b")]
    gain = Value("gain", TensorType(DType.INT8, (1, 8), draw.quant()))
    out = [ElementType(DType.INT8, draw.quant()) for _ in range(4)]
    three = ((1, 1), (1, 1))
    first = make_node(
        Conv2D((1, 1), (1, 1), three, out[0]), [images[0], draw.weights((4, 3, 3, 4), 0)], ["first"]
    )
    second = make_node(
        Conv2D((1, 1), (1, 1), three, out[1]), [images[1], draw.weights((4, 3, 3, 4), 0)], ["second"]
    )
    added = make_node(Add(out[2]), [first.output, second.output], ["added"])
    dense = make_node(FullyConnected(out[3]), [gain, draw.weights((4, 8), 0)], ["dense"])
    nodes = (first, second, added, dense)
    graph = Graph("two", (*images, gain), (added.output, dense.output), nodes, draw.constants)
    check_graph(graph)
    built = compile_graph(graph, target.load(core), ROWS)
    assert built.stream is not None
    assert [b.region for b in built.inputs] == ["input", "arena", "arena"]
    result = verify(built, input_sets([b.type for b in built.inputs], 4))
    assert result.exact, result.first_difference


@pytest.mark.parametrize("core", ["host", pytest.param("cortex-m0plus", marks=pytest.mark.slow)])
def test_calls_compute_several_rows_where_the_ram_allows_it(core: str) -> None:
    """Rows of few pixels: what kernels compute for several at once is worth more windows."""
    graph = Nets(0).tall()
    least = compile_graph(graph, target.load("cortex-m4"), ROWS)
    assert least.stream is not None
    assert all(node.width == 1 for node in least.stream.timeline.regions[0].nodes)
    ram = least.arena.size + 400
    wide = compile_graph(graph, target.load("cortex-m4"), Options(io="rows", ram=ram))
    assert wide.stream is not None
    assert wide.arena.size <= ram
    assert any(node.width > 1 for node in wide.stream.timeline.regions[0].nodes)

    def instructions(built: Program) -> int:
        return sum(layer.estimated_instructions or 0 for layer in built.layers)

    assert instructions(wide) < instructions(least)
    built = compile_graph(graph, target.load(core), Options(io="rows", ram=ram))
    result = verify(built, input_sets([b.type for b in built.inputs], 4))
    assert result.exact, result.first_difference


def test_rows_that_have_few_pixels() -> None:
    graph = Nets(0).narrow()
    m4 = target.load("cortex-m4")
    built, fast = (compile_graph(graph, m4, each) for each in (ROWS, Options(io="rows", optimize="speed")))
    assert built.arena.size <= fast.arena.size
    result = verify(compile_graph(graph, target.load("host"), ROWS), input_sets([graph.inputs[0].type], 4))
    assert result.exact, result.first_difference


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_warnings(compiler: str, tmp_path: Path) -> None:
    need_tools(compiler)
    within = Options(io="caller", ram=program(HOST[2]).arena.size)
    held = Options(ram=program(HOST[2]).arena.size + 1000)
    for options in (
        ROWS,
        Options(io="rows", weights="blob"),
        Options(io="rows", optimize="size"),
        within,
        held,
    ):
        built = program(HOST[2], options=options)
        for name, text in emit(built).items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        command = [shutil.which(compiler) or compiler, *STRICT, "-c", f"{built.name}.c"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_weights_in_a_blob() -> None:
    built = program(HOST[2], options=Options(io="rows", weights="blob"))
    (image,) = images(built.source, 4)[3:]
    np.testing.assert_array_equal(Session(built).run(image)[0], Interpreter(built.source).run(image)[0])


@pytest.mark.slow
def test_outputs_with_sanitizers(tmp_path: Path) -> None:
    """The arena has a red zone behind it: the context is all that is written."""
    need_tools("cc")
    for seed in SIMULATED[:3]:
        built = program(seed)
        files = emit(built)
        name = built.name
        image = images(built.source, 4)[3]
        wanted = Interpreter(built.source).run(image)[0].reshape(-1)
        main = f"""#include <stdio.h>
#include <stdlib.h>
#include "{name}.h"
static const int8_t image[] = {{ {", ".join(map(str, image.reshape(-1)))} }};
int main(void)
{{
    {name}_context *network = malloc(sizeof *network);
    {name}_init(network);
    {name}_run(network, image);
    for (int i = 0; i < {wanted.size}; i++) {{ printf("%d ", {name}_output_0(network)[i]); }}
    free(network);
    return 0;
}}
"""
        for file, text in (files | {"main.c": main}).items():
            (tmp_path / file).write_text(text, encoding="utf-8")
        flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        sources = ["main.c", *(file for file in files if file.endswith(".c"))]
        subprocess.run(["cc", *flags, *sources, "-lm", "-o", "net"], cwd=tmp_path, check=True)
        done = subprocess.run([tmp_path / "net"], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [str(value) for value in wanted]


def test_options_that_need_whole_tensors() -> None:
    with pytest.raises(InputError, match="io=rows cannot be combined with step: "):
        Options(io="rows", step=True)
    with pytest.raises(InputError, match="which taps copy, are never in memory; remove"):
        Options(io="rows", taps=True)
    graph = Nets(0).tall()
    steps, taps = Options(ram=3000, step=True), Options(ram=3000, taps=True)
    for options, reason in ((steps, "cannot be one step"), (taps, "are never in memory")):
        with pytest.raises(InputError, match=f"; by rows, .*{reason}.*: allow "):
            compile_graph(graph, target.load("host"), options)


def test_a_model_without_rows_is_refused() -> None:
    """It says which operator, why, and what to do."""
    with pytest.raises(UnsupportedModelError, match=r"rows; none of its inputs is an image \[1, H, W, C\]"):
        compile_graph(dense(), target.load("host"), ROWS)
    image = Value("image", TensorType(DType.FLOAT32, (1, 5, 4, 3)))
    node = make_node(Transpose((0, 2, 1, 3)), [image], ["turned"])
    graph = Graph("turned", (image,), (node.output,), (node,), {})
    with pytest.raises(UnsupportedModelError, match="first layers must work by rows; transpose %turned") as e:
        compile_graph(graph, target.load("host"), ROWS)
    assert "choose another io" in str(e.value)


def test_a_model_that_is_quantised_dynamically_is_refused() -> None:
    path = Path(__file__).resolve().parents[1] / "models" / "made" / "cnn_aeq_dynwi8.tflite"
    with pytest.raises(UnsupportedModelError, match="on all rows \\(the model is quantised dynamically\\)"):
        compile_file(path, target.load("host"), ROWS)


def test_reports_say_where_rows_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """Windows have the bytes of their rows, and lie in the arena; reports without rows have none."""
    graph = Nets(0).tall()
    whole, built = (compile_graph(graph, target.load("cortex-m4"), each) for each in (Options(), ROWS))
    assert build_report(whole, None).stream is None
    report = build_report(built, None)
    assert faults(json.loads(to_json(report))) == []
    rows = report.stream
    assert rows is not None and rows.longest_push is not None and rows.longest_push_cycles is not None
    assert rows.layers == sum(layer.rows is not None for layer in built.layers)
    windows = {each.tensor: each for each in rows.windows}
    assert windows.keys() >= {"image", "first", "second", "third"}
    assert windows["image"].bytes == windows["image"].rows * 6 * 4
    assert all(each.offset + each.bytes <= built.arena.size for each in rows.windows)
    assert rows.longest_push >= max(layer.estimated_instructions or 0 for layer in built.layers[-1:])
    last = built.layers[-1].estimated_cycles
    assert last is not None and rows.longest_push_cycles >= last
    print_memory(built, report)
    assert f"{rows.longest_push_cycles:,}" in (shown := capsys.readouterr().out)
    assert "cycles, estimated" in shown and "longest push" in shown
