"""Networks that take new frames only, `--sliding`: each run is one of the network over the last frames."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import microfold
from microfold import target
from microfold.cli.common import to_json
from microfold.compiler import compile_graph
from microfold.errors import InputError
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Value
from microfold.ir.text import to_text
from microfold.ir.types import Array, DType, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.reshape import Reshape
from microfold.options import Options
from microfold.program import Program, repeated_part
from microfold.reporting.data import build_report
from microfold.verification.verify import Verification, input_sets, verify
from microfold.verification.window import runs_to_make
from tests.codegen.builds import STRICT, write_sources
from tests.command_line import refuse, succeed
from tests.needs import CROSS_TOOLS, need_tools
from tests.reporting.test_schema import faults
from tests.sampling import sampled
from tests.transform.requested.sliding.nets import WindowNets, frames_of

# Those of `WindowNets` that slide, with strides, dilation, branches, joints and all kinds of heads.
HOST = (0, 1, 3, 4, 6, 9, 10, 11, 12, 13, 16, 28)
SIMULATED = (1, 3, 7, 13, 22, 28)
CORES = ("cortex-m0plus", "cortex-m4", "cortex-m55")


class SpotterNets(WindowNets):
    """A keyword spotter over 30 frames, as streams of audio have them: pairs of layers, without padding."""

    def spotter(self, frames: int = 30) -> Graph:
        image = Value("frames", TensorType(DType.INT8, (1, frames, 1, 40), self.quant()))
        x, none = image, ((0, 0), (0, 0))
        for size in (3, 5, 10, 15):
            weights = self.weights((1, size, 1, x.type.shape[3]), 3)
            x = self.emit(DepthwiseConv2D((1, 1), (1, 1), none, self.element()), x, weights)
            weights = self.weights((32, 1, 1, x.type.shape[3]), 0)
            x = self.emit(Conv2D((1, 1), (1, 1), none, self.element()), x, weights)
            x = self.emit(Clip(0.0, 3.0), x)
        flat = self.emit(Reshape((1, x.type.size)), x)
        scores = self.emit(FullyConnected(self.element()), flat, self.weights((3, x.type.size), 0))
        return Graph("spotter", (image,), (scores,), tuple(self.nodes), self.constants)


def program(seed: int, core: str = "host", options: Options | None = None) -> Program:
    nets = WindowNets(seed)
    graph = nets.draw()
    chosen = replace(options or Options(), sliding=nets.axis)
    return compile_graph(graph, target.load(core), chosen, name=f"net{seed}")


def spotter(core: str = "host", options: Options | None = None) -> Program:
    chosen = options or Options(sliding=1)
    return compile_graph(SpotterNets(0).spotter(), target.load(core), chosen, name="spotter")


def verified(built: Program, runs: int = 3) -> Verification:
    return verify(built, input_sets([b.type for b in built.inputs], runs_to_make(built, runs)))


@pytest.mark.parametrize("io", ["arena", "caller"])
@pytest.mark.parametrize("seed", HOST)
def test_on_the_host(seed: int, io: str) -> None:
    result = verified(program(seed, options=Options(io=io)))
    assert result.exact, result.first_difference


@pytest.mark.slow
@pytest.mark.parametrize("core", sampled(CORES))
def test_on_simulated_cores(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    for seed in SIMULATED:
        result = verified(program(seed, core))
        assert result.exact, (seed, result.first_difference)


@pytest.mark.parametrize("optimize", ["size", "balanced", "speed"])
def test_what_a_spotter_takes(optimize: str) -> None:
    """A row of each layer for each frame, and the rows that windows reach back to."""
    whole = spotter("cortex-m4", Options(optimize=optimize))
    built = spotter("cortex-m4", Options(optimize=optimize, sliding=1))
    assert built.state_size == 3 * 40 + (5 + 10 + 15) * 32
    assert built.sliding is not None
    assert built.macs == built.sliding.macs < 0.09 * whole.macs
    assert built.arena.size <= 128
    # Windows move on where they lie: nothing is copied back.
    assert all(slot.next is None for slot in built.state)


def test_a_session_is_a_stream() -> None:
    """Every run, from the first on, is one of the network over the last frames; before, there were zeros."""
    graph = SpotterNets(1).spotter()
    session = microfold.compile(graph, sliding=1)
    assert session.inputs[0].shape == (1, 1, 1, 40)
    zero = graph.inputs[0].type.quant
    assert zero is not None
    before = [np.full((1, 1, 1, 40), zero.zero_point, np.int8)] * 30
    frames = frames_of(graph, 1, 40, np.random.default_rng(0))
    for _ in range(2):
        seen: list[Array] = [*before]
        for frame in frames:
            seen = [*seen[1:], frame]
            np.testing.assert_array_equal(
                session.run(frame)[0], Interpreter(graph).run(np.concatenate(seen, 1))[0]
            )
        session.reset()


def test_streams_are_independent() -> None:
    """One of two that run by turns has begun 4 frames later."""
    built = spotter()
    frames = frames_of(built.source, 1, 10, np.random.default_rng(2))
    alone = Session(built)
    expected = [alone.run(frame)[0] for frame in frames]
    one, other = Session(built), Session(built)
    for index, frame in enumerate(frames):
        np.testing.assert_array_equal(one.run(frame)[0], expected[index])
        if index >= 4:
            np.testing.assert_array_equal(other.run(frames[index - 4])[0], expected[index - 4])


def test_states_begin_as_what_zeros_give() -> None:
    """Their rows are equal, and stored once."""
    built = program(28)
    for state, kept in zip(built.source.state, built.sliding.kept if built.sliding else (), strict=True):
        assert repeated_part(state.initial).nbytes <= kept.bytes // kept.rows
    ones = np.ones((3, 2, 2), np.int16)
    assert repeated_part(ones).tolist() == [1]
    assert repeated_part(np.full((3, 4), -1, np.int16)).tobytes() == b"\xff"
    rows = np.array([[1, 2], [1, 2], [1, 2]], np.int8)
    assert repeated_part(rows).tolist() == [[1, 2]]
    assert repeated_part(np.arange(4)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "options", [{"step": True}, {"weights": "blob"}, {"optimize": "size"}, {"taps": True}]
)
def test_with_other_options(options: dict[str, object]) -> None:
    built = program(3, options=replace(Options(), **options))  # type: ignore[arg-type]
    result = verified(built)
    assert result.exact, result.first_difference


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_warnings(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is missing")
    for built in (spotter(), program(1), program(28)):
        sources = write_sources(built, tmp_path)
        subprocess.run([compiler, *STRICT, "-O2", "-c", *sources], cwd=tmp_path, check=True)
        for name in sources:
            (tmp_path / name).unlink()


def test_a_wrong_window_is_seen() -> None:
    """The outputs are held against the network over its window, not only against the run's own graph."""
    built = spotter()
    assert built.sliding is not None
    other = SpotterNets(5).spotter()
    wrong = replace(built, sliding=replace(built.sliding, window=replace(other, inputs=other.inputs)))
    result = verified(wrong)
    assert not result.exact
    assert result.first_difference is not None
    assert "against the network over its whole window" in result.first_difference.name


