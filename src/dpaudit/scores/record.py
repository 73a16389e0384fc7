"""One audit in a store: its settings, its tiles and its scores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, final

import numpy as np

from dpaudit import _validate
from dpaudit.errors import InvalidInput
from dpaudit.scores import columns
from dpaudit.scores.database import Database
from dpaudit.scores.failures import Failure
from dpaudit.scores.table import ScoreBlock, Scores


@final
@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """One audit in a store. Made by `Store.begin` and `Store.audit`.

    Arguments:
        id: 16 hexadecimal digits, from the name and the settings.
        name: What the user called it, if anything.
        configuration: The settings it was begun with.
        created: When, in UTC.
        database: The file it is kept in.
    """

    id: str
    name: str | None
    configuration: Mapping[str, Any] = field(compare=False)
    created: str
    database: Database = field(compare=False, repr=False)

    @property
    def label(self) -> str:
        """The name and the first digits of the identity, for lists."""
        return f"{self.name} ({self.id[:8]})" if self.name else self.id[:8]

    @property
    def versions(self) -> tuple[Mapping[str, Any], ...]:
        """The different sets of software and device that worked on it, in the order they came."""
        rows = self.database.rows(
            "SELECT versions FROM sessions WHERE audit = ? GROUP BY versions ORDER BY min(rowid)",
            self.id,
        )
        return tuple(MappingProxyType(json.loads(text)) for (text,) in rows)

    @property
    def finished(self) -> str | None:
        """When the audit was finished, in UTC; `None` while it is not."""
        ((when,),) = self.database.rows("SELECT finished FROM audits WHERE id = ?", self.id)
        return None if when is None else str(when)

    @property
    def summary(self) -> Mapping[str, Any] | None:
        """What `finish` was given."""
        ((text,),) = self.database.rows("SELECT summary FROM audits WHERE id = ?", self.id)
        return None if text is None else MappingProxyType(json.loads(text))

    def finished_tiles(self) -> frozenset[int]:
        """The numbers of the tiles whose scores are safely stored."""
        rows = self.database.rows("SELECT tile FROM tiles WHERE audit = ?", self.id)
        return frozenset(tile for (tile,) in rows)

    def add_tile(self, index: int, block: ScoreBlock) -> bool:
        """Store the scores of a tile; false if they were there already, which changes nothing.

        A tile is a pure function of the audit and its number, so two processes may well work on
        the same audit: whoever comes second with a tile brings nothing new.
        """
        return self.add_tiles([(index, block)]) == 1

    def add_tiles(self, tiles: Sequence[tuple[int, ScoreBlock | Failure]]) -> int:
        """Store several tiles at once, or none of them; how many were not there already.

        A tile of one run that failed is finished too: it has a `Failure` in place of scores.
        """
        # Packed before the transaction, which is then short.
        packed = [self._packed(_validate.integer("index", index), tile) for index, tile in tiles]
        added = 0
        with self.database.transaction() as connection:
            for row, statement, parts in packed:
                if connection.execute("INSERT OR IGNORE INTO tiles VALUES (?,?,?,?)", row).rowcount:
                    connection.executemany(statement, parts)
                    added += 1
        return added

    def _packed(
        self, index: int, tile: ScoreBlock | Failure
    ) -> tuple[tuple[Any, ...], str, list[tuple[Any, ...]]]:
        """The row of the tile, and the statement and rows of what is in it."""
        if isinstance(tile, Failure):
            row = (self.id, index, tile.run, tile.inserted, tile.canaries, tile.error)
            statement = "INSERT INTO failures VALUES (?,?,?,?,?,?,?)"
            return (self.id, index, 0, now()), statement, [(*row, tile.traceback)]
        rows: list[tuple[Any, ...]] = []
        for horizon in tile.horizons:
            part = tile.scores(horizon)
            packed = (
                columns.pack_integers(part.run),
                columns.pack_integers(part.canary),
                columns.pack_flags(part.inserted),
                columns.pack_numbers(part.score),
            )
            rows.append((self.id, index, horizon, len(part), *packed))
        return (
            (self.id, index, len(tile), now()),
            "INSERT INTO scores VALUES (?,?,?,?,?,?,?,?)",
            rows,
        )

    def failures(self) -> tuple[Failure, ...]:
        """The runs that failed, in their order."""
        if not self.database.has_table("failures"):
            return ()
        rows = self.database.rows(
            "SELECT run, inserted, canaries, error, traceback FROM failures "
            "WHERE audit = ? ORDER BY run",
            self.id,
        )
        return tuple(
            Failure(run=run, inserted=inserted, canaries=canaries, error=error, traceback=trace)
            for run, inserted, canaries, error, trace in rows
        )

    def horizons(self) -> tuple[int, ...]:
        """The numbers of steps at which scores were taken, ascending."""
        rows = self.database.rows(
            "SELECT DISTINCT horizon FROM scores WHERE audit = ? ORDER BY horizon", self.id
        )
        return tuple(horizon for (horizon,) in rows)

    def scores(self, horizon: int | None = None) -> Scores:
        """The scores at one horizon, by default the last, in the order of the tiles.

        While tiles are missing these are the scores so far.
        """
        horizons = self.horizons()
        if horizon is not None and horizon not in horizons:
            known = ", ".join(map(str, horizons)) or "none yet"
            raise InvalidInput(f"horizon must be one of the audit's ({known}), got {horizon!r}")
        if not horizons:
            return Scores(score=np.empty(0), inserted=np.empty(0, dtype=bool))
        rows = self.database.rows(
            "SELECT rows, run, canary, inserted, score FROM scores "
            "WHERE audit = ? AND horizon = ? ORDER BY tile",
            self.id,
            horizons[-1] if horizon is None else int(horizon),
        )
        return Scores(
            run=np.concatenate([columns.unpack_integers(row[1], row[0]) for row in rows]),
            canary=np.concatenate([columns.unpack_integers(row[2], row[0]) for row in rows]),
            inserted=np.concatenate([columns.unpack_flags(row[3], row[0]) for row in rows]),
            score=np.concatenate([columns.unpack_numbers(row[4], row[0]) for row in rows]),
        )

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Mark the audit as finished, with its results for ``dpaudit list`` and ``show``."""
        try:
            text = json.dumps(dict(summary))
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"summary must be plain data: {error}") from None
        with self.database.transaction() as connection:
            connection.execute(
                "UPDATE audits SET finished = ?, summary = ? WHERE id = ?", (now(), text, self.id)
            )


def now() -> str:
    """The time in UTC, as the store writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
