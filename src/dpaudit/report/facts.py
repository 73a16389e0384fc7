"""Settings, versions and times of an audit, as a reader meets them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpaudit.report.page_data import Facts, Progress

if TYPE_CHECKING:
    from dpaudit.scores import AuditRecord


def progress(done: int, asked: int) -> Progress | None:
    """How much is done, `None` where that is all."""
    if done >= asked:
        return None
    return Progress(
        done=done,
        asked=asked,
        remedy="The command that began it goes on with it; what is done is kept.",
    )


def facts_of(configuration: Mapping[str, Any]) -> Iterator[Facts]:
    """The settings, grouped as they are stored; single ones belong to the game."""
    game = {key: value for key, value in configuration.items() if not isinstance(value, Mapping)}
    parts = {key: value for key, value in configuration.items() if isinstance(value, Mapping)}
    order = ["mechanism", "adversary", "insertion"]
    for key in [*order, *(key for key in parts if key not in order)]:
        if key in parts:
            yield Facts(heading=_words(key), rows=tuple(_rows(parts[key])))
        if key == "insertion":
            yield Facts(heading="game", rows=tuple(_rows(game)))


def _rows(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in sorted(settings.items(), key=lambda item: item[0] != "name"):
        name = f"{prefix}{_words(key)}"
        if isinstance(value, Mapping):
            yield from _rows(value, f"{name}, ")
        else:
            yield name, _value(value)


def _words(key: str) -> str:
    return key.replace("_", " ")


def _value(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,}" if isinstance(value, int) else f"{value:g}"
        case list() | tuple():
            return ", ".join(_value(item) for item in value)
        case _:
            return str(value)


def sessions(record: AuditRecord) -> Facts:
    """When, for how long, and with what: one row for each kind of thing."""
    rows = [("created", record.created), ("finished", record.finished or "not yet")]
    summary = record.summary or {}
    if isinstance(summary.get("seconds"), int | float):
        rows.append(("wall time of the last call", seconds_in_words(summary["seconds"])))
    sessions = record.versions
    for key in dict.fromkeys(key for session in sessions for key in session):
        values = dict.fromkeys(str(session[key]) for session in sessions if key in session)
        rows.append((key, ", then ".join(values)))
    return Facts(heading="when and with what", rows=tuple(rows))


def seconds_in_words(seconds: float) -> str:
    """Seconds as a reader says them."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
