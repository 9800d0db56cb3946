"""Measurements in a file: an SQLite database with rows for settings, a table for each class of `records`.

What is added twice is merged: the fewest and the most cycles, and the sum of the runs. So a database does not
depend on the order in which measurements come in. Records of no cycles, of a counter that stood still, are
passed over where records are read; what is measured takes their place.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import astuple, fields
from pathlib import Path

from microfold.errors import InputError
from microfold.kernels.selection.measured import Figure, MeasuredCosts
from microfold.support.frozen import frozen
from microfold.tune.records import Failure, ProgramRecord, Record
from microfold.tune.setting import Setting

# Marks a file as ours (SQLite's `application_id`): "mfld".
APPLICATION = 0x6D666C64
FORMAT = 2
# It had the first table only.
_FIRST_FORMAT = 1
_SECONDS = 10.0  # to wait for another process that writes


@frozen
class _Table:
    """A table whose rows belong to settings.

    Attributes:
        key: the names of the fields that tell rows apart.
        merge: what becomes of the others where a row is added twice.
        counted: which rows are read.
    """

    name: str
    row: type
    key: tuple[str, ...]
    merge: str
    counted: str = "TRUE"

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field.name for field in fields(self.row))

    @property
    def columns(self) -> tuple[str, ...]:
        return (*_SETTING, *self.fields)

    @property
    def identity(self) -> str:
        return ", ".join((*_SETTING, *self.key))


_SETTING = tuple(field.name for field in fields(Setting))
_TYPES = dict.fromkeys(("clock", "cycles", "slowest", "runs", "ram", "flash"), "INTEGER") | {
    "estimate": "REAL"
}
_RECORDS = _Table(
    "records",
    Record,
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
    """An open database. A context manager.

    Args:
        path: of the file.
        create: make one if there is none.

    Raises:
        InputError: there is none, or the file is something else.
    """

    def __init__(self, path: Path, *, create: bool = False):
        self.path = path
        if not create and not path.is_file():
            raise InputError(
                f"a database must be a file that `microfold tune` has written; there is none at {path}"
            )
        with self._explained():
            self._connection = sqlite3.connect(path, timeout=_SECONDS)
        try:
            self._check(create)
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
        """Errors of SQLite as a sentence."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise InputError(f"the database {self.path} cannot be used: {error}") from None
        except (sqlite3.DatabaseError, OverflowError) as error:
            raise self._foreign(str(error)) from None

    def _foreign(self, why: str) -> InputError:
        return InputError(
            f"{self.path} must be a database that `microfold tune` has written; it is not, or it is damaged "
            f"({why}): name another file, or delete this one and measure again"
        )

    def _check(self, create: bool) -> None:
        with self._explained():
            application, version = (self._pragma(name) for name in ("application_id", "user_version"))
            tables = [name for (name,) in self._connection.execute("SELECT name FROM sqlite_master")]
            if create and not tables and application == 0:
                self._create(_TABLES)
                return
            if application != APPLICATION or "records" not in tables:
                raise self._foreign("it has other contents")
            if version == _FIRST_FORMAT:
                self._create(_TABLES[1:])
            elif version != FORMAT:
                raise self._foreign(f"its format is {version}, this version of microfold has {FORMAT}")
            for (found,) in self._connection.execute("PRAGMA quick_check"):
                if found != "ok":
                    raise self._foreign(str(found).splitlines()[0])
            for table in _TABLES:
                described = self._connection.execute(f"PRAGMA table_info({table.name})")
                if tuple(row[1] for row in described) != table.columns:
                    raise self._foreign("its tables have other columns")

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    def _create(self, tables: Iterable[_Table]) -> None:
        with self._connection:
            for table in tables:
                columns = ", ".join(f"{name} {_TYPES.get(name, 'TEXT')} NOT NULL" for name in table.columns)
                self._connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {table.name} ({columns}, PRIMARY KEY ({table.identity}))"
                )
            self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
            self._connection.execute(f"PRAGMA user_version = {FORMAT}")

    def add(self, setting: Setting, rows: Iterable[Record | ProgramRecord | Failure]) -> None:
        """Adds what was found, all or none; it is on the disk when this returns."""
        rows = list(rows)
        with self._explained(), self._connection:
            for table in _TABLES:
                marks = ", ".join("?" * len(table.columns))
                self._connection.executemany(
                    f"INSERT INTO {table.name} VALUES ({marks}) "
                    f"ON CONFLICT ({table.identity}) DO UPDATE SET {table.merge}",
                    [(*astuple(setting), *astuple(row)) for row in rows if isinstance(row, table.row)],
                )

    def _rows(self, table: _Table, setting: Setting, **more: str) -> list[tuple[object, ...]]:
        """All of a setting, in order; `more`: what else they must have."""
        names = [*_SETTING, *more]
        where = " AND ".join([*(f"{name} = ?" for name in names), table.counted])
        query = f"SELECT {', '.join(table.fields)} FROM {table.name} WHERE {where} ORDER BY {table.identity}"
        values = (*astuple(setting), *more.values())
        with self._explained(), closing(self._connection.execute(query, values)) as rows:
            return list(rows)

    def records(self, setting: Setting) -> list[Record]:
        """What kernels took, in order."""
        return [self._record(row) for row in self._rows(_RECORDS, setting)]

    def programs(self, setting: Setting, program: str) -> list[ProgramRecord]:
        """What the programs took that are made of one thing, in order."""
        found = self._rows(_PROGRAMS, setting, program=program)
        if not all(isinstance(number, int) and number > 0 for row in found for number in row[3:4]):
            raise self._foreign("cycles must be numbers; for a program they are not")
        return [ProgramRecord(*row) for row in found]  # type: ignore[arg-type]  # keys are TEXT

    def failures(self, setting: Setting, program: str) -> list[Failure]:
        """What of such programs could not be measured, in order."""
        found = self._rows(_FAILURES, setting, program=program)
        return [Failure(*row) for row in found]  # type: ignore[arg-type]  # all are TEXT

    def failed_variants(self, setting: Setting) -> Mapping[tuple[str, str], str]:
        """Of kernels that failed in some program, and were measured in none, the reasons."""
        found = [Failure(*row) for row in self._rows(_FAILURES, setting)]  # type: ignore[arg-type]
        measured = self.figures(setting)
        variants = {(each.layer, each.variant): each.reason for each in found if each.layer}
        return {key: reason for key, reason in variants.items() if key not in measured}

    def costs(self, setting: Setting) -> MeasuredCosts | None:
        """What selection is handed; None: nothing was measured, and nothing has failed."""
        figures, failed = self.figures(setting), self.failed_variants(setting)
        return MeasuredCosts(figures, setting.where, failed) if figures or failed else None

    def forget_failures(self, setting: Setting, program: str) -> None:
        """As if nothing of such programs had failed."""
        names = (*_SETTING, "program")
        where = " AND ".join(f"{name} = ?" for name in names)
        with self._explained(), self._connection:
            self._connection.execute(f"DELETE FROM failures WHERE {where}", (*astuple(setting), program))

    def _record(self, row: tuple[object, ...]) -> Record:
        *_, cycles, slowest, runs, estimate = row
        whole = all(isinstance(number, int) and number >= 0 for number in (cycles, slowest, runs))
        if not whole or not isinstance(estimate, float):
            raise self._foreign(f"cycles must be numbers; for {row[1]} they are not")
        return Record(*row)  # type: ignore[arg-type]  # keys are TEXT

    def settings(self) -> list[Setting]:
        """All in which something was measured, in order."""
        names = ", ".join(_SETTING)
        query = " UNION ".join(
            f"SELECT {names} FROM {table.name} WHERE {table.counted}" for table in (_RECORDS, _PROGRAMS)
        )
        with self._explained(), closing(self._connection.execute(query)) as rows:
            return sorted(Setting(*row) for row in rows)

    def figures(self, setting: Setting) -> Mapping[tuple[str, str], Figure]:
        """What was measured of kernels."""
        return {(record.layer, record.variant): record.figure for record in self.records(setting)}

    def export(self) -> str:
        """All of it as text: a part for each table, with the names of the fields in its first line.

        Then there is a line for each row, with tabs between its fields.
        """
        settings = self.settings()
        parts: list[str] = []
        for table in _TABLES:
            rows = [(*astuple(setting), *row) for setting in settings for row in self._rows(table, setting)]
            lines = ["\t".join(" ".join(str(each).split()) for each in row) for row in rows]
            parts.append("\n".join(["\t".join(table.columns), *lines]) + "\n")
        return "\n".join(parts)
