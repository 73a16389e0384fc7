"""Settings, versions and times of an audit as pairs of a name and a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpaudit.audits.identity import Description
from dpaudit.claims import Claim
from dpaudit.report.data import Facts, RunsDone
from dpaudit.scores import AuditRecord


def progress(done: int, asked: int) -> RunsDone | None:
    """How much is done; `None` if everything is."""
    if done >= asked:
        return None
    remedy = "Repeat the command that started the audit to resume it."
    return RunsDone(done=done, asked=asked, remedy=remedy)


def facts_of(description: Description, claim: Claim | None = None) -> Iterator[Facts]:
    """The settings in groups; single settings form a group of their own."""
    plain = description.to_dict()
    single = {key: value for key, value in plain.items() if not isinstance(value, Mapping)}
    parts = {key: value for key, value in plain.items() if isinstance(value, Mapping)}
    groups = {
        "mechanism" if description.training is None else "training": parts.pop("mechanism"),
        "adversary": parts.pop("adversary"),
        "insertion": parts.pop("insertion", {}),
        "game": single,
        **parts,
    }
    for heading, settings in groups.items():
        if settings:
            yield Facts(heading=_words(heading), rows=tuple(_rows(settings)))
    if claim is not None:
        yield Facts(heading="the claim", rows=tuple(_rows(_claim(claim.to_dict()))), compared=False)


def _claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    """The claim in words: its settings, its sampling and what it assumes."""
    settings = dict(claim.get("settings") or {})
    if "noise_multiplier" in settings:
        rate = settings.pop("sampling_rate", None)
        sampled = f"Poisson with rate {rate:g}" if rate else "none: every step may have the canary"
        settings["sampling"] = sampled
    assumed = "; ".join(claim.get("assumptions") or ()) or "nothing"
    return {"claim": claim["description"], **settings, "assumes": assumed}


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
        case None | "":
            return "none"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,}" if isinstance(value, int) else f"{value:g}"
        case list() | tuple():
            return ", ".join(_value(item) for item in value) or "none"
        case _:
            return str(value)


def sessions(record: AuditRecord) -> Facts:
    """When the audit was played, for how long, and with which software."""
    rows = [("created", record.created), ("finished", record.finished or "not yet")]
    summary = record.summary or {}
    if isinstance(summary.get("seconds"), int | float):
        rows.append(("duration of the last call", seconds_in_words(summary["seconds"])))
    versions = record.versions
    for key in dict.fromkeys(key for session in versions for key in session):
        values = dict.fromkeys(str(session[key]) for session in versions if key in session)
        rows.append((key, ", then ".join(values)))
    return Facts(heading="sessions", rows=tuple(rows), compared=False)


def seconds_in_words(seconds: float) -> str:
    """A duration for people."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
