"""Text forms of models with a few words changed: each compiles, or is refused with a message."""

from __future__ import annotations

import random
import re
import warnings
from pathlib import Path

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import MicrofoldError
from microfold.frontend import tflite
from microfold.ir.graph import verify
from microfold.ir.text import parse, to_text
from microfold.ir.tree import to_tree

SMALL = 12_000  # characters of text
WORDS = [
    *("none", "true", "inf", "nan", "-1", "0", "2", "3", "255", "65536", "99999999999999999999", "1e30"),
    *(
        "%x",
        "int8",
        "int32",
        "float32",
        "clip",
        "reshape",
        "q(0.1, 3)",
        "()",
        "(1, 1)",
        "(0, 0)",
        "[]",
        '"x"',
    ),
    *("| clip() {minimum=0.0, maximum=1.0}", "| add(%x)"),
]


@pytest.fixture(scope="module")
def texts(made_models: Path) -> list[str]:
    found: list[str] = []
    for path in sorted((made_models / "ops").glob("*.tflite"))[::4]:
        try:
            text = to_text(tflite.load(path))
        except MicrofoldError:
            continue
        if len(text) < SMALL:
            found.append(text)
    assert len(found) > 30
    return found


def damage(text: str, rng: random.Random) -> str:
    """One to three words replaced, dropped or added."""
    lines = text.splitlines()
    for _ in range(rng.randint(1, 3)):
        index = rng.randrange(len(lines))
        line = lines[index]
        words = list(re.finditer(r"[-\w.]+|%[\w./;:-]+|[(){}\[\],|=]", line))
        if words:
            word = rng.choice(words)
            by = rng.choice([rng.choice(WORDS), rng.choice(WORDS), rng.choice(words).group(), ""])
            lines[index] = line[: word.start()] + by + line[word.end() :]
        if rng.random() < 0.1:
            lines[index] += f" {rng.choice(WORDS)}"
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(3))
def test_no_other_exception(texts: list[str], seed: int) -> None:
    rng, host = random.Random(seed), target.load("host")
    compiled = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numbers beyond their types
        for _ in range(1000):
            text = damage(rng.choice(texts), rng)
            try:
                graph = parse(text)
                verify(graph)
                to_tree(graph)
                compile_graph(graph, host)
            except MicrofoldError:
                continue
            except Exception:
                print(text)
                raise
            compiled += 1
    assert compiled > 15
