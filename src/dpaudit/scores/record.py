"""One audit in a store: its settings, its tiles and its scores."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, final

import numpy as np

from dpaudit import _validate
from dpaudit.errors import InvalidInput, StoreError
from dpaudit.scores import columns
from dpaudit.scores.database import Database, insert, seal
from dpaudit.scores.failures import Failure
from dpaudit.scores.table import ScoreBlock, Scores


@final
@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """One audit in a store. Made by `Store.begin` and `Store.audit`.

    Arguments:
        id: 16 hexadecimal digits, from the name and the settings.
        name: The name that the user gave, if any.
        configuration: The settings it was begun with.
        created: Time of its beginning, in UTC.
        database: The file that it is stored in.
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
        """The different sets of software and device that were used, in the order of first use."""
        rows = self.database.sealed("sessions", "audit = ? ORDER BY rowid", self.id)
        return tuple(plain_mapping(text) for text in dict.fromkeys(row[2] for row in rows))

    @property
    def finished(self) -> str | None:
        """Time at which the audit was finished, in UTC; `None` while it is not."""
        when = self._row()[4]
        return None if when is None else str(when)

    @property
    def summary(self) -> Mapping[str, Any] | None:
        """The summary that `finish` stored; `None` while the audit is not finished."""
        text = self._row()[5]
        return None if text is None else plain_mapping(text)

    def finished_tiles(self) -> frozenset[int]:
        """The numbers of the tiles whose scores are safely stored."""
        return frozenset(self._rows_of_tiles())

    def played_on(self) -> Mapping[str, int]:
        """Machines, devices and precisions, each with the number of tiles that it played."""
        rows = self.database.sealed("tiles", "audit = ?", self.id)
        return Counter(row[4] for row in rows if row[4])

    def add_tile(self, index: int, block: ScoreBlock) -> bool:
        """Store the scores of a tile; false if they were there already, which changes nothing.

        A tile is a pure function of the audit and its number, so several processes may work on the
        same audit: a tile that arrives a second time has the same scores.
        """
        return self.add_tiles([(index, block)]) == 1

    def add_tiles(self, tiles: Sequence[tuple[int, ScoreBlock | Failure]]) -> int:
        """Store several tiles or none of them; returns how many were not there already.

        A tile of one run that failed is finished, too: it has a `Failure` in place of scores.
        """
        # Packed before the transaction, which is then short.
        packed = [self._packed(_validate.integer("index", index), tile) for index, tile in tiles]
        added = 0
        with self.database.transaction() as connection:
            for row, table, parts in packed:
                if insert(connection, "tiles", row, ignore=True):
                    for part in parts:
                        insert(connection, table, part)
                    added += 1
        return added

    def failures(self) -> tuple[Failure, ...]:
        """The runs that failed, in the order of their numbers."""
        rows = self.database.sealed("failures", "audit = ? ORDER BY run", self.id)
        names = ("run", "inserted", "canaries", "error", "traceback")
        return tuple(Failure(**dict(zip(names, row[2:], strict=True))) for row in rows)

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
        self._check_tiles()
        rows = self.database.sealed(
            "scores",
            "audit = ? AND horizon = ? ORDER BY tile",
            self.id,
            horizons[-1] if horizon is None else int(horizon),
        )
        return columns.unpack([row[3:] for row in rows])

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Mark the audit as finished, with its results for ``dpaudit list`` and ``show``."""
        self._summarise(summary, finished=now())

    def annotate(self, summary: Mapping[str, Any]) -> None:
        """Store what is known before the audit is finished."""
        self._summarise(summary, finished=None)

    def _summarise(self, summary: Mapping[str, Any], *, finished: str | None) -> None:
        try:
            text = json.dumps(dict(summary))
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"summary must be plain data: {error}") from None
        tiles = None if finished is None else len(self._rows_of_tiles())
        row = (*self._row()[:4], finished, text, tiles)
        with self.database.transaction() as connection:
            connection.execute(
                "UPDATE audits SET finished = ?, summary = ?, tiles = ?, seal = ? WHERE id = ?",
                (*row[4:], seal(row), self.id),
            )

    def _row(self) -> tuple[Any, ...]:
        rows = self.database.sealed("audits", "id = ?", self.id)
        if not rows:
            raise StoreError(f"audit {self.label} is no longer in {self.database.path}")
        return rows[0]

    def _rows_of_tiles(self) -> dict[int, int]:
        """For each tile the number of its rows of scores."""
        rows = self.database.sealed("tiles", "audit = ?", self.id)
        return {row[1]: row[2] for row in rows}

    def _check_tiles(self) -> None:
        """Raise where tiles or rows of scores are missing."""
        stored = dict(
            self.database.rows(
                "SELECT tile, sum(rows) FROM scores WHERE audit = ? GROUP BY tile", self.id
            )
        )
        tiles = self._rows_of_tiles()
        if {tile: count for tile, count in tiles.items() if count} != stored or len(tiles) < (
            self._row()[6] or 0
        ):
            raise StoreError(
                f"the store {self.database.path} is damaged: scores of audit {self.label} are "
                "missing; restore a copy, or start with another file"
            )

    def _packed(
        self, index: int, tile: ScoreBlock | Failure
    ) -> tuple[tuple[Any, ...], str, list[tuple[Any, ...]]]:
        """The row of the tile, and the table and rows of its content."""
        if isinstance(tile, Failure):
            row = (self.id, index, tile.run, tile.inserted, tile.canaries, tile.error)
            return (self.id, index, 0, now(), None), "failures", [(*row, tile.traceback)]
        parts = [
            (self.id, index, horizon, *columns.pack(tile.scores(horizon)))
            for horizon in tile.horizons
        ]
        return (self.id, index, len(tile), now(), tile.played_on or None), "scores", parts


def plain_mapping(text: object) -> Mapping[str, Any]:
    """A mapping that was stored as JSON; `StoreError` where it is damaged."""
    try:
        content = json.loads(str(text))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise StoreError(f"the store is damaged: {str(text)[:40]!r} is not a JSON object")
    return MappingProxyType(content)


def now() -> str:
    """The time in UTC, as the store writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
