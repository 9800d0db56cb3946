"""Stored reports with damage here and there: refused, or drawn, and never anything else."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from microfold import target
from microfold.cli.common import to_json
from microfold.compiler import compile_file
from microfold.errors import InputError
from microfold.reporting.data import build_report
from microfold.reporting.page.page import collect_page, render_page
from microfold.reporting.profile import DeviceProfile
from microfold.reporting.stored import read_report
from tests.reporting.page.html_reader import read_html
from tests.reporting.page.pages import MADE, ROOT

ROUNDS = 30
VALUES = (0, 1, -1, 1 << 61, -(1 << 61), 1 << 80, None, "", "x", [], {}, True, 1.5, "\ud800")


def whole() -> Any:
    """A report with states, and with what was pruned from another model."""
    found: list[Any] = [
        json.loads(to_json(build_report(compile_file(path, target.load("cortex-m4")), None)))
        for path in (MADE / "stream_int8.tflite", ROOT / "examples" / "sine" / "sine.tflite")
    ]
    return found[0] | {"pruned": found[1]["pruned"]}


def places(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if way:
        yield way
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        if key != "refused":  # long, and all alike
            yield from places(value, (*way, key))


def test_damage() -> None:
    report = whole()
    ways = list(places(report))
    rng = random.Random(8)
    drawn = refused = 0
    for _ in range(ROUNDS):
        damaged = copy.deepcopy(report)
        *way, last = rng.choice(ways)
        part = damaged
        for key in way:
            part = part[key]
        if isinstance(part, list) and rng.random() < 0.5:
            del part[last]
        else:
            alike = [value for value in VALUES if type(value) is type(part[last])]
            part[last] = rng.choice(alike if alike and rng.random() < 0.5 else VALUES)
        try:
            read = read_report(damaged, "damaged.json")
        except InputError:
            refused += 1
            continue
        ticks = dict.fromkeys(range(len(read.layers)), 1 << 63)
        page = collect_page(read, other=("other.json", read), profile=DeviceProfile("ticks.json", ticks))
        read_html(render_page(page))
        drawn += 1
    assert min(drawn, refused) > ROUNDS / 6