def test_options_that_do_not_go_together() -> None:
    with pytest.raises(InputError, match="io=rows cannot be combined with sliding"):
        Options(sliding=1, io="rows")
    with pytest.raises(InputError, match="set the axis with sliding"):
        Options(sliding_step=2)


def test_commands(tmp_path: Path) -> None:
    model = tmp_path / "spotter.mf"
    model.write_text(to_text(SpotterNets(0).spotter()))
    text = succeed("build", model, "-t", "cortex-m4", "--sliding", 1, "-o", tmp_path / "out")
    assert "new frames per run, of 30 in the window" in text
    header = (tmp_path / "out" / "spotter.h").read_text()
    for line in ("WINDOW_FRAMES 30", "RUN_FRAMES 1", "WARMUP_RUNS 30"):
        assert f"#define SPOTTER_{line}\n" in header
    assert "exact" in succeed("verify", model, "--sliding", 1, "--sliding-step", 5)
    assert "30 rows are kept" not in text
    explained = succeed("opt", model, "--passes", "slide_window{axis=1}", "--explain", "slide_window")
    assert "slide_window: %frames: 3 rows are kept, 1 new in each run: 120 bytes" in explained
    assert "got 2" in refuse("build", model, "--sliding", 2)


def test_reports_say_what_is_kept() -> None:
    report = build_report(spotter(), None)
    assert faults(json.loads(to_json(report))) == []
    assert report.sliding is not None and report.sliding.frames == 30
    assert [kept.rows for kept in report.sliding.kept] == [3, 5, 10, 15]
    assert build_report(spotter(options=Options()), None).sliding is None
