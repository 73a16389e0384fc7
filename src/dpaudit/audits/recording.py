"""Finding an audit's place in a store: go on with it, begin it, or refuse a changed one."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpaudit.errors import ConfigurationChanged
from dpaudit.scores import AuditRecord, Store
from dpaudit.scores.comparing import canonical_json, differences

if TYPE_CHECKING:
    from dpaudit.engine import Speed


def begin(
    store: Store,
    name: str | None,
    configuration: Mapping[str, Any],
    versions: Mapping[str, Any],
    *,
    asked: Speed,
    settled: Speed,
) -> tuple[AuditRecord, Speed]:
    """The record of this audit, and the speed it must be played at.

    The tile size may have been settled from the memory that was free when the audit was begun. Its
    tiles are numbered by it, so that an audit that goes on keeps it, unless the user asked for
    another.

    Arguments:
        store: Where.
        name: What the user calls the audit, if anything.
        configuration: With the settled speed in it.
        versions: Of this session.
        asked: The speed as the user gave it: what is open there may be taken from the record.
        settled: The speed as it would be played from scratch.
    """
    for known in store.audits():
        adopted = _adopt(configuration, known.configuration, asked)
        same = canonical_json(adopted) == canonical_json(known.configuration)
        if same and (known.name == name if name is not None else True):
            speed = adopted["speed"]
            settled = replace(settled, tile_size=speed["tile_size"], compile=speed["compile"])
            return store.begin(known.name, adopted, versions), settled
    if name is None:
        _refuse_a_change(store, configuration)
    return store.begin(name, configuration, versions), settled


def _adopt(
    configuration: Mapping[str, Any], known: Mapping[str, Any], asked: Speed
) -> dict[str, Any]:
    """The configuration with what was left open taken from a known one."""
    adopted = copy.deepcopy(dict(configuration))
    there = known.get("speed", {})
    if asked.tile_size is None and "tile_size" in there:
        adopted["speed"]["tile_size"] = there["tile_size"]
    if asked.compile == "auto" and "compile" in there:
        adopted["speed"]["compile"] = there["compile"]
    return adopted


def _refuse_a_change(store: Store, configuration: Mapping[str, Any]) -> None:
    """Raise where the store holds an unfinished audit of the same training and adversary.

    Somebody who was interrupted and comes back with another option most likely wants the old
    audit; to have both, one of them needs a name.
    """
    for known in store.audits():
        other = known.configuration
        if known.name is None and _begun(known) and _kin(other, configuration):
            changed = "; ".join(differences(other, json.loads(canonical_json(configuration))))
            raise ConfigurationChanged(
                f"{store.path} has an unfinished audit {known.id[:8]} with other settings: "
                f"{changed}; go on with those, or give this audit a name or another store"
            )


def _begun(known: AuditRecord) -> bool:
    """Whether something is played and something is left to play.

    Without a single tile nothing could be lost; with all of them, but no result (too few scores
    for a bound), nothing could be gained.
    """
    tiles, other = known.finished_tiles(), known.configuration
    played = len(tiles) * other.get("speed", {}).get("tile_size", 1)
    return known.finished is None and 0 < played < other.get("runs", 0)


def _kin(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(
        one.get(part, {}).get("name") == other[part]["name"] for part in ("mechanism", "adversary")
    )
