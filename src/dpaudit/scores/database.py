"""The SQLite file under the store: whose it is, what is in it, and what its errors mean.

The file keeps SQLite's rollback journal rather than the write-ahead log: the log needs memory
shared between processes, which network file systems lack, and it leaves committed scores in a
second file that is forgotten when somebody copies the first. Tiles take seconds, so waiting for the
disk at each commit (``synchronous=FULL``) costs nothing that can be felt.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from dpaudit.errors import StoreError

SCHEMA_VERSION = 2
_APPLICATION_ID = 0x64706175  # "dpau": how one tells our SQLite files from other programs'
_WAIT_SECONDS = 60.0

# New in version 2. A failed run is a tile without scores and one row here.
_FAILURES = """CREATE TABLE failures (
        audit TEXT NOT NULL,
        tile INTEGER NOT NULL,
        run INTEGER NOT NULL,
        inserted INTEGER NOT NULL,
        canaries INTEGER NOT NULL,
        error TEXT NOT NULL,
        traceback TEXT NOT NULL,
        PRIMARY KEY (audit, tile, run),
        FOREIGN KEY (audit, tile) REFERENCES tiles (audit, tile)
    )"""

_SCHEMA = (
    """CREATE TABLE audits (
        id TEXT PRIMARY KEY,
        name TEXT UNIQUE,
        configuration TEXT NOT NULL,
        created TEXT NOT NULL,
        finished TEXT,
        summary TEXT
    )""",
    # One row for each time that somebody began or resumed the audit.
    """CREATE TABLE sessions (
        audit TEXT NOT NULL REFERENCES audits (id),
        started TEXT NOT NULL,
        versions TEXT NOT NULL
    )""",
    """CREATE TABLE tiles (
        audit TEXT NOT NULL REFERENCES audits (id),
        tile INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        finished TEXT NOT NULL,
        PRIMARY KEY (audit, tile)
    )""",
    # The scores of a tile, apart by horizon so that one horizon is read without the others.
    """CREATE TABLE scores (
        audit TEXT NOT NULL,
        tile INTEGER NOT NULL,
        horizon INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        run BLOB NOT NULL,
        canary BLOB NOT NULL,
        inserted BLOB NOT NULL,
        score BLOB NOT NULL,
        PRIMARY KEY (audit, tile, horizon),
        FOREIGN KEY (audit, tile) REFERENCES tiles (audit, tile)
    )""",
    _FAILURES,
)


@final
class Database:
    """An open store file. Threads may share it; a forked process must open its own."""

    def __init__(self, path: str, *, create: bool) -> None:
        self.path = path
        self._lock = threading.RLock()
        if path != ":memory:":
            if not create and not Path(path).exists():
                raise StoreError(f"no store at {path}; an audit with this store makes one")
            if not Path(path).parent.is_dir():
                raise StoreError(f"cannot open the store {path}: its folder does not exist")
        with self._explained():
            # isolation_level=None: transactions begin where we say so, and nowhere else.
            self._connection = sqlite3.connect(
                path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
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
        """All or nothing. IMMEDIATE: two writers wait for each other at the door, not inside."""
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
        """The answer to one query."""
        with self._lock, self._explained():
            return self._connection.execute(query, values).fetchall()

    def _prepare(self, *, create: bool) -> None:
        """Check whose file this is, and with ``create`` lay the tables out in an empty one."""
        self.rows("PRAGMA foreign_keys = ON")
        self.rows("PRAGMA synchronous = FULL")
        version = self._schema_version()
        if version == 0 and not create:  # the file may be somebody's: it stays as it is
            raise StoreError(
                f"no store at {self.path}: the file is empty; an audit with this store makes one"
            )
        if version == 0:
            with self.transaction() as connection:
                if self._schema_version() == 0:  # nobody was quicker
                    for statement in _SCHEMA:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif version < SCHEMA_VERSION:
            # An old store on a disk that cannot be written to can still be read.
            with contextlib.suppress(StoreError):
                self._bring_up_to_date()
        elif version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path} was written by a newer dpaudit (schema {version}, this one knows "
                f"{SCHEMA_VERSION}); upgrade dpaudit, or use another store"
            )

    def _bring_up_to_date(self) -> None:
        """Version 1 to 2: stores from before failed runs were kept have none."""
        with self.transaction() as connection:
            if self._schema_version() == 1:  # nobody was quicker
                connection.execute(_FAILURES)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def has_table(self, name: str) -> bool:
        """Whether there is a table of this name; an old store that cannot be written lacks some."""
        query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
        ((found,),) = self.rows(query, name)
        return bool(found)

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
        """Say what an error of SQLite means for the audit, and what to do."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorname", None) or ""
            raise StoreError(f"{_meaning(code, self.path)} ({error})") from error


def _meaning(code: str, path: str) -> str:
    safe = "nothing that was committed is lost; the same command goes on where this one stopped"
    if code.startswith("SQLITE_FULL"):
        return f"no space left for the store {path}: free some; {safe}"
    if code.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return f"the store {path} is not writable: change its permissions or use another file"
    if code.startswith("SQLITE_CANTOPEN"):
        return f"cannot open the store {path}: check that it is a file in a folder you can write to"
    if code.startswith("SQLITE_NOTADB"):
        return f"{path} is not a dpaudit store: use another file"
    if code.startswith("SQLITE_CORRUPT"):
        return f"the store {path} is damaged: restore a copy, or start with another file"
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"another process kept the store {path} busy for {_WAIT_SECONDS:g} s; {safe}"
    if code.startswith("SQLITE_IOERR"):
        return f"the disk failed under the store {path}; {safe}"
    return f"the store {path} cannot be used"
