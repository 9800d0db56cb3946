"""Databases of measurements, and what builds take from them."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph, explain_kernels
from microfold.errors import InputError
from microfold.kernels.selection.measured import VariantKeys
from microfold.options import OPTIMIZE, Options
from microfold.program import Program
from microfold.tune.costs import load_costs, what_applies
from microfold.tune.database import Database
from microfold.tune.records import Failure, MeasurementRecord, ProgramRecord
from microfold.tune.setting import Setting, simulated_setting
from tests.cli.test_passes import CNN
from tests.command_line import microfold, refuse, succeed
from tests.kernels import graphs

# Few kernels compute it: tuning builds a program for every one of them.
GRAPH = graphs.conv2d_graph(4, 4, 8, 8, (1, 1))
M4 = target.load("cortex-m4")
DEFAULT = Options()
SETTING = simulated_setting(M4, DEFAULT)
BOARD = replace(SETTING, board="nucleo", clock=80_000_000)


def variants() -> list[tuple[str, str, str, float]]:
    """Layer, variant, kernel's name and estimate of all that selection may choose of the only layer."""
    keys = VariantKeys()
    (explained,) = explain_kernels(GRAPH, M4, DEFAULT)
    layer = explained.layer
    return [
        (keys.layer(layer), keys.variant(o.kernel, layer), o.kernel.name, o.kernel.cycles(layer))
        for candidate in explained.candidates
        for o in candidate.offers
    ]


def store(path: Path, setting: Setting, best: str) -> None:
    """Measurements of all variants, of which one takes few cycles."""
    with Database(path, create=True) as database:
        database.add(
            setting,
            [
                MeasurementRecord(layer, key, 100 if key == best else 10_000, 12_000, 3, e)
                for layer, key, _, e in variants()
            ],
        )


def build(path: Path, options: Options = DEFAULT, board: str = "") -> Program:
    return compile_graph(GRAPH, M4, options, costs=load_costs(path, M4, options, board))


def test_order_of_records_does_not_count(tmp_path: Path) -> None:
    records = [MeasurementRecord("layer", f"variant {i % 3}", 10 + i, 20 + i, 1, 7.5) for i in range(9)]
    texts: set[str] = set()
    for number in range(3):
        random.Random(number).shuffle(records)
        with Database(tmp_path / f"{number}.db", create=True) as database:
            for record in records:
                database.add(SETTING, [record])
            texts.add(database.export())
            merged = database.records(SETTING)
    assert len(texts) == 1
    assert merged[0] == MeasurementRecord("layer", "variant 0", 10, 26, 3, 7.5)


def test_records_of_counters_that_stand_still_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Database(path, create=True) as database:
        database.add(SETTING, [MeasurementRecord(layer, key, 0, 0, 3, e) for layer, key, _, e in variants()])
        assert database.settings() == [] == database.records(SETTING)
    assert build(path).measured_on == ""
    store(path, SETTING, variants()[-1][1])
    assert build(path).layers[0].measured_cycles == 100


def test_whatever_is_measured_fastest_is_chosen(tmp_path: Path) -> None:
    estimated = compile_graph(GRAPH, M4, Options())
    found = variants()
    assert len({key for _, key, _, _ in found}) == len(found) > 2
    for number, (_, key, name, cycles) in enumerate(found):
        path = tmp_path / f"{number}.db"
        store(path, SETTING, key)
        program = build(path)
        (layer,) = program.layers
        assert (layer.kernel.name, layer.measured_cycles) == (name, 100)
        assert program.measured_on == "simulated"
        if round(cycles) == estimated.layers[0].estimated_cycles:
            assert layer.estimated_instructions == estimated.layers[0].estimated_instructions


def test_other_settings_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store(path, replace(SETTING, version="0"), variants()[-1][1])
    store(path, replace(SETTING, flags="-O1"), variants()[-1][1])
    assert build(path).measured_on == ""
    assert build(path).layers[0].measured_cycles is None


def test_budgets_hold(tmp_path: Path) -> None:
    """What is measured fastest is not taken where it does not fit."""
    path = tmp_path / "a.db"
    least = compile_graph(GRAPH, M4, Options(optimize="size"))
    for _, key, _, _ in variants():
        store(path, SETTING, key)
    for level in OPTIMIZE:
        options = Options(optimize=level, ram=least.arena.size)
        assert build(path, options).arena.size <= least.arena.size
    options = Options(flash=least.flash + 200)
    assert build(path, options).flash <= least.flash + 200


def test_boards_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    keys = [key for _, key, _, _ in variants()]
    store(path, SETTING, keys[0])
    store(path, BOARD, keys[-1])
    assert build(path).measured_on == "nucleo@80000000/warm"  # rather than the simulated one
    assert build(path, board="simulated").measured_on == "simulated"
    store(path, replace(BOARD, clock=4_000_000), keys[0])
    with pytest.raises(InputError, match=r"nucleo@4000000/warm.*choose one with --board"):
        build(path)
    assert build(path, board="nucleo@80000000").layers[0].measured_cycles == 100
    with pytest.raises(InputError, match=r"measurements from disco for a build for cortex-m4, balanced"):
        build(path, board="disco")


