"""Generated C is silent under strict warnings: gcc and clang, all cores; and loud where it must be."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.names import HELPERS, names_in
from microfold.codegen.requirements import closure_names, helper_names, helpers
from microfold.compiler import compile_file, compile_graph
from microfold.options import Options
from microfold.program import Program
from microfold.support.resources import target_dir
from tests.codegen import sweep
from tests.codegen.builds import STRICT, compile_sample, sample_graphs, write_sources
from tests.counts import MODELS
from tests.kernels.choice import prefer
from tests.kernels.graphs import conv2d_graph
from tests.needs import need_tools
from tests.sampling import quick, sampled

SOME = ["cortex-m4", "cortex-m55", "cortex-m3", "cortex-m0plus"]
PATHS = sorted((sweep.MODELS / "made").rglob("*.tflite"))


def compile_output(command: list[str], folder: Path) -> str:
    """What a compiler says; it must succeed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return done.stderr


def silent(command: list[str], folder: Path) -> None:
    said = compile_output(command, folder)
    assert not said, said[:4000]


def check_core(programs: list[Program], core: str, folder: Path) -> None:
    """Compiles for a core with gcc, and with clang for the same instructions."""
    sources = [name for program in programs for name in write_sources(program, folder)]
    flags = target.load(core).cpu_flags
    silent(["arm-none-eabi-gcc", *flags, *STRICT, "-O2", "-c", *sources], folder)
    command = ["clang", "--target=arm-none-eabi", *flags, *sweep.arm_headers(), *STRICT]
    silent([*command, "-fsyntax-only", *sources], folder)


def samples(core: str) -> list[Program]:
    return [compile_sample(name, graph, core) for name, graph in sample_graphs().items()]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("optimize", quick(["-O0", "-O3"]))
def test_host(compiler: str, optimize: str, tmp_path: Path) -> None:
    need_tools(compiler)
    sources = [name for program in samples("host") for name in write_sources(program, tmp_path)]
    silent([compiler, *STRICT, optimize, "-c", *sources], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "core", sampled(["cortex-m4", "cortex-m0plus", "cortex-m3", "cortex-m33-nofp", "cortex-m55"], 4)
)
def test_cores(core: str, tmp_path: Path) -> None:
    need_tools("arm-none-eabi-gcc", "clang")
    check_core(samples(core), core, tmp_path)


@pytest.mark.parametrize("kernel", ["s8_conv2d__dsp_winograd_2x2", "s8_conv2d__dsp_winograd_4x4"])
def test_constants_of_structs_with_arrays(
    kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_tools("arm-none-eabi-gcc", "clang")
    prefer(monkeypatch, kernel)
    graph = conv2d_graph(16, 16, 16, 16, (3, 3), padding=((1, 1), (1, 1)))
    program = compile_graph(graph, target.load("cortex-m4"), Options(optimize="speed"), name="winograd")
    assert program.layers[0].kernel.name == kernel
    check_core([program], "cortex-m4", tmp_path)


@pytest.mark.parametrize("optimize", quick(["size", "speed"]))
def test_sums_with_late_loads(optimize: str, tmp_path: Path) -> None:
    """Clang warns of helpers that only a comment names."""
    need_tools("arm-none-eabi-gcc", "clang")
    model = sweep.MODELS / "made" / "cnn_int16x8.tflite"
    program = compile_file(model, target.load("cortex-m33"), Options(optimize=optimize))
    check_core([program], "cortex-m33", tmp_path)


def test_comments_use_no_helpers() -> None:
    assert not helpers(["/* As mf_sum_4x2_int16_4. */"])
    assert helpers(["mf_sum_4x2_int16_4(&sums, weights, patches, end);"])


def test_comments_of_helpers_name_what_is_there() -> None:
    """A comment may speak of the helper itself and of those that are emitted with it."""
    for name in helper_names():
        text = "\n".join(each.text for each in helpers([name]))
        assert names_in(text, HELPERS) & {*helper_names()} <= closure_names([name]), name


@pytest.mark.slow
@pytest.mark.parametrize("core", sampled(SOME, len(SOME)))
def test_some_models(core: str) -> None:
    """What is new in a part of the bundled models; `python -m tests.codegen.sweep` compiles all."""
    need_tools("gcc", "clang", "arm-none-eabi-gcc")
    number = SOME.index(core)
    level = list(sweep.LEVELS)[number % len(sweep.LEVELS)]
    _, said = sweep.sweep(PATHS[number::72], [target.load(core)], [level])
    assert not said, "\n".join(said)


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
def test_all_targets_and_levels() -> None:
    """Some of the bundled models; `python -m tests.codegen.sweep` takes all of them, and much longer."""
    need_tools("gcc", "clang", "arm-none-eabi-gcc")
    assert sweep.main(["--every", "80"]) == 0


def test_sweep_finds_what_is_new() -> None:
    """A second model of the same layers with other numbers brings nothing."""
    core = target.load("host")
    model = sweep.MODELS / "made" / "cnn_int8.tflite"
    first, again = (sweep.generate(model, core, "balanced") for _ in range(2))
    assert first is not None and again is not None and first.units == again.units
    assert [s.label for s in sweep.sources([model] * 2, core, ["balanced"])] == [first.label]


def test_targets_with_the_same_features_share_their_code(tmp_path: Path) -> None:
    copy = tmp_path / "copy.toml"
    text = (target_dir() / "cortex-m55.toml").read_text(encoding="utf-8")
    copy.write_text(text.replace('name = "cortex-m55"', 'name = "copy"'), encoding="utf-8")
    names = [[core.name for core in cores] for cores in sweep.groups(["cortex-m55", "cortex-m85", str(copy)])]
    assert names == [["cortex-m55", "copy"], ["cortex-m85"]]


@pytest.fixture
def fpu_code(tmp_path: Path) -> tuple[Program, list[str]]:
    need_tools("arm-none-eabi-gcc")
    program = compile_file(MODELS["digits"], target.load("cortex-m4"))
    return program, write_sources(program, tmp_path)


@pytest.mark.slow
def test_a_missing_fpu_is_told(fpu_code: tuple[Program, list[str]], tmp_path: Path) -> None:
    program, sources = fpu_code
    build = ["arm-none-eabi-gcc", *program.target.cpu_flags, "-std=c99", "-O2", "-c", *sources]
    silent(build, tmp_path)
    said = compile_output([*build, "-mfloat-abi=soft"], tmp_path)
    assert "warning" in said and "generated for a core with an FPU" in said
    silent([*build, "-mfloat-abi=soft", "-DMF_NO_FPU"], tmp_path)


def test_missing_instructions_are_an_error(fpu_code: tuple[Program, list[str]], tmp_path: Path) -> None:
    command = ["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb", "-std=c99", "-c", *fpu_code[1]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "requires DSP instructions" in done.stderr
