"""Objects of generated C: GCC and two Clangs, all optimisation levels, with and without frame pointers."""

from __future__ import annotations

from pathlib import Path

import pytest

from microfold import target
from tests.codegen import matrix, sweep
from tests.needs import need_tools
from tests.sampling import sampled

# Between them they have most kinds of assembly: int8, int4, int16 and float16, convolutions of all kinds.
NAMES = (
    "dscnn_bn_int8",
    "preact_bn_int8",
    "cnn_aeq_w4a8",
    "nchw_like_int16x8",
    "dscnn_bn_f16",
    "stream_int8",
)
PATHS = [sweep.MODELS / "made" / f"{name}.tflite" for name in NAMES]
CORES = (
    "cortex-m55",
    "cortex-m4",
    "cortex-m0plus",
    "cortex-m3",
    "cortex-m7",
    "cortex-m33",
    "cortex-m85",
    "host",
)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("core", sampled(CORES, len(CORES)))
def test_some_models(core: str) -> None:
    """Compile each program in some of the ways; `python -m tests.codegen.sweep --objects` takes all."""
    need_tools("gcc", *matrix.TOOLS)
    loaded = target.load(core)
    ways = list(matrix.commands(loaded))
    said: list[str] = []
    for number, source in enumerate(sweep.sources(PATHS, loaded, ["balanced"])):
        said += sweep.check_objects(source, ways[number % sweep.TURNS :: sweep.TURNS])
    assert not said, "\n".join(said)


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
def test_all_targets_and_levels() -> None:
    need_tools("gcc", *matrix.TOOLS)
    assert sweep.main(["--objects", "--every", "80"]) == 0


def test_complaints(tmp_path: Path) -> None:
    """Report errors and compilers that take too long, and nothing else."""
    need_tools("gcc")
    files = {"right.c": "int right(void) { return 0; }\n", "wrong.c": "int wrong(void) { return x; }\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert not matrix.compile_objects(("gcc",), ["right.c"], tmp_path)
    assert "undeclared" in matrix.compile_objects(("gcc",), ["right.c", "wrong.c"], tmp_path)
    assert "exit -9" in matrix.compile_objects(("sh", "-c", "while :; do :; done"), ["right.c"], tmp_path, 1)


def test_statements() -> None:
    files = {
        "a.c": '__asm__ volatile("nop\\n"\n   "dmb" : : : "memory");\n__asm__("" : "+r"(y));',
        "a.txt": '__asm__("x");',
    }
    assert matrix.statements(files) == {
        '__asm__ volatile("nop\\n" "dmb" : : : "memory");',
        '__asm__("" : "+r"(y));',
    }
