"""The store: one SQLite file with audits, their settings, their sessions and their tiles.

A tile is written in one transaction, so ``kill -9`` at any moment loses at most the tiles that are
being played. The file uses SQLite's rollback journal and not the write-ahead log: the log needs
memory that is shared between processes, which network file systems do not have, and it keeps
committed scores in a second file that is easily forgotten when the first is copied.

Every row ends with a seal, a digest of its other columns. A row that does not fit its seal raises
`StoreError`, so that a damaged file never changes a number.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import numbers
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self, final

import numpy as np

from dpaudit import _validate
from dpaudit.errors import DpauditError, InvalidInput, InvalidScores, StoreError
from dpaudit.scores.table import Scores
from dpaudit.scores.tiles import Failure, ScoreBlock, pack, unpack

SCHEMA_VERSION = 4
_APPLICATION_ID = 0x64706175  # "dpau": distinguishes our SQLite files from those of other programs
_WAIT_SECONDS = 60.0
_MOST_LISTED = 50  # audits that an error message lists

_TABLES = {
    "audits": """(
        id TEXT PRIMARY KEY,
        name TEXT,
        configuration TEXT NOT NULL,
        created TEXT NOT NULL,
        finished TEXT,
        summary TEXT,
        tiles INTEGER,
        seal BLOB
    )""",
    # One row for each time that the audit was begun or resumed.
    "sessions": """(
        audit TEXT NOT NULL REFERENCES audits (id),
        started TEXT NOT NULL,
        versions TEXT NOT NULL,
        seal BLOB
    )""",
    # Phase 0 has the runs that were asked for, phase 1 those that confirm a suspicion.
    "tiles": """(
        audit TEXT NOT NULL REFERENCES audits (id),
        phase INTEGER NOT NULL,
        tile INTEGER NOT NULL,
        finished TEXT NOT NULL,
        played_on TEXT,
        content BLOB NOT NULL,
        seal BLOB,
        PRIMARY KEY (audit, phase, tile)
    )""",
}


@final
class Store:
    """An open store, to be used as a context manager in the process that opened it.

    Threads may share it; a forked process must open its own.

    See also: `AuditRecord`, one audit in it; `dpaudit.scores.ScoreBlock`, the scores of a tile.

    Example:
        >>> from dpaudit.scores import ScoreBlock
        >>> block = ScoreBlock(
        ...     run=[0, 1], canary=[0, 0], horizon=[250, 250], inserted=[1, 0], score=[3.0, 0.5]
        ... )
        >>> with Store.open(":memory:") as store:
        ...     record = store.begin("demo", {"steps": 250}, {"dpaudit": "0.3.0"})
        ...     record.add_tile(0, block)
        ...     record.finished_tiles(), record.scores()
        True
        (frozenset({0}), Scores(1 inserted, 1 not, 2 runs))
    """

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, create: bool = True) -> Store:
        """Open the store at ``path``; make a new one if there is none and ``create`` is true."""
        path = _validate.path("store", path)
        if path != ":memory:":
            if not (create or os.path.exists(path)):  # noqa: PTH110 - a name may be too long
                raise StoreError(f"no store at {path}; an audit with this store makes one")
            if not os.path.isdir(os.path.dirname(path) or "."):  # noqa: PTH112, PTH120
                raise StoreError(f"cannot open the store {path}: its folder does not exist")
        with _explained(path):
            # isolation_level=None: a transaction begins only where this file says so.
            connection = sqlite3.connect(
                path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
        store = cls(path, connection)
        try:
            store._prepare(create=create)
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Close the file. What was added is in it already."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def begin(
        self, name: str | None, configuration: Mapping[str, Any], versions: Mapping[str, Any]
    ) -> AuditRecord:
        """Begin an audit, or resume the unfinished one of the same name and settings.

        A finished audit is never continued: the same call after it begins another audit.

        Arguments:
            name: Name of the audit. Several audits may have the same.
            configuration: Everything that decides the scores: text, numbers, lists, mappings.
            versions: Software and device of this session; recorded, and allowed to change.
        """
        name = _validate.label("name", name)
        text, session, when = canonical_json(configuration), canonical_json(versions), _now()
        with self.transaction() as connection:
            row = connection.execute(
                "SELECT id FROM audits WHERE name IS ? AND configuration = ? AND finished IS NULL "
                "ORDER BY rowid DESC",
                (name, text),
            ).fetchone()
            audit = secrets.token_hex(8) if row is None else row[0]
            if row is None:
                _insert(connection, "audits", (audit, name, text, when, None, None, None))
            _insert(connection, "sessions", (audit, when, session))
        (record,) = self.records("id = ?", audit)
        return record

    def audits(self) -> tuple[AuditRecord, ...]:
        """All audits, the oldest first."""
        return self.records("TRUE ORDER BY rowid")

    def named(self, name: str | None, *, unfinished: bool = False) -> tuple[AuditRecord, ...]:
        """The audits of this name, the newest first.

        Arguments:
            name: The name; `None` for the audits without one.
            unfinished: Leave out those that are finished.
        """
        which = "name IS ? AND finished IS NULL" if unfinished else "name IS ?"
        return self.records(f"{which} ORDER BY rowid DESC", name)

    def records(self, condition: str, *values: Any) -> tuple[AuditRecord, ...]:
        """The audits that meet a condition of SQL."""
        return tuple(map(self._record, self.sealed("audits", condition, *values)))

    def _record(self, row: Sequence[Any]) -> AuditRecord:
        """The audit in a row, whose seal is right; another program may have written it."""
        audit, name, text, created = row[:4]
        if isinstance(audit, str) and audit and isinstance(name, str | None):
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                configuration, created = json.loads(text), str(created)
                return AuditRecord(
                    id=audit, name=name, configuration=configuration, created=created, store=self
                )
        raise StoreError(f"{_meaning('SQLITE_CORRUPT', self.path)} (in its audits)")

    def audit(self, which: str) -> AuditRecord:
        """The audit with this identity or its first digits, or the newest one with this name."""
        audits = self.audits()
        named = [audit for audit in audits if which == audit.name][-1:]
        matching = named or [audit for audit in audits if which and audit.id.startswith(which)]
        if len(matching) == 1:
            return matching[0]
        problem, listed = f"no audit {which!r}", list(audits)
        if matching:
            problem, listed = f"{which!r} fits {len(matching)} audits", matching
        labels = ", ".join(audit.label for audit in listed[:_MOST_LISTED]) or "none"
        more = f" and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else ""
        raise StoreError(f"{problem} in {self.path}; to choose from: {labels}{more}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Execute all statements or none. Writers wait for each other when they begin."""
        with self._lock, _explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite may have rolled back by itself
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a query gives, without a check of seals."""
        with self._lock, _explained(self.path):
            return self._connection.execute(query, values).fetchall()

    def sealed(self, table: str, condition: str, *values: Any) -> list[tuple[Any, ...]]:
        """Whole rows of a table, each checked against its seal and given without it."""
        rows = self.rows(f"SELECT * FROM {table} WHERE {condition}", *values)
        if any(_seal(row[:-1]) != row[-1] for row in rows):
            raise StoreError(f"{_meaning('SQLITE_CORRUPT', self.path)} (in its {table})")
        return [row[:-1] for row in rows]

    def _prepare(self, *, create: bool) -> None:
        """Check that the file is an undamaged store; create the tables in an empty file."""
        self.rows("PRAGMA foreign_keys = ON")
        self.rows("PRAGMA synchronous = FULL")
        (facts,) = self.rows(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
            "FROM pragma_application_id, pragma_user_version"
        )
        application, version, _ = facts
        if application == _APPLICATION_ID:
            self._check(version, whole=not create)
        elif any(facts):
            raise StoreError(f"{self.path} is a database of another program, not a dpaudit store")
        elif not create:  # the file may belong to another program: do not write
            raise StoreError(
                f"no store at {self.path}: the file is empty; an audit with this store makes one"
            )
        else:
            with self.transaction() as connection:
                for table, columns in _TABLES.items():  # unless another process was faster
                    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} {columns}")
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _check(self, version: int, *, whole: bool) -> None:
        """Refuse a store of another version, and a damaged one.

        An audit adds tiles and reads no others than its own, whose number is known when it ends:
        it does not wait until those of 10,000 audits are checked.
        """
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path} was written by a newer dpaudit (schema {version}, this one knows "
                f"{SCHEMA_VERSION}); upgrade dpaudit, or use another store"
            )
        if version < SCHEMA_VERSION:
            raise StoreError(
                f"{self.path} was written by dpaudit 0.2 or earlier: read it with that version, "
                "and use another file for new audits"
            )
        which = "integrity_check" if whole else "integrity_check(audits)"
        if self.rows(f"PRAGMA {which}") != [("ok",)]:
            raise StoreError(_meaning("SQLITE_CORRUPT", self.path))


@final
@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """One audit in a store. Made by `Store.begin` and `Store.audit`.

    Tiles belong to a phase: 0 has the runs that were asked for, 1 those that confirm a suspicion.

    Arguments:
        id: 16 hexadecimal digits, drawn when the audit began.
        name: The name that the user gave, if any.
        configuration: The settings it was begun with.
        created: Time of its beginning, in UTC.
        store: Where it is stored.
    """

    id: str
    name: str | None
    configuration: Mapping[str, Any] = field(compare=False)
    created: str
    store: Store = field(compare=False, repr=False)

    @property
    def label(self) -> str:
        """The name and the first digits of the identity, for lists."""
        return f"{self.name} ({self.id[:8]})" if self.name else self.id[:8]

    @property
    def versions(self) -> tuple[Mapping[str, Any], ...]:
        """The different sets of software and device that were used, in the order of first use."""
        rows = self.store.sealed("sessions", "audit = ? ORDER BY rowid", self.id)
        return tuple(json.loads(text) for text in dict.fromkeys(row[2] for row in rows))

    @property
    def finished(self) -> str | None:
        """Time at which the audit was finished, in UTC; `None` while it is not."""
        finished: str | None = self._row()[4]
        return finished

    @property
    def summary(self) -> dict[str, Any]:
        """What `annotate` and `finish` stored."""
        summary: dict[str, Any] = json.loads(self._row()[5] or "{}")
        return summary

    def finished_tiles(self, phase: int = 0) -> frozenset[int]:
        """The numbers of the tiles whose scores are safely stored."""
        query = "SELECT tile FROM tiles WHERE audit = ? AND phase = ?"
        return frozenset(tile for (tile,) in self.store.rows(query, self.id, phase))

    def played_on(self) -> Mapping[str, int]:
        """Machines, devices and precisions, each with the number of tiles that it played."""
        query = "SELECT played_on, count(*) FROM tiles WHERE audit = ? AND played_on <> '' GROUP BY"
        return dict(self.store.rows(f"{query} played_on", self.id))

    def add_tile(self, index: int, block: ScoreBlock) -> bool:
        """Store the scores of a tile; false if they were there already, which changes nothing.

        A tile is a pure function of the audit and its number, so several processes may work on the
        same audit: a tile that arrives a second time has the same scores.
        """
        return self.add_tiles([(index, block)]) == 1

    def add_tiles(self, tiles: Sequence[tuple[int, ScoreBlock | Failure]], phase: int = 0) -> int:
        """Store several tiles or none of them; returns how many were not there already.

        A tile of one run that failed is finished, too: it has a `Failure` in place of scores.
        """
        when = _now()  # rows are made before the transaction, which is then short
        rows = [
            (
                self.id,
                phase,
                _validate.integer("index", index),
                when,
                getattr(tile, "played_on", ""),
                pack(tile),
            )
            for index, tile in tiles
        ]
        with self.store.transaction() as connection:
            return sum(_insert(connection, "tiles", row, ignore=True) for row in rows)

    def tiles(self, phase: int = 0) -> dict[int, ScoreBlock | Failure]:
        """All tiles of a phase in the order of their numbers."""
        rows = self.store.sealed("tiles", "audit = ? ORDER BY tile", self.id)
        if len(rows) < (self._row()[6] or 0) or any(row[0] != self.id for row in rows):
            raise StoreError(
                f"the store {self.store.path} is damaged: tiles of audit {self.label} are "
                "missing; restore a copy, or start with another file"
            )
        try:
            return {row[2]: unpack(row[5]) for row in rows if row[1] == phase}
        except InvalidScores as error:
            raise StoreError(f"{_meaning('SQLITE_CORRUPT', self.store.path)} ({error})") from None

    def failures(self, phase: int = 0) -> tuple[Failure, ...]:
        """The runs that failed, in the order of their numbers."""
        failures = [
            outcome for outcome in self.tiles(phase).values() if isinstance(outcome, Failure)
        ]
        return tuple(sorted(failures, key=lambda failure: failure.run))

    def horizons(self) -> tuple[int, ...]:
        """The numbers of steps at which scores were taken, ascending."""
        return tuple(scores_of(self.tiles().values()))

    def scores(self, horizon: int | None = None, phase: int = 0) -> Scores:
        """The scores at one horizon, by default the last, in the order of the tiles.

        While tiles are missing these are the scores so far.
        """
        tables = scores_of(self.tiles(phase).values())
        if horizon is not None and horizon not in tables:
            horizons = ", ".join(map(str, tables)) or "none yet"
            raise InvalidInput(f"horizon must be one of the audit's ({horizons}), got {horizon!r}")
        return tables[max(tables) if horizon is None else horizon] if tables else Scores.concat([])

    def annotate(self, facts: Mapping[str, Any], *, finish: bool = False) -> None:
        """Add facts to the summary, unless the audit is finished: it keeps the summary it has."""
        row = self._row()
        if row[4] is not None:
            return
        try:
            text = json.dumps({**json.loads(row[5] or "{}"), **facts})
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"summary must be plain data: {error}") from None
        count = "SELECT count(*) FROM tiles WHERE audit = ?"
        end = (
            (_now(), text, self.store.rows(count, self.id)[0][0]) if finish else (None, text, None)
        )
        with self.store.transaction() as connection:
            connection.execute(
                "UPDATE audits SET finished = ?, summary = ?, tiles = ?, seal = ? WHERE id = ?",
                (*end, _seal((*row[:4], *end)), self.id),
            )

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Mark the audit as finished, with its results for ``dpaudit list`` and ``show``."""
        self.annotate(facts, finish=True)

    def _row(self) -> tuple[Any, ...]:
        rows = self.store.sealed("audits", "id = ?", self.id)
        if not rows:
            raise StoreError(f"audit {self.label} is no longer in {self.store.path}")
        return rows[0]


