"""Database of measurements: an SQLite file with a table for each class of `records`.

Adding a record twice merges it: minimum and maximum cycles, and the sum of the runs. Therefore a database
does not depend on the order of the measurements. Records with 0 cycles, from a counter that did not count,
are skipped when records are read. Later measurements replace them.

A database is not trusted. Its schema must be exactly the one that is created here, so that no foreign view,
trigger or expression runs. The steps of each statement are limited, linearly in the size of the file. Every
value is checked against the type of its field when the file is opened.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from microfold.errors import InputError
from microfold.kernels.selection.measured import CallCost, MeasuredCosts
from microfold.passes.choices import trace_of
from microfold.tune.records import Failure, MeasurementRecord, ProgramRecord
from microfold.tune.setting import Setting

# Identifies a database of microfold (SQLite's `application_id`): "mfld".
APPLICATION = 0x6D666C64
FORMAT = 2
# Format with the first table only.
_FIRST_FORMAT = 1
_SECONDS = 10.0  # time limit to wait for another writing process
# Maximum steps of SQLite's virtual machine per statement: a constant, plus steps per byte of the file. A row
# takes about 60 steps and has at least about 20 bytes; the rest is reserve.
_LEAST_STEPS, _STEPS_PER_BYTE = 1_000_000, 10
_STEPS_PER_CALL = 10_000  # between two calls of the handler that counts them


class _Table(Struct, frozen=True):
    """Table whose rows belong to settings.

    Attributes:
        key: names of the fields that identify a row within a setting.
        merge: SQL that merges the other fields when a row is added twice.
        counted: SQL condition that a row must meet to be read.
    """

    name: str
    row: type[Struct]
    key: tuple[str, ...]
    merge: str
    counted: str = "TRUE"

    @property
    def fields(self) -> tuple[str, ...]:
        return self.row.__struct_fields__

    @property
    def columns(self) -> tuple[str, ...]:
        return (*_SETTING, *self.fields)

    @property
    def identity(self) -> str:
        return ", ".join((*_SETTING, *self.key))

    @property
    def declaration(self) -> str:
        """Statement that creates the table, as SQLite stores it."""
        columns = ", ".join(f"{name} {_TYPES.get(name, 'TEXT')} NOT NULL" for name in self.columns)
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({self.identity}))"


_SETTING = Setting.__struct_fields__
_TYPES = dict.fromkeys(("clock", "cycles", "slowest", "runs", "ram", "flash"), "INTEGER") | {
    "estimate": "REAL"
}
_IS_VALUE: Mapping[str, Callable[[object], bool]] = {
    "TEXT": lambda value: isinstance(value, str),
    "INTEGER": lambda value: isinstance(value, int) and value >= 0,
    "REAL": lambda value: isinstance(value, float) and math.isfinite(value) and value >= 0,
}
_DESCRIBED = {"TEXT": "a text", "INTEGER": "a whole number from 0", "REAL": "a finite number from 0"}
_RECORDS = _Table(
    "records",
    MeasurementRecord,
    ("layer", "variant"),
    "cycles = CASE WHEN cycles > 0 THEN min(cycles, excluded.cycles) ELSE excluded.cycles END"
    ", slowest = max(slowest, excluded.slowest)"
    ", runs = runs + excluded.runs, estimate = excluded.estimate",
    "cycles <> 0",
)
_PROGRAMS = _Table(
    "programs",
    ProgramRecord,
    ("program", "trace", "code"),
    "cycles = min(cycles, excluded.cycles), ram = excluded.ram, flash = excluded.flash",
)
_FAILURES = _Table("failures", Failure, ("program", "layer", "variant"), "reason = excluded.reason")
_TABLES = (_RECORDS, _PROGRAMS, _FAILURES)


class Database:
    """Open database, a context manager.

    Args:
        create: whether to open the file for writing, and to create it if it is missing.

    Raises:
        InputError: the file is missing, or is not a database of microfold.
    """

    def __init__(self, path: Path, *, create: bool = False):
        self.path = path
        if not create and not path.is_file():
            raise InputError(
                f"a database must be a file that `microfold tune` has written; {path} does not exist"
            )
        uri = f"{path.absolute().as_uri()}?mode={'rwc' if create else 'ro'}"
        with self._explained():
            self._connection = sqlite3.connect(uri, timeout=_SECONDS, uri=True)
        try:
            self._tables = self._check(create)
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise InputError(f"the database {self.path} cannot be used: {error}") from None
        except (sqlite3.DatabaseError, OverflowError) as error:
            raise self._foreign(str(error)) from None

    def _foreign(self, why: str) -> InputError:
        return InputError(
            f"{self.path} is not a `microfold tune` database, or it is damaged "
            f"({why}): pass another file, or delete it and measure again"
        )

    @contextlib.contextmanager
    def _query(self, statement: str, values: Sequence[object] = ()) -> Generator[sqlite3.Cursor]:
        """Run a statement with a limit of steps, and yield a cursor for its rows."""
        allowed = (_LEAST_STEPS + _STEPS_PER_BYTE * self.path.stat().st_size) // _STEPS_PER_CALL
        calls = itertools.count()
        with self._explained():
            self._connection.set_progress_handler(lambda: next(calls) > allowed, _STEPS_PER_CALL)
            try:
                with closing(self._connection.execute(statement, values)) as rows:
                    yield rows
            finally:
                self._connection.set_progress_handler(None, 0)

    def _check(self, create: bool) -> tuple[_Table, ...]:
        with self._query("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL") as rows:
            schema = list(rows)
        application, version = (self._pragma(name) for name in ("application_id", "user_version"))
        if create and not schema and application == 0:
            self._create(_TABLES)
            return _TABLES
        if application != APPLICATION:
            raise self._foreign("it has other contents")
        if version not in (_FIRST_FORMAT, FORMAT):
            raise self._foreign(f"its format is {version}; this version of microfold has {FORMAT}")
        tables = _TABLES[:1] if version == _FIRST_FORMAT else _TABLES
        if sorted(schema) != sorted(("table", table.name, table.declaration) for table in tables):
            raise self._foreign("its tables have other columns, or it has more than these tables")
        with self._query("PRAGMA quick_check") as rows:
            for (found,) in rows:
                if found != "ok":
                    raise self._foreign(str(found).splitlines()[0])
        for table in tables:
            self._check_values(table)
        if create and version == _FIRST_FORMAT:
            self._create(_TABLES[1:])
            return _TABLES
        return tables

    def _pragma(self, name: str) -> int:
        with self._query(f"PRAGMA {name}") as rows:
            return int(rows.fetchone()[0])

    def _create(self, tables: Iterable[_Table]) -> None:
        with self._explained(), self._connection:
            for table in tables:
                self._connection.execute(table.declaration)
            self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
            self._connection.execute(f"PRAGMA user_version = {FORMAT}")

    def add(self, setting: Setting, rows: Iterable[MeasurementRecord | ProgramRecord | Failure]) -> None:
        """Add all rows, or none after an error. They are on disk when this method returns."""
        rows = list(rows)
        with self._explained(), self._connection:
            for table in _TABLES:
                marks = ", ".join("?" * len(table.columns))
                self._connection.executemany(
                    f"INSERT INTO {table.name} VALUES ({marks}) "
                    f"ON CONFLICT ({table.identity}) DO UPDATE SET {table.merge}",
                    [(*astuple(setting), *astuple(row)) for row in rows if isinstance(row, table.row)],
                )

    def _rows(self, table: _Table, setting: Setting, **more: str) -> list[tuple[Any, ...]]:
        """Return the rows of a setting, in order. `more` has required values of other columns."""
        if table not in self._tables:
            return []
        names = [*_SETTING, *more]
        where = " AND ".join([*(f"{name} = ?" for name in names), table.counted])
        query = f"SELECT {', '.join(table.fields)} FROM {table.name} WHERE {where} ORDER BY {table.identity}"
        with self._query(query, (*astuple(setting), *more.values())) as rows:
            return list(rows)

    def _check_values(self, table: _Table) -> None:
        """Check that all values of a table have the types of their columns.

        SQLite keeps values of any type in any column.

        Raises:
            InputError: a value has the wrong type, or a trace is invalid.
        """
        kinds = [_TYPES.get(name, "TEXT") for name in table.columns]
        checks = [(name, kind, _IS_VALUE[kind]) for name, kind in zip(table.columns, kinds, strict=True)]
        with self._query(f"SELECT {', '.join(table.columns)} FROM {table.name}") as rows:
            for row in rows:
                for (name, kind, is_value), value in zip(checks, row, strict=True):
                    if not is_value(value):
                        raise self._foreign(
                            f"{name} in {table.name} must be {_DESCRIBED[kind]}; it is {_shown(value)}"
                        )
                if table is _PROGRAMS:
                    try:
                        trace_of(row[table.columns.index("trace")])
                    except InputError as error:
                        raise self._foreign(str(error)) from None

    def records(self, setting: Setting) -> list[MeasurementRecord]:
        """Return the records of kernels, in order."""
        return [MeasurementRecord(*row) for row in self._rows(_RECORDS, setting)]

    def programs(self, setting: Setting, program: str) -> list[ProgramRecord]:
        """Return the records of programs with a `program_key`, in order."""
        return [ProgramRecord(*row) for row in self._rows(_PROGRAMS, setting, program=program)]

    def failures(self, setting: Setting, program: str) -> list[Failure]:
        """Return the failures of programs with a `program_key`, in order."""
        return [Failure(*row) for row in self._rows(_FAILURES, setting, program=program)]

    def failed_variants(self, setting: Setting) -> Mapping[tuple[str, str], str]:
        """Return the reasons of failure for kernels that failed, and were never measured successfully."""
        found = [Failure(*row) for row in self._rows(_FAILURES, setting)]
        measured = self.figures(setting)
        variants = {(each.layer, each.variant): each.reason for each in found if each.layer}
        return {key: reason for key, reason in variants.items() if key not in measured}

    def costs(self, setting: Setting) -> MeasuredCosts | None:
        """Return the costs for selection; None without any measurements or failures."""
        figures, failed = self.figures(setting), self.failed_variants(setting)
        return MeasuredCosts(figures, setting.where, failed) if figures or failed else None

    def forget_failures(self, setting: Setting, program: str) -> None:
        """Delete the failures of programs with a `program_key`."""
        names = (*_SETTING, "program")
        where = " AND ".join(f"{name} = ?" for name in names)
        with self._explained(), self._connection:
            self._connection.execute(f"DELETE FROM failures WHERE {where}", (*astuple(setting), program))

    def settings(self) -> list[Setting]:
        """Return all settings with measurements, in order."""
        names = ", ".join(_SETTING)
        query = " UNION ".join(
            f"SELECT DISTINCT {names} FROM {table.name} WHERE {table.counted}"
            for table in (_RECORDS, _PROGRAMS)
            if table in self._tables
        )
        with self._query(query) as rows:
            return sorted(Setting(*row) for row in rows)

    def figures(self, setting: Setting) -> Mapping[tuple[str, str], CallCost]:
        """Return the measured figures of kernels, by layer and variant."""
        return {(record.layer, record.variant): record.figure for record in self.records(setting)}

    def export(self) -> str:
        """Return the database as text, with one part per table.

        The first line of a part has the names of the fields. Each other line is a row, separated by tabs.
        """
        settings = self.settings()
        parts: list[str] = []
        for table in _TABLES:
            rows = [(*astuple(setting), *row) for setting in settings for row in self._rows(table, setting)]
            lines = ["\t".join(" ".join(str(each).split()) for each in row) for row in rows]
            parts.append("\n".join(["\t".join(table.columns), *lines]) + "\n")
        return "\n".join(parts)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
