"""Figures of models that pages of the documentation state: recorded in one file, rendered into tables.

A figure belongs to a command line, which is what is written behind `microfold bench`, e.g.
``kws_int8 --target cortex-m4``. Tables ask for figures by command and name. Whatever they ask for is
measured, so that a page cannot have a figure that no test holds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from microfold.cli.common import compile_model
from microfold.cli.pass_options import PassOptions
from microfold.cli.rebuild import parse_command
from microfold.simulate.program import simulator
from microfold.verification.benchmark.suite import BenchmarkRow, load_peers
from microfold.verification.measure import measure
from microfold.verification.verify import input_sets
from tests.counts import EXAMPLES

FILE = Path(__file__).with_name("figures.json")
# Figures that only running the program gives.
_EXECUTED = ("instructions", "cycles")


@dataclass
class Figures:
    """Recorded figures.

    Attributes:
        recorded: command to name to figure.
        asked: the names that were asked for, by command.
    """

    recorded: Mapping[str, Mapping[str, int]]
    asked: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def __call__(self, command: str, name: str) -> int:
        """Return a figure; 0 if it is not recorded."""
        self.asked[command].add(name)
        return self.recorded.get(command, {}).get(name, 0)


def load() -> Figures:
    """Read what is recorded."""
    return Figures(json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {})


def save(figures: Mapping[str, Mapping[str, int]]) -> None:
    """Write figures, a command on a line."""
    lines = [f"{json.dumps(command)}: {json.dumps(figures[command])}" for command in sorted(figures)]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def measured(model: Path, command: str, names: set[str]) -> dict[str, int]:
    """Compile, and run where that is asked for.

    Args:
        model: the file of the command's first word.
        names: of the figures.
    """
    options = command.partition(" ")[2]
    target, code, passes = parse_command(f"microfold build {model.name} {options}")
    program = compile_model(model, target, code, passes or PassOptions(), quiet=True, explain=False)
    sizes = measure(program)
    assert sizes is not None and sizes.library is not None and sizes.stack is not None
    found = {
        "macs": program.macs,
        "arena": program.arena.size,
        "state": program.state_size,
        "stack": sizes.stack,
        "weights": program.weight_bytes,
        "code": sizes.code,
        "library": sizes.library,
    }
    if names & {*_EXECUTED}:
        # The input set that `microfold bench` takes.
        calls = input_sets([buffer.type for buffer in program.inputs], 4)[3:]
        with simulator(program) as machine:
            (found["instructions"],) = machine.run(calls, layers=False).instructions
            if "cycles" in names:
                core = program.target.cycle_model
                assert core is not None
                (found["cycles"],) = machine.trace(calls, core, only_calls=True).total
    return {name: found[name] for name in sorted(names)}


def model_file(command: str, elsewhere: Sequence[Path]) -> Path | None:
    """Return the file of a command's model, an example or one of a folder; None if it is missing."""
    name = command.split()[0]
    bundled = EXAMPLES / name / f"{name}.tflite"
    return bundled if bundled.is_file() else next((path for path in elsewhere if path.stem == name), None)


# ---- tables ------------------------------------------------------------------------------------------------

_TINY = ("vww_int8", "ic_int8", "kws_int8", "ad_int8", "sww_int8")
_SPEED = " --optimize speed"


def _row(*cells: object) -> str:
    return f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else str(cell) for cell in cells)} |"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return "\n".join([_row(*head), f"|{'---|' * len(head)}", *(_row(*row) for row in rows)])


def _names() -> list[str]:
    return ["digits", *(name.removesuffix("_int8") for name in _TINY)]


def compared_with_tflm(figures: Figures) -> str:
    """Return the table of the README: our figures and those of TFLM, one inference on a Cortex-M4."""
    (tflm,) = (peer for peer in load_peers() if peer.name.startswith("TFLM"))
    kinds = {
        "instructions": "instructions",
        "RAM: arena, bytes": "arena",
        "flash: code, bytes": "code",
    }
    rows: list[list[object]] = []
    for label, kind in kinds.items():
        theirs = tflm.figures[kind]["cortex-m4"]
        rows.append([label, tflm.name, *(theirs[model] for model in _TINY)])
        rows.append(["", "**microfold**", *(figures(f"{model} --target cortex-m4", kind) for model in _TINY)])
    return _table(["", "", *(name.removesuffix("_int8") for name in _TINY)], rows)


def instructions_per_core(figures: Figures) -> str:
    """Return the table of instructions: one run of each model on each core."""
    rows: list[list[object]] = []
    for core in ("m0plus", "m3", "m4", "m4 speed", "m7", "m33", "m55"):
        core, _, level = core.partition(" ")
        options = f" --target cortex-{core}{_SPEED if level else ''}"
        label = f"cortex-{core}{', `--optimize speed`' if level else ''}"
        rows.append([label, *(figures(model + options, "instructions") for model in ("digits", *_TINY))])
    return _table(["instructions of one run", *_names()], rows)


def cycles_per_core(figures: Figures) -> str:
    """Return the table of cycles, estimated from the executed instructions."""
    rows = [
        [core, error, *(figures(f"{model} --target {core}", "cycles") for model in ("digits", *_TINY))]
        for core, error in (("cortex-m4", "5 %"), ("cortex-m7", "30 %"), ("cortex-m55", "20 %"))
    ]
    return _table(["estimated cycles", "error up to", *_names()], rows)


