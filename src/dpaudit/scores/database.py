"""The SQLite file under the store: its tables, its checks for damage and its error messages.

The file uses SQLite's rollback journal and not the write-ahead log: the log needs memory that is
shared between processes, which network file systems do not have, and it keeps committed scores in
a second file that is easily forgotten when the first is copied.

Every row ends with a seal, a digest of its other columns. A row that does not fit its seal raises
`StoreError`, so that a damaged file never changes a number.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

from dpaudit.errors import StoreError

SCHEMA_VERSION = 3
_APPLICATION_ID = 0x64706175  # "dpau": distinguishes our SQLite files from those of other programs
_WAIT_SECONDS = 60.0

# In order of version: 2 added failures, 3 added seals, the number of
# tiles of an audit, and where a tile was played.
_TABLES = {
    "audits": """(
        id TEXT PRIMARY KEY,
        name TEXT UNIQUE,
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
    "tiles": """(
        audit TEXT NOT NULL REFERENCES audits (id),
        tile INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        finished TEXT NOT NULL,
        played_on TEXT,
        seal BLOB,
        PRIMARY KEY (audit, tile)
    )""",
    # The scores of a tile, one row per horizon, so that a horizon is read without the others.
    "scores": """(
        audit TEXT NOT NULL,
        tile INTEGER NOT NULL,
        horizon INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        run BLOB NOT NULL,
        canary BLOB NOT NULL,
        inserted BLOB NOT NULL,
        score BLOB NOT NULL,
        seal BLOB,
        PRIMARY KEY (audit, tile, horizon),
        FOREIGN KEY (audit, tile) REFERENCES tiles (audit, tile)
    )""",
    # A failed run is a tile without scores and one row here.
    "failures": """(
        audit TEXT NOT NULL,
        tile INTEGER NOT NULL,
        run INTEGER NOT NULL,
        inserted INTEGER NOT NULL,
        canaries INTEGER NOT NULL,
        error TEXT NOT NULL,
        traceback TEXT NOT NULL,
        seal BLOB,
        PRIMARY KEY (audit, tile, run),
        FOREIGN KEY (audit, tile) REFERENCES tiles (audit, tile)
    )""",
}


