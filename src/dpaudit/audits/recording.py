"""An audit's place in a store: the unfinished audit that it resumes, or a new one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from dpaudit.audits.description import Description
from dpaudit.errors import StoreError
from dpaudit.scores import AuditRecord, Store


def begin(
    store: Store,
    name: str | None,
    description: Description,
    versions: Mapping[str, Any],
    *,
    open_choices: Collection[str] = (),
    reuse: bool = False,
) -> tuple[AuditRecord, Description]:
    """The record of an audit, and its description as it is played.

    Only an unfinished audit of the same name and settings is resumed. The tile size may have been
    chosen from the memory that was free when the audit was started. Its tiles are numbered by it,
    so that a resumed audit keeps it unless the user asks for another.

    Arguments:
        store: The store.
        name: The name of the audit, if the user gave one.
        description: The audit, with all choices of speed made.
        versions: Versions of the software of this session.
        open_choices: The speed settings that the user left open: ``tile_size``, ``compile``.
        reuse: Also continue with a finished audit, whose runs are then read.
    """
    for record in reversed(store.audits()):
        if record.name != name or (record.finished and not reuse):
            continue
        try:
            known = Description.of(record)
        except StoreError:  # of another program
            continue
        chosen = {choice: getattr(known.speed, choice) for choice in open_choices}
        if replace(description, speed=replace(description.speed, **chosen)) == known:
            if record.finished is None:
                record = store.begin(name, record.configuration, versions)
            return record, known
    return store.begin(name, description.to_dict(), versions), description