def bytes_on_one_core(figures: Figures) -> str:
    """Return the table of sizes on a Cortex-M4."""
    kinds = {
        "RAM: arena": "arena",
        "RAM: stack": "stack",
        "flash: weights": "weights",
        "flash: code": "code",
        "flash: library functions": "library",
        "MACs": "macs",
    }
    rows = [
        [label, *(figures(f"{model} --target cortex-m4", kind) for model in ("digits", *_TINY))]
        for label, kind in kinds.items()
    ]
    return _table(["bytes, cortex-m4", *_names()], rows)


def benchmarks(figures: Figures) -> str:
    """Figures of `microfold bench --suite` beside those of others."""
    kinds = {
        "Instructions": "instructions",
        "Estimated cycles": "cycles",
        "Arena": "arena",
        "Code": "code",
    }
    parts: list[str] = []
    for speed in (False, True):
        for title, kind in kinds.items():
            rows = [row for row in _compared(figures, kind, speed=speed) if row.peers]
            where = ", cortex-m4, `--optimize speed`" if speed else ""
            parts += [f"### {title}{where}", "", *_comparison(rows), ""]
    return "\n".join(parts).strip()


def _compared(figures: Figures, kind: str, *, speed: bool) -> Iterator[BenchmarkRow]:
    """Our figures for what a peer has one for, in the order of the peers' tables."""
    figure = "estimated_cycles" if kind == "cycles" else kind
    peers = load_peers()
    known = [
        (target, model)
        for peer in peers
        for target, models in peer.figures[figure].items()
        for model in models
    ]
    for target, model in dict.fromkeys(known):
        if speed and target != "cortex-m4":
            continue
        ours = figures(f"{model} --target {target}{_SPEED if speed else ''}", kind)
        theirs = {peer.name: peer.figure(figure, target, model) for peer in peers}
        yield BenchmarkRow(
            target, model, figure, ours, {name: n for name, n in theirs.items() if n is not None}
        )


def _comparison(rows: Sequence[BenchmarkRow]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row.peers))
    head = ["target", "model", "microfold", *(text for name in names for text in (name, "times"))]
    lines = [_row(*head), f"|---|---|{'---:|' * (len(head) - 2)}"]
    for row in rows:
        cells: list[object] = [row.target, row.model, row.ours]
        for name in names:
            theirs = row.peers.get(name)
            cells += ["", ""] if theirs is None else [theirs, f"{theirs / max(row.ours, 1):.2f}"]
        lines.append(_row(*cells))
    return lines


def sliding(figures: Figures) -> str:
    """A network over its window, and for each new frame."""
    on = {core: f"sww_int8 --target cortex-{core}" for core in ("m4", "m0plus", "m55")}
    kinds = (
        ("MACs", "m4", "macs"),
        ("instructions on a Cortex-M4", "m4", "instructions"),
        ("on a Cortex-M0+", "m0plus", "instructions"),
        ("on a Cortex-M55", "m55", "instructions"),
        ("arena, bytes, on a Cortex-M4", "m4", "arena"),
        ("state, bytes", "m4", "state"),
    )
    rows = [
        [label, figures(on[core], kind), figures(f"{on[core]} --sliding 1", kind)]
        for label, core, kind in kinds
    ]
    return _table(["", "over its window", "for each frame, `--sliding 1`"], rows)


def rows_of_inputs(figures: Figures) -> str:
    """Networks whose input comes row by row."""
    rows: list[list[object]] = []
    for label, model in (
        ("MLPerf Tiny visual wake words, 96 x 96 x 3", "vww_int8"),
        ("person detection, 96 x 96 x 1", "person_detect"),
        ("MLPerf Tiny image classification, 32 x 32 x 3", "ic_int8"),
        ("MLPerf Tiny keyword spotting, 49 x 10", "kws_int8"),
    ):
        whole, by_rows = (f"{model} --target cortex-m4 --io {io}" for io in ("caller", "rows"))
        more = figures(by_rows, "instructions") / max(figures(whole, "instructions"), 1) - 1
        rows.append([label, figures(whole, "arena"), figures(by_rows, "arena"), f"+ {100 * more:.0f} %"])
    return _table(["", "`--io caller`", "`--io rows`", "instructions"], rows)


def limits(figures: Figures) -> str:
    """What more RAM and flash save."""
    rows = [
        [
            model + (f" `{options}`" if options else ""),
            *(
                figures(f"{model} --target cortex-m4 {options}".strip(), n)
                for n in ("arena", "weights", "code", "cycles")
            ),
        ]
        for model, options in (
            ("ic_int8", ""),
            ("ic_int8", "--ram 34320 --flash 110000"),
            ("vww_int8", ""),
            ("vww_int8", "--ram 41000 --flash 60000"),
        )
    ]
    return _table(["cortex-m4, executed", "arena", "constants", "code", "estimated cycles"], rows)


# Page, name of the table in it, and what renders it.
TABLES: Sequence[tuple[str, str, Callable[[Figures], str]]] = (
    ("README.md", "compared", compared_with_tflm),
    ("docs/figures.md", "instructions", instructions_per_core),
    ("docs/figures.md", "cycles", cycles_per_core),
    ("docs/figures.md", "bytes", bytes_on_one_core),
    ("docs/benchmarks.md", "suite", benchmarks),
    ("docs/sliding.md", "sww", sliding),
    ("docs/rows.md", "inputs", rows_of_inputs),
    ("docs/kernels.md", "limits", limits),
)


def asked() -> dict[str, set[str]]:
    """Commands whose figures the tables state, with their names."""
    figures = load()
    for _, _, render in TABLES:
        render(figures)
    return dict(figures.asked)
