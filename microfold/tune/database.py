"""Measurements in a file: an SQLite database with one row for each variant, kind of layer and setting.

What is added twice is merged: the fewest and the most cycles, and the sum of the runs. So a database does not
depend on the order in which measurements come in. Records of no cycles, of a counter that stood still, are
passed over where records are read; what is measured takes their place.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from microfold.errors import InputError
from microfold.kernels.selection.measured import Figure
from microfold.tune.setting import Setting

# Marks a file as ours (SQLite's `application_id`): "mfld".
APPLICATION = 0x6D666C64
FORMAT = 1
_SECONDS = 10.0  # to wait for another process that writes


@dataclass(frozen=True, order=True)
class Record:
    """What the calls of a kernel took.

    Attributes:
        layer, variant: keys, see `microfold.kernels.selection.measured`.
        cycles: the fewest.
        slowest: the most.
        runs: how many calls.
        estimate: cycles that the cost model had said.
    """

    layer: str
    variant: str
    cycles: int
    slowest: int
    runs: int
    estimate: float

    @property
    def figure(self) -> Figure:
        return Figure(self.cycles, self.estimate)


_SETTING = tuple(field.name for field in fields(Setting))
_RECORD = tuple(field.name for field in fields(Record))
_COLUMNS = (*_SETTING, *_RECORD)
_TYPES = dict.fromkeys(("clock", "cycles", "slowest", "runs"), "INTEGER") | {"estimate": "REAL"}
_KEY = (*_SETTING, "layer", "variant")
_COUNTED = "cycles <> 0"


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
                self._create()
                return
            if application != APPLICATION or "records" not in tables:
                raise self._foreign("it has other contents")
            if version != FORMAT:
                raise self._foreign(f"its format is {version}, this version of microfold has {FORMAT}")
            for (found,) in self._connection.execute("PRAGMA quick_check"):
                if found != "ok":
                    raise self._foreign(str(found).splitlines()[0])
            columns = tuple(row[1] for row in self._connection.execute("PRAGMA table_info(records)"))
            if columns != _COLUMNS:
                raise self._foreign("its table has other columns")

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    def _create(self) -> None:
        columns = ", ".join(f"{name} {_TYPES.get(name, 'TEXT')} NOT NULL" for name in _COLUMNS)
        with self._connection:
            self._connection.execute(f"CREATE TABLE records ({columns}, PRIMARY KEY ({', '.join(_KEY)}))")
            self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
            self._connection.execute(f"PRAGMA user_version = {FORMAT}")

    def add(self, setting: Setting, records: Iterable[Record]) -> None:
        """Adds measurements, all or none; they are on the disk when this returns."""
        marks = ", ".join("?" * len(_COLUMNS))
        merge = "cycles = CASE WHEN cycles > 0 THEN min(cycles, excluded.cycles) ELSE excluded.cycles END"
        merge += ", slowest = max(slowest, excluded.slowest)"
        merge += ", runs = runs + excluded.runs, estimate = excluded.estimate"
        with self._explained(), self._connection:
            self._connection.executemany(
                f"INSERT INTO records VALUES ({marks}) ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {merge}",
                [(*astuple(setting), *astuple(record)) for record in records],
            )

    def records(self, setting: Setting) -> list[Record]:
        """All of a setting, in order."""
        where = " AND ".join(f"{name} = ?" for name in _SETTING)
        query = (
            f"SELECT {', '.join(_RECORD)} FROM records WHERE {where} AND {_COUNTED} ORDER BY layer, variant"
        )
        with self._explained(), closing(self._connection.execute(query, astuple(setting))) as rows:
            return [self._record(row) for row in rows]

    def _record(self, row: tuple[object, ...]) -> Record:
        *_, cycles, slowest, runs, estimate = row
        whole = all(isinstance(number, int) and number >= 0 for number in (cycles, slowest, runs))
        if not whole or not isinstance(estimate, float):
            raise self._foreign(f"cycles must be numbers; for {row[1]} they are not")
        return Record(*row)  # type: ignore[arg-type]  # keys are TEXT

    def settings(self) -> list[Setting]:
        """All that there are records of, in order."""
        query = f"SELECT DISTINCT {', '.join(_SETTING)} FROM records WHERE {_COUNTED}"
        with self._explained(), closing(self._connection.execute(query)) as rows:
            return sorted(Setting(*row) for row in rows)

    def figures(self, setting: Setting) -> Mapping[tuple[str, str], Figure]:
        """What selection is handed, see `MeasuredCosts`."""
        return {(record.layer, record.variant): record.figure for record in self.records(setting)}

    def export(self) -> str:
        """All of it as text: a line for each record, tabs between its fields, the names in the first line."""
        lines = ["\t".join(_COLUMNS)]
        for setting in self.settings():
            lines += [
                "\t".join(map(str, (*astuple(setting), *astuple(record)))) for record in self.records(setting)
            ]
        return "\n".join(lines) + "\n"