@contextlib.contextmanager
def reading(record: AuditRecord) -> Iterator[None]:
    """Raise `StoreError` where what is stored of an audit is not what dpaudit stores."""
    try:
        yield
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        MemoryError,
    ) as error:
        if isinstance(error, DpauditError):
            raise
        raise StoreError(
            f"audit {record.label} in {record.store.path} cannot be read "
            f"({_validate.said(error)}); was it stored by another program or another version of "
            "dpaudit?"
        ) from error


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn an error of SQLite into one that says what it means and what to do."""
    try:
        yield
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        code = getattr(error, "sqlite_errorname", None) or ""
        raise StoreError(f"{_meaning(code, path)} ({error})") from error


def scores_of(tiles: Iterable[ScoreBlock | Failure]) -> dict[int, Scores]:
    """The scores of all tiles by their horizon, ascending; failures have none."""
    blocks = [tile for tile in tiles if isinstance(tile, ScoreBlock)]
    names = ("run", "canary", "inserted", "score", "horizon")
    columns = {name: np.concatenate([getattr(b, name) for b in blocks] or [[]]) for name in names}
    horizon, tables = columns.pop("horizon"), {}
    for steps in np.unique(horizon).tolist():
        rows = {name: column[horizon == steps] for name, column in columns.items()}
        for column in rows.values():
            column.flags.writeable = False  # the table need not copy it
        tables[int(steps)] = Scores(**rows)
    return tables


def canonical_json(configuration: Mapping[str, Any]) -> str:
    """A configuration as text: keys sorted, no spaces, and 1.0 written as 1.

    Example:
        >>> canonical_json({"steps": 250, "clip_norm": 1.0})
        '{"clip_norm":1,"steps":250}'
    """
    if not isinstance(configuration, Mapping):
        raise InvalidInput(f"configuration must be a mapping, got {_validate.shown(configuration)}")
    try:
        plain = _plain(configuration, "configuration")
    except RecursionError:
        raise InvalidInput("configuration must not contain itself, and be less nested") from None
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any, where: str) -> Any:
    """The value as plain JSON data; numpy numbers become Python numbers."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        if not math.isfinite(number):
            raise InvalidInput(f"{where} must be finite, got {number!r}")
        # Below 2^53 every whole float has one spelling as an int, so 1.0 and 1 can be the same.
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise InvalidInput(f"{where} must have text as keys, got {wrong[0]!r}")
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [_plain(item, f"{where}[{place}]") for place, item in enumerate(value)]
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
        return _plain(value.item(), where)
    raise InvalidInput(
        f"{where} must be text, a number, true or false, a list or a mapping, "
        f"got a {type(value).__name__}"
    )


