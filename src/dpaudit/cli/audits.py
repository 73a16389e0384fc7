"""``dpaudit list`` and ``dpaudit show``: what is in the store. Neither needs torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from dpaudit.cli._audit_options import Json, ReadConfidence, ReadDelta, StoreFile
from dpaudit.configuration import DEFAULT_STORE


def list_audits(store: StoreFile = None, json: Json = False) -> None:
    """List the audits in the store, the oldest first.

    [bold]dpaudit list --store audits.sqlite[/]
    """
    with _open(store) as opened:
        entries = [_entry(record) for record in opened.audits()]
        path = opened.path
    if json:
        from dpaudit.cli._render import print_json

        print_json({"store": path, "audits": entries})
    else:
        _print_list(entries, path)


def show(
    audit: Annotated[
        str, typer.Argument(metavar="AUDIT", help="Its name, or the first digits of its identity.")
    ],
    store: StoreFile = None,
    delta: ReadDelta = None,
    confidence: ReadConfidence = None,
    json: Json = False,
) -> None:
    """Show one audit: its settings, its bounds, and how much of it is done.

    Bounds are read from the stored scores, so delta and confidence may be any.
    [bold]dpaudit show 3f2a91 --delta 1e-6[/]
    """
    from dpaudit.audits.stored import read_result

    with _open(store) as opened:
        record = opened.audit(audit)
        delta, confidence = read_at(record, delta, confidence)
        if record.configuration.get("kind") == "your training":
            from dpaudit.cli.audit_training import show_stored

            return show_stored(
                record, _entry(record), json=json, delta=delta, confidence=confidence
            )
        result = read_result(record, delta=delta, confidence=confidence)
        entry = _entry(record)
        path = opened.path
        sessions = [dict(one) for one in record.versions]
    if json:
        from dpaudit.cli._render import print_json

        state = {key: entry[key] for key in ("state", "created", "finished", "runs_asked")}
        print_json({**result.to_dict(), **state, "sessions": sessions, "store": path})
    else:
        _print_one(result, entry, path)


def read_at(record: Any, delta: float | None, confidence: float | None) -> tuple[float, float]:
    """At which delta and confidence to read a stored audit: as asked, as it was read, or usual."""
    lower = (record.summary or {}).get("lower", {})
    delta = lower.get("delta", 1e-5) if delta is None else delta
    confidence = (lower.get("confidence") or 0.95) if confidence is None else confidence
    return delta, confidence


def _open(store: str | None) -> Any:
    from dpaudit.scores import Store

    return Store.open(store or os.environ.get("DPAUDIT_STORE") or DEFAULT_STORE, create=False)


def _entry(record: Any) -> dict[str, Any]:
    """One audit for a list, without reading its scores; others than ours may be in the store."""
    configuration, summary = record.configuration, record.summary or {}
    runs = configuration.get("runs", 0)
    size = configuration.get("speed", {}).get("tile_size", 0)
    tiles = record.finished_tiles()
    if size == 1 and tiles:
        runs = max(runs, max(tiles) + 1)  # an audit until a violation may be given more runs
    return {
        "audit": record.id,
        "name": record.name,
        "training": configuration.get("mechanism", {}).get("name", ""),
        "adversary": configuration.get("adversary", {}).get("name", ""),
        # An audit that stopped at a violation may rest on fewer runs than the store has.
        "runs": summary.get("result", {}).get(
            "runs", sum(min(size, runs - tile * size) for tile in tiles)
        ),
        "runs_asked": runs,
        "canaries": configuration.get("canaries"),
        "state": "finished" if record.finished else "unfinished",
        "created": record.created,
        "finished": record.finished,
        "verdict": summary.get("verdict"),
        "lower": summary.get("lower", {}).get("epsilon"),
        "upper": summary.get("upper", {}).get("epsilon"),
        "delta": summary.get("lower", {}).get("delta"),
    }


def _print_list(entries: list[dict[str, Any]], path: str) -> None:
    from rich import box
    from rich.table import Table

    from dpaudit.cli._render import console

    # One delta stands above the table; several need a column.
    deltas = sorted({entry["delta"] for entry in entries if entry["delta"] is not None})
    several = len(deltas) > 1
    common = f", epsilon at delta = {deltas[0]:g}" if len(deltas) == 1 else ""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("audit", no_wrap=True)
    table.add_column("training and adversary")
    for header in ("runs", "lower", "upper", *(["delta"] if several else [])):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for entry in entries:
        whole = entry["runs"] == entry["runs_asked"]
        delta = "" if entry["delta"] is None else f"{entry['delta']:g}"
        table.add_row(
            entry["audit"][:8],
            _what(entry),
            f"{entry['runs']:,}" if whole else f"{entry['runs']:,}/{entry['runs_asked']:,}",
            _number(entry["lower"]),
            _number(entry["upper"]),
            *([delta] if several else []),
            entry["verdict"] or entry["state"],
        )
    console().print(f"Audits in {path}{common}", highlight=False)
    console().print(table)


def _what(entry: Mapping[str, Any]) -> str:
    """In one column, because three of them would not fit beside the numbers."""
    played = f"{entry['training']} by {entry['adversary']}" if entry["training"] else ""
    return ": ".join(part for part in (entry["name"], played) if part)


def _number(value: float | str | None) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "∞" if value == "inf" else ""


def setting_lines(configuration: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Settings as indented lines."""
    for key, value in configuration.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}"
            yield from setting_lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {value}"


def _print_one(result: Any, entry: dict[str, Any], path: str) -> None:
    from rich.text import Text

    from dpaudit.cli._audit_table import print_result
    from dpaudit.cli._render import console

    screen = console()
    for line in setting_lines(result.configuration):
        screen.print(Text(line, style="dim"))
    print_result(result, where=path)
    if entry["runs"] < entry["runs_asked"]:
        screen.print(
            Text(
                f"Unfinished: {entry['runs']:,} of {entry['runs_asked']:,} runs are done; the "
                "command that began it goes on with it."
            )
        )
