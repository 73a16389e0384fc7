"""An audit's place in a store: resume it, start it, or refuse changed settings."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpaudit.audits.description import DescribedTraining, Description
from dpaudit.errors import ConfigurationChanged, StoreError
from dpaudit.scores import AuditRecord, Failure, ScoreBlock, Store
from dpaudit.scores.comparing import canonical_json, differences

_CODE = ("source", "code", "files", "packages")
_QUESTION = ("claim", "delta", "confidence", "until_violation", "detect", "power")


def begin(
    store: Store,
    name: str | None,
    description: Description,
    versions: Mapping[str, Any],
    *,
    open_choices: Collection[str] = (),
    fresh: bool = False,
) -> tuple[AuditRecord, Description, tuple[str, ...]]:
    """The record of an audit, its description as it is played, and notices for the user.

    The tile size may have been chosen from the memory that was free when the audit was started.
    Its tiles are numbered by it, so that a resumed audit keeps it unless the user asks for
    another.

    Arguments:
        store: The store.
        name: The name of the audit, if the user gave one.
        description: The audit, with all choices of speed made.
        versions: Versions of the software of this session.
        open_choices: The speed settings that the user left open: ``tile_size``, ``compile``.
        fresh: Start a new audit even if the store has an equal one.
    """
    known = [(record, found) for record in store.audits() if (found := _read(record)) is not None]
    if fresh:
        same = [one for _, one in known if _without_attempt(one) == _without_attempt(description)]
        attempt = 1 + max((one.attempt for one in same), default=0)
        description = replace(description, attempt=attempt)
    else:
        for record, found in known:
            adopted = _adopted(description, found, open_choices)
            if adopted == found and name in (None, record.name):
                store.begin(record.name, record.configuration, versions)
                return record, replace(found, runs=description.runs), ()
    notices = () if fresh else _changed_code(known, description)
    taken = {record.name: found for record, found in known if record.name is not None}
    if name in taken and (fresh or _same_but_identity(taken[name], description)):
        name, asked = _free_name(name, taken), name
        notices = (
            f"the store has an audit {asked!r} of other code or another claim; it is kept, and "
            f"this audit is called {name!r}",
        )
    if name is None:
        _refuse_a_change(store, known, description)
    record = store.begin(name, description.to_dict(), versions)
    if not fresh:
        notices += _copied_runs(record, known, description)
    return record, description, notices


def _read(record: AuditRecord) -> Description | None:
    """The description of a stored audit; `None` if it cannot be compared."""
    try:
        return Description.of(record)
    except StoreError:
        return None


def _adopted(
    description: Description, known: Description, open_choices: Collection[str]
) -> Description:
    """The description with what was left open taken from a known one.

    An anytime-valid test may be given more runs at any time.
    """
    chosen = {choice: getattr(known.speed, choice) for choice in open_choices}
    adopted = replace(description, speed=replace(description.speed, **chosen))
    runs = known.runs if description.anytime else adopted.runs
    return replace(adopted, runs=runs, attempt=known.attempt)


def _without_attempt(description: Description) -> Description:
    return replace(description, attempt=1)


def _same_but_identity(one: Description, other: Description) -> bool:
    """Whether two audits of a user's training differ at most in code, claim or its test."""
    return _anonymous(one) is not None and _anonymous(one) == _anonymous(other)


def _changed_code(
    known: list[tuple[AuditRecord, Description]], description: Description
) -> tuple[str, ...]:
    """A notice if the runs of an earlier audit are not used because the code has changed."""
    ours = description.training
    for record, found in sorted(known, key=lambda one: one[0].created, reverse=True):
        theirs = found.training
        if ours is None or theirs is None or not record.finished_tiles():
            continue
        if not _same_but_identity(replace(found, runs=description.runs), description):
            continue
        if any(getattr(theirs, key) != getattr(ours, key) for key in _QUESTION):
            continue
        changed = [key for key in _CODE if getattr(theirs, key) != getattr(ours, key)]
        if not changed:
            return ()  # the same code with another number of runs
        what = "the code"
        if changed == ["packages"]:
            versions = "; ".join(differences(theirs.packages, ours.packages))
            what = f"the version of a package ({versions})"
        return (
            f"{what} has changed since audit {record.label} of {record.created}: its "
            f"{len(record.finished_tiles()):,} runs are kept, and not used for this audit",
        )
    return ()


def _anonymous(description: Description) -> Description | None:
    """The description without code, claim and test; `None` for an audit that dpaudit plays."""
    training = description.training
    if training is None:
        return None
    usual = DescribedTraining(name="", source="")
    values = {key: getattr(usual, key) for key in (*_CODE, *_QUESTION)}
    return replace(description, mechanism=replace(training, **values), attempt=1)


def _free_name(name: str, taken: Collection[str | None]) -> str:
    number = 2
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"


def _copied_runs(
    record: AuditRecord, known: list[tuple[AuditRecord, Description]], description: Description
) -> tuple[str, ...]:
    """Copy the runs of an audit of the same code under another claim, and say so.

    A test for a fixed number of runs may not reuse runs whose number was chosen by looking at
    them, so such an audit starts anew.
    """
    training = description.training
    if training is None or record.finished_tiles():
        return ()
    for other, found in known:
        theirs = found.training
        if theirs is None or not other.finished_tiles():
            continue
        asked = {key: getattr(training, key) for key in _QUESTION}
        same = replace(found, mechanism=replace(theirs, **asked), attempt=1, runs=description.runs)
        fixed = found.runs == description.runs and not theirs.until_violation
        if same == _without_attempt(description) and (training.until_violation or fixed):
            _copy(record, other)
            kept = other.summary or {}
            record.annotate(
                {key: kept[key] for key in ("adversary", "doubts", "covers") if key in kept}
            )
            return (
                f"the runs of audit {other.label} of {other.created} are used, which tested "
                "another claim on the same code",
            )
    return ()


def _copy(record: AuditRecord, other: AuditRecord) -> None:
    scores = other.scores()
    tiles: list[tuple[int, ScoreBlock | Failure]] = [
        (failure.run, failure) for failure in other.failures()
    ]
    for run in np.unique(scores.run).tolist():
        part = scores.where(scores.run == run)
        block = ScoreBlock(
            run=part.run,
            canary=part.canary,
            horizon=np.zeros(len(part), dtype=np.int64),
            inserted=part.inserted,
            score=part.score,
        )
        tiles.append((run, block))
    record.add_tiles(tiles)


def _refuse_a_change(
    store: Store, known: list[tuple[AuditRecord, Description]], description: Description
) -> None:
    """Raise if the store has an unfinished audit of the same training with other settings.

    A user who was interrupted and returns with another option most likely wants the old audit.
    Changed code or another claim is always a new audit.
    """
    for record, found in known:
        same = (
            found.mechanism.name == description.mechanism.name
            and found.adversary.name == description.adversary.name
            and (found.training is None) == (description.training is None)
        )
        unfinished = record.name is None and record.finished is None
        if not (same and unfinished) or _same_but_identity(found, description):
            continue
        if 0 < found.runs_in(record) < found.runs:
            old, new = (json.loads(canonical_json(one.to_dict())) for one in (found, description))
            changed = "; ".join(differences(old, new))
            raise ConfigurationChanged(
                f"{store.path} has an unfinished audit {record.id[:8]} with other settings: "
                f"{changed}; resume it with those, or give this audit a name or another store"
            )