@final
class Database:
    """An open store file. Threads may share it; a forked process must open its own.

    Arguments:
        path: The file, or ``":memory:"``.
        create: Make a new store if the file does not exist or is empty.
    """

    def __init__(self, path: str, *, create: bool) -> None:
        self.path = path
        self._lock = threading.RLock()
        if path != ":memory:":
            try:
                known, has_folder = Path(path).exists(), Path(path).parent.is_dir()
            except OSError as error:  # for example a name that is too long
                raise StoreError(f"cannot open the store {path}: {error.strerror}") from None
            if not create and not known:
                raise StoreError(f"no store at {path}; an audit with this store makes one")
            if not has_folder:
                raise StoreError(f"cannot open the store {path}: its folder does not exist")
        with self._explained():
            self._connection = self._connect(path)
        try:
            self._prepare(create=create)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. Everything committed is in it already."""
        self._connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Execute all statements or none. Writers wait for each other when they begin."""
        with self._lock, self._explained():
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
        with self._lock, self._explained():
            return self._connection.execute(query, values).fetchall()

    def sealed(self, table: str, condition: str, *values: Any) -> list[tuple[Any, ...]]:
        """Whole rows of a table, each checked against its seal and given without it."""
        rows = self.rows(f"SELECT * FROM {table} WHERE {condition}", *values)
        for row in rows:
            if seal(row[:-1]) != row[-1]:
                raise StoreError(f"{_meaning('SQLITE_CORRUPT', self.path)} (in its {table})")
        return [row[:-1] for row in rows]

    def _connect(self, path: str) -> sqlite3.Connection:
        # isolation_level=None: a transaction begins only where this file says so.
        return sqlite3.connect(
            path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )

    def _prepare(self, *, create: bool) -> None:
        """Check that the file is an undamaged store; create the tables in an empty file."""
        self.rows("PRAGMA foreign_keys = ON")
        self.rows("PRAGMA synchronous = FULL")
        version = self._schema_version()
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path} was written by a newer dpaudit (schema {version}, this one knows "
                f"{SCHEMA_VERSION}); upgrade dpaudit, or use another store"
            )
        if version == 0 and not create:  # the file may belong to another program: do not write
            raise StoreError(
                f"no store at {self.path}: the file is empty; an audit with this store makes one"
            )
        if version and (
            self.rows("PRAGMA integrity_check(1)") != [("ok",)]
            or self.rows("PRAGMA foreign_key_check")
        ):
            raise StoreError(_meaning("SQLITE_CORRUPT", self.path))
        if version == 0:
            with self.transaction() as connection:
                if self._schema_version() == 0:  # no other process was faster
                    for table, columns in _TABLES.items():
                        connection.execute(f"CREATE TABLE {table} {columns}")
                    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif version < SCHEMA_VERSION:
            try:
                self._bring_up_to_date()
            except StoreError:  # not writable: work on a copy in memory, which can be read
                copy = self._connect(":memory:")
                with self._explained():
                    self._connection.backup(copy)
                    self._connection.close()
                self._connection = copy
                self._bring_up_to_date()
                self.rows("PRAGMA query_only = ON")

    def _bring_up_to_date(self) -> None:
        """From version 1 or 2: add the table of failures, and seal all rows as they are."""
        with self.transaction() as connection:
            version = self._schema_version()
            if version == SCHEMA_VERSION:  # another process was faster
                return
            if version == 1:
                connection.execute(f"CREATE TABLE failures {_TABLES['failures']}")
            connection.execute("ALTER TABLE audits ADD COLUMN tiles INTEGER")
            connection.execute("ALTER TABLE tiles ADD COLUMN played_on TEXT")
            for table in _TABLES:
                if table != "failures" or version > 1:
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN seal BLOB")
                for row in connection.execute(f"SELECT rowid, * FROM {table}").fetchall():
                    connection.execute(
                        f"UPDATE {table} SET seal = ? WHERE rowid = ?", (seal(row[1:-1]), row[0])
                    )
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _schema_version(self) -> int:
        """0 for an empty file; an error for a database of another program."""
        ((application,),) = self.rows("PRAGMA application_id")
        ((version,),) = self.rows("PRAGMA user_version")
        ((tables,),) = self.rows("SELECT count(*) FROM sqlite_master")
        if application == _APPLICATION_ID:
            return int(version)
        if application or version or tables:
            raise StoreError(f"{self.path} is a database of another program, not a dpaudit store")
        return 0

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn an error of SQLite into one that says what it means and what to do."""
        try:
            yield
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            code = getattr(error, "sqlite_errorname", None) or ""
            raise StoreError(f"{_meaning(code, self.path)} ({error})") from error


def insert(
    connection: sqlite3.Connection, table: str, row: Sequence[Any], *, ignore: bool = False
) -> bool:
    """Insert one row with its seal; with ``ignore``, false if its key is there already."""
    places = ",".join("?" * (len(row) + 1))
    word = "INSERT OR IGNORE" if ignore else "INSERT"
    done = connection.execute(f"{word} INTO {table} VALUES ({places})", (*row, seal(row)))
    return bool(done.rowcount)


def seal(row: Sequence[Any]) -> bytes:
    """A digest of a row that depends on every value, its type and its place.

    Example:
        >>> seal([1, "a"]) == seal([1, "a"]), seal([1]) == seal(["1"])
        (True, False)
    """
    digest = hashlib.blake2b(digest_size=16)
    for value in row:
        content = value if isinstance(value, bytes) else repr(value).encode()
        digest.update(f"{type(value).__name__} {len(content)}:".encode())
        digest.update(content)
    return digest.digest()


def _meaning(code: str, path: str) -> str:
    safe = "nothing that was committed is lost; repeat the same command to resume"
    for codes, meaning in (
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