def _insert(
    connection: sqlite3.Connection, table: str, row: Sequence[Any], *, ignore: bool = False
) -> bool:
    """Insert one row with its seal; with ``ignore``, false if its key is there already."""
    places = ",".join("?" * (len(row) + 1))
    word = "INSERT OR IGNORE" if ignore else "INSERT"
    done = connection.execute(f"{word} INTO {table} VALUES ({places})", (*row, _seal(row)))
    return bool(done.rowcount)


def _seal(row: Sequence[Any]) -> bytes:
    """A digest of a row that depends on every value, its type and its place.

    Example:
        >>> _seal([1, "a"]) == _seal([1, "a"]), _seal([1]) == _seal(["1"])
        (True, False)
    """
    digest = hashlib.blake2b(digest_size=16)
    for value in row:
        content = value if isinstance(value, bytes) else repr(value).encode()
        digest.update(f"{type(value).__name__} {len(content)}:".encode())
        digest.update(content)
    return digest.digest()


def _now() -> str:
    """The time in UTC, as the store writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _meaning(code: str, path: str) -> str:
    safe = "nothing that was committed is lost; repeat the same command to resume"
    for codes, meaning in (
        (
            "SQLITE_READONLY_DBMOVED",
            f"the store {path} was deleted or replaced by another file while it was open: put it "
            "back, or repeat the same command with a new one",
        ),
        ("SQLITE_FULL", f"no space left for the store {path}: free some; {safe}"),
        (
            "SQLITE_READONLY SQLITE_PERM SQLITE_AUTH",
            f"the store {path} is not writable: change its permissions or use another file",
        ),
        (
            "SQLITE_CANTOPEN",
            f"cannot open the store {path}: check that it is a file in a folder you can write to",
        ),
        ("SQLITE_NOTADB", f"{path} is not a dpaudit store: use another file"),
        (
            "SQLITE_CORRUPT",
            f"the store {path} is damaged: restore a copy, or start with another file",
        ),
        (
            "SQLITE_BUSY SQLITE_LOCKED",
            f"another process kept the store {path} busy for {_WAIT_SECONDS:g} s; {safe}",
        ),
        ("SQLITE_IOERR", f"the disk failed under the store {path}; {safe}"),
    ):
        if code.startswith(tuple(codes.split())):
            return meaning
    return f"the store {path} cannot be used"