def test_what_is_no_database(tmp_path: Path) -> None:
    text, other, damaged = (tmp_path / name for name in ("text.db", "other.db", "damaged.db"))
    text.write_text("a database\n" * 100, encoding="utf-8")
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE records (a)")
    store(damaged, SETTING, "")
    data = damaged.read_bytes()
    damaged.write_bytes(data[: len(data) // 2])
    for path in (text, other, damaged):
        message = refuse("build", CNN, "-t", "cortex-m4", "-o", tmp_path, "--database", path)
        assert str(path) in message
        assert len(message.splitlines()) == 1
    assert "does not exist" in refuse("kernels", CNN, "--database", tmp_path / "none.db")
    assert "--database" in refuse("kernels", CNN, "--board", "nucleo")


def test_newer_formats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store(path, SETTING, "")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 3")
    with pytest.raises(InputError, match="its format is 3"):
        build(path)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE records SET cycles = 'many'",
            "cycles in records must be a whole number from 0; it is 'many'",
        ),
        ("UPDATE records SET estimate = 9e999", "estimate in records must be a finite number"),
        ("UPDATE records SET estimate = -1.0", "estimate in records must be a finite number"),
        ("UPDATE records SET variant = x'00' WHERE rowid = 1", "variant in records must be a text"),
        ("UPDATE records SET clock = 'x'", "clock in records must be a whole number"),
        ("UPDATE programs SET ram = 1.5", "ram in programs must be a whole number"),
        ("UPDATE programs SET code = x'00'", "code in programs must be a text"),
        ("UPDATE programs SET trace = '[]'", "a trace must be a JSON object of texts"),
        ("UPDATE programs SET trace = '{\"a\": 1}'", "a trace must be a JSON object of texts"),
        (f"UPDATE programs SET trace = '{'[' * 100_000}'", "a trace must be a JSON object of texts"),
        ("UPDATE failures SET layer = x'00'", "layer in failures must be a text"),
        ("CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM programs; END", "it has more than"),
        ("CREATE VIEW other AS SELECT 1", "it has more than"),
    ],
)
def test_whatever_else_a_database_has_is_refused(tmp_path: Path, statement: str, message: str) -> None:
    path = tmp_path / "a.db"
    store(path, SETTING, "")
    with Database(path, create=True) as database:
        database.add(SETTING, [ProgramRecord("p", "", "c", 1, 1, 1), Failure("p", "l", "v", "why")])
    with sqlite3.connect(path) as connection:
        connection.execute(statement)

    with pytest.raises(InputError, match=message):
        Database(path)


def test_views_over_endless_queries_do_not_run(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store(path, SETTING, "")
    with sqlite3.connect(path) as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(records)")]
        columns = ", ".join(f"x AS {name}" for name in names)
        connection.execute("DROP TABLE records")
        connection.execute(
            "CREATE VIEW records AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
            f"SELECT {columns} FROM n"
        )
    with pytest.raises(InputError, match="it has more than"):
        build(path)


def test_steps_of_a_query_are_limited(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store(path, SETTING, "")
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
    with (
        Database(path) as database,
        pytest.raises(InputError, match="interrupted"),
        database._query(endless) as rows,  # pyright: ignore[reportPrivateUsage]
    ):
        rows.fetchone()


def test_reading_does_not_write(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store(path, SETTING, "")
    with Database(path) as database, pytest.raises(InputError, match="readonly"):
        database.forget_failures(SETTING, "p")


def test_databases_of_kernels_alone_are_taken_over(tmp_path: Path) -> None:
    """The first format has one table."""
    path = tmp_path / "a.db"
    (_, key, _, _), *_ = variants()
    store(path, SETTING, key)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE programs")
        connection.execute("DROP TABLE failures")
        connection.execute("PRAGMA user_version = 1")
    assert build(path).layers[0].measured_cycles == 100
    with Database(path) as database:
        assert database.programs(SETTING, "none") == []


@pytest.mark.parametrize(
    ("words", "build"),
    [
        (("-t", "cortex-m4", "--optimize", "speed"), "cortex-m4, speed"),
        (("-t", "cortex-m7"), "cortex-m7, balanced"),
    ],
)
def test_a_database_that_does_not_apply_is_not_passed_over(
    tmp_path: Path, words: tuple[str, ...], build: str
) -> None:
    path = tmp_path / "a.db"
    store(path, BOARD, "")
    for command in (("kernels",), ("build", "-o", tmp_path / "c")):
        result = microfold(*command, CNN, *words, "--database", path, "--json")
        assert result.status == 0
        assert result.err == (
            f"microfold: no record in {path} applies to a build for {build}; it has some for cortex-m4, "
            "balanced, nucleo@80000000/warm: kernels are selected by estimates\n"
        )
    assert microfold("kernels", CNN, "-t", "cortex-m4", "--database", path).err == ""


def test_what_differs_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Database(path, create=True):
        pass
    assert "it has none" in what_applies(path, M4, DEFAULT)
    store(path, replace(BOARD, version="0"), "")
    assert f"measured by microfold 0, not {BOARD.version}" in what_applies(path, M4, DEFAULT)
    store(path, replace(BOARD, flags="cc -O1"), "")
    assert f"compiled by `cc -O1`, not `{BOARD.flags}`" in what_applies(path, M4, DEFAULT)


@pytest.mark.slow
def test_reports_say_what_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Database(path, create=True) as database:
        database.add(SETTING, [])
    plain = json.loads(succeed("build", CNN, "-t", "cortex-m4", "-o", tmp_path / "c", "--json"))
    assert plain["measured_on"] is None
    rows = json.loads(succeed("kernels", CNN, "-t", "cortex-m4", "--json", "--database", path))
    assert {v["measured_cycles"] for r in rows for c in r["candidates"] for v in c["variants"]} == {None}
