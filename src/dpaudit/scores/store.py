"""The store: one SQLite file with audits, their settings, versions, tiles and scores.

A tile is written in one transaction, so ``kill -9`` at any moment loses at most the tiles that are
being played; the same command resumes the audit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self, final

from dpaudit.errors import ConfigurationChanged, InvalidInput, StoreError
from dpaudit.scores.comparing import canonical_json, differences, identity
from dpaudit.scores.database import Database, insert
from dpaudit.scores.record import AuditRecord, now, plain_mapping

_MOST_LISTED = 50
"""Number of audits that an error message lists."""


@final
class Store:
    """An open store, to be used as a context manager in the process that opened it.

    See also: `AuditRecord`, one audit in it; `dpaudit.scores.ScoreBlock`, the scores of a tile.

    Example:
        >>> from dpaudit.scores import ScoreBlock
        >>> block = ScoreBlock(
        ...     run=[0, 1], canary=[0, 0], horizon=[250, 250], inserted=[1, 0], score=[3.0, 0.5]
        ... )
        >>> with Store.open(":memory:") as store:
        ...     record = store.begin("demo", {"steps": 250}, {"dpaudit": "0.1.0"})
        ...     record.add_tile(0, block)
        ...     record.finished_tiles(), record.scores()
        True
        (frozenset({0}), Scores(1 inserted, 1 not, 2 runs))
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, create: bool = True) -> Store:
        """Open the store at ``path``; make a new one if there is none and ``create`` is true."""
        return cls(Database(os.fspath(path), create=create))

    def close(self) -> None:
        """Close the file. What was added is in it already."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def path(self) -> str:
        """The file."""
        return self._database.path

    def begin(
        self, name: str | None, configuration: Mapping[str, Any], versions: Mapping[str, Any]
    ) -> AuditRecord:
        """Begin an audit, or resume it if the store has it already.

        Arguments:
            name: Name of the audit. The same name with other settings raises
                `ConfigurationChanged`. Without a name the settings identify the audit.
            configuration: Everything that decides the scores: text, numbers, lists, mappings.
            versions: Software and device of this session; recorded, and allowed to change.
        """
        if name is not None and not name.strip():
            raise InvalidInput(f"name must not be blank, got {name!r}")
        text, session = canonical_json(configuration), canonical_json(versions)
        audit, when = identity(name, text), now()
        with self._database.transaction() as connection:
            known = connection.execute(
                "SELECT configuration FROM audits WHERE name = ? OR id = ?", (name, audit)
            ).fetchone()
            if known is None:
                insert(connection, "audits", (audit, name, text, when, None, None, None))
            elif known[0] != text:
                changed = "; ".join(differences(plain_mapping(known[0]), plain_mapping(text)))
                raise ConfigurationChanged(
                    f"audit {name!r} in {self.path} was begun with other settings: {changed}; "
                    "go back to the old ones, or choose another name or store"
                )
            insert(connection, "sessions", (audit, when, session))
        ((*row, _, _, _),) = self._database.sealed("audits", "id = ?", audit)
        return self._record(*row)

    def audits(self) -> tuple[AuditRecord, ...]:
        """All audits, the oldest first."""
        rows = self._database.sealed("audits", "TRUE ORDER BY created, rowid")
        return tuple(self._record(*row[:4]) for row in rows)

    def _record(self, audit: str, name: str | None, text: str, created: str) -> AuditRecord:
        if identity(name, text) != audit:
            raise StoreError(
                f"the store {self.path} is damaged: the settings of audit {audit[:8]} do not fit "
                "its identity; restore a copy, or start with another file"
            )
        return AuditRecord(
            id=audit,
            name=name,
            configuration=plain_mapping(text),
            created=created,
            database=self._database,
        )

    def audit(self, which: str) -> AuditRecord:
        """The audit with this name or identity, of which the first digits are enough."""
        audits = self.audits()
        found = [audit for audit in audits if which in (audit.name, audit.id)]
        found = found or [audit for audit in audits if which and audit.id.startswith(which)]
        if len(found) == 1:
            return found[0]
        if found:
            problem, listed = f"{which!r} fits {len(found)} audits", found
        else:
            problem, listed = f"no audit {which!r}", list(audits)
        labels = ", ".join(audit.label for audit in listed[:_MOST_LISTED]) or "none"
        more = f" and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else ""
        raise StoreError(f"{problem} in {self.path}; to choose from: {labels}{more}")
