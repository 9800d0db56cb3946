"""Files that once compiled to something else, or took a machine down: refused at once, with the reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

FOUND = Path(__file__).resolve().parents[1] / "models" / "found"
MEGABYTES = 500  # beside what the modules take
SECONDS = 5  # a guard against hangs: a refusal takes a few milliseconds

# By the first pattern that a file's name matches: what the refusal says.
REASONS = {
    r"avgpool_padding_enum5": r"padding must be one of 0 \(SAME\), 1 \(VALID\); it is 5",
    r"conv_int8_padding_enum2": r"padding must be one of 0 \(SAME\), 1 \(VALID\); it is 2",
    r"bomb_(avgpool_filter|maxpool_filter|conv_dilation)": r"a window can cover at most \d+ elements",
    r"bomb_": r"a tensor has at most \d+ elements; \[1, 16384, 8192, 6\] has 805306368",
    r"conv_f32_inf_weights": r"a constant must not contain NaN; 2 of its elements are NaN",
    r"conv_int8_dilation_minus2": r"dilations must be positive; they are 1 and -2",
    r"(conv|dw|dw_m2s2)_int8_dilation": r"a window can cover at most \d+ elements",
    r"(fc_int16_zero_point|int16_zp_)": r"int16 zero points must be 0; it has [15]",
    r"pack_values_count": r"values_count must be the number of its inputs, 2; it is -1",
    r"split_num_splits": r"num_splits must be the number of its outputs, 3; it is 8",
    r"unpack_num": r"num must be the number of its outputs, 6; it is 2",
    r"softmax_int16": r"beta must be a finite float32; it is inf",
    r"sub_int8_output_scale": r"a multiplier made of scales must be in \[0, 1\); it is 4\.48\d+e\+09",
}
NAMES = sorted(path.name for path in FOUND.glob("*.tflite"))

_RUN = """
import json, resource, sys, time
from pathlib import Path
from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import MicrofoldError
from microfold.frontend.tflite import load

pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for name in sys.argv[2:]:
    start = time.monotonic()
    try:
        compile_graph(load(name), target.load("cortex-m4"))
        outcome = "compiled"
    except MicrofoldError as error:
        outcome = str(error)
    except BaseException as error:
        outcome = f"{type(error).__name__}: {error}"
    print(json.dumps([Path(name).name, outcome, time.monotonic() - start]), flush=True)
"""


@cache
def outcomes() -> dict[str, tuple[str, float]]:
    """What comes of each file, and in how many seconds: in one process of limited memory."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("only Linux tells how much memory a process has")
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(MEGABYTES), *(str(FOUND / name) for name in NAMES)],
        capture_output=True, text=True, timeout=SECONDS * len(NAMES), check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: (outcome, seconds) for name, outcome, seconds in rows}


@pytest.mark.parametrize("name", NAMES)
def test_refused_at_once(name: str) -> None:
    outcome, seconds = outcomes()[name]
    reason = next(reason for pattern, reason in REASONS.items() if re.match(pattern, name))
    assert re.search(reason, outcome)
    assert outcome.startswith(f"{name} cannot be compiled: 1 problem\n")
    assert seconds < SECONDS


def test_every_reason_has_a_file() -> None:
    used = {next(pattern for pattern in REASONS if re.match(pattern, name)) for name in NAMES}
    assert used == set(REASONS)
