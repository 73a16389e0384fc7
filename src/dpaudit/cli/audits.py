"""``dpaudit list``, ``show`` and ``collect``: the audits in a store. None of them imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dpaudit._numbers import decimals
from dpaudit._validate import printable
from dpaudit.cli._audit_options import ReadConfidence, ReadDelta, StoreToRead
from dpaudit.cli._exit import decided
from dpaudit.cli._options import (
    AllBounds,
    ClaimedEpsilon,
    Detect,
    Json,
    LeastPower,
    Overwrite,
    PairOnly,
    SamplingRate,
    check_files,
    claim_from,
    option,
)
from dpaudit.cli._output import console, print_json, print_result, print_then_write
from dpaudit.cli.receipts import IncludeScores, PlanToName, ReceiptOut, plan_of, write_receipt
from dpaudit.configuration import store_path
from dpaudit.errors import DpauditError, InvalidInput, StoreError
from dpaudit.scores import AuditRecord, Store
from dpaudit.scores.store import reading

if TYPE_CHECKING:
    from dpaudit.audits import AuditResult


def list_audits(store: StoreToRead = None, json: Json = False) -> None:
    """List the audits in the store, the oldest first.

    [bold]dpaudit list --store audits.sqlite[/]
    """
    with _open(store) as opened:
        entries = [_entry_or_problem(record) for record in opened.audits()]
        path = opened.path
    if json:
        print_json({"store": path, "audits": entries})
    else:
        _print_list(entries, path)


def show(
    audit: Annotated[
        str | None,
        typer.Argument(
            metavar="AUDIT",
            help="Name of the audit, or the first digits of its identity.",
            show_default="the newest",
        ),
    ] = None,
    store: StoreToRead = None,
    delta: ReadDelta = None,
    confidence: ReadConfidence = None,
    claimed_epsilon: ClaimedEpsilon = None,
    noise_multiplier: Annotated[
        float | None, option("Claimed noise multiplier, instead of an epsilon.", "s")
    ] = None,
    steps: Annotated[int | None, option("Claimed number of steps.", "T")] = None,
    sampling_rate: SamplingRate = None,
    pair_only: PairOnly = False,
    detect: Detect = None,
    power: LeastPower = None,
    receipt: ReceiptOut = None,
    registered: PlanToName = None,
    include_scores: IncludeScores = None,
    overwrite: Overwrite = False,
    all_bounds: AllBounds = False,
    json: Json = False,
) -> None:
    """Show one audit: its verdict, its bounds and its settings.

    Everything is computed from the stored scores. They can be asked something
    else: another delta or confidence, or another claim, for which no fresh runs
    were played, so that p <= 0.001 is a violation.
    [bold]dpaudit show 3f2a91 --delta 1e-6[/]
    [bold]dpaudit show 3f2a91 --claimed-epsilon 4[/]
    [bold]dpaudit show 3f2a91 --receipt audit.receipt.json[/]

    The exit code is that of the verdict, as for dpaudit audit.
    """
    given = locals()
    check_files(given, "receipt")
    if receipt is None and registered is not None:
        raise InvalidInput(f"--registered needs --receipt, got {str(registered)!r} alone")
    from dpaudit.audits import read_result  # slow to import

    named = ("claimed_epsilon", "noise_multiplier", "steps", "sampling_rate")
    claim = None
    if pair_only or any(given[name] is not None for name in named):
        claim = claim_from(given, 1e-5 if delta is None else delta)
    with _open(store) as opened:
        record = _newest(opened) if audit is None else opened.audit(audit)
        asked: dict[str, Any] = {"claim": claim, "delta": delta, "confidence": confidence}
        asked |= {"detect": detect, "power": power}
        with reading(record):
            result = read_result(record, **asked)
            entry, path = _entry(record), opened.path
            state = {key: entry[key] for key in ("state", "created", "finished", "runs_asked")}
            state["sessions"] = [dict(session) for session in record.versions]
            state |= {"played_on": dict(record.played_on()), "store": path}
            code = decided(result.verdict)
            files: dict[str, Callable[[], object]] = {}
            if receipt is not None:
                plan = None
                if registered is not None:
                    plan = plan_of(registered, result.configuration, result.question.to_dict())
                made = {**asked, "include_scores": include_scores, "plan": plan}
                files["--receipt"] = lambda: write_receipt(
                    record, receipt, overwrite=overwrite, **made
                )
            print_then_write(
                lambda: (
                    print_json({**result.to_dict(), **state})
                    if json
                    else _print_shown(result, path, all_bounds=all_bounds)
                ),
                files,
            )
    raise typer.Exit(code)


def _print_shown(result: AuditResult, path: str, *, all_bounds: bool) -> None:
    screen = console()
    print_result(result, where=path, all_bounds=all_bounds)
    screen.print()
    for failure in result.failures:
        screen.print(Text(f"run {failure.run} failed: {failure.error}\n{failure.traceback}"))
    for line in setting_lines(result.configuration):
        screen.print(Text(line, style="dim"))


def collect(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="The --slurm-folder of the audit, or one audit's folder in it."
        ),
    ],
    store: StoreToRead = None,
    json: Json = False,
) -> None:
    """Bring the results of SLURM jobs into the store, without waiting for missing ones.

    The audit was started with --executor slurm. If that command still runs,
    this one is not needed. When no tile is missing, the same audit command
    computes the bounds.

    [bold]dpaudit collect /shared/me/dpaudit-slurm --store audits.sqlite[/]
    """
    from dpaudit.audits import Description  # slow to import
    from dpaudit.audits.game import check_tile
    from dpaudit.executors.slurm_array import collect_tiles, folders_of_tiles

    where = store_path(store)
    rows: list[dict[str, Any]] = []
    with Store.open(where, create=False) as opened:
        for place in folders_of_tiles(folder):
            audit, _, phase = place.name.partition("-")
            record = opened.audit(audit)
            description = Description.of(record)
            tiles = [(tile, result) for tile, result in collect_tiles(place) if tile >= 0]
            for tile, result in tiles:
                check_tile(description, int(phase or 0), tile, result)
            added = record.add_tiles(tiles, int(phase or 0))
            rows.append(
                {"audit": record.id, "name": record.name, "tiles": len(tiles), "new": added}
            )
    if not rows:
        raise InvalidInput(f"{folder} has no results of SLURM jobs; give the --slurm-folder")
    if json:
        print_json({"store": where, "audits": rows})
        return
    for row in rows:
        label = row["name"] or row["audit"][:8]
        console().print(f"{label}: {row['tiles']:,} tiles, {row['new']:,} of them new in {where}.")


def _open(store: str | None) -> Store:
    return Store.open(store_path(store), create=False)


def _newest(store: Store) -> AuditRecord:
    audits = store.audits()
    if not audits:
        raise StoreError(f"there is no audit in {store.path} to show")
    return audits[-1]


def _entry_or_problem(record: AuditRecord) -> dict[str, Any]:
    """One audit for a list; one that cannot be read must not hide the others."""
    try:
        with reading(record):
            return _entry(record)
    except StoreError:
        empty = dict.fromkeys(("verdict", "tightness", "lower", "upper", "delta", "canaries"))
        return {
            "audit": record.id,
            "name": record.name,
            "training": "",
            "adversary": "",
            "runs": 0,
            "runs_asked": 0,
            "state": "unreadable",
            "created": record.created,
            "finished": None,
            **empty,
        }


def _entry(record: AuditRecord) -> dict[str, Any]:
    """One audit for a list, without reading its scores."""
    from dpaudit.audits import Description  # slow to import

    finished, summary = record.finished, record.summary
    try:
        description = Description.of(record)
    except DpauditError:  # another program's audit
        training, adversary, runs, asked, canaries = "", "", 0, 0, None
    else:
        training, adversary = description.mechanism.name, description.adversary.name
        asked, canaries = int(summary.get("asked", description.runs)), description.canaries
        runs = int(summary["runs"]) if "runs" in summary else description.runs_in(record)
    delta = summary.get("lower", {}).get("delta")
    return {
        "audit": record.id,
        "name": record.name,
        "training": training,
        "adversary": _text(summary.get("adversary")) or adversary,
        "runs": runs,
        "runs_asked": max(asked, runs),
        "canaries": canaries,
        "state": "finished" if finished else "unfinished",
        "created": record.created,
        "finished": finished,
        "verdict": _text(summary.get("verdict")),
        "tightness": summary.get("tightness"),
        "lower": _bound(summary.get("lower", {}).get("epsilon")),
        "upper": _bound(summary.get("upper", {}).get("epsilon")),
        "delta": None if delta is None else float(delta),
    }


def _text(value: Any) -> str | None:
    """A text that was stored; a summary may hold anything."""
    if not isinstance(value, str | None):
        raise TypeError(f"{value!r} is no text")
    return value


def _bound(value: Any) -> float | str | None:
    """A number that was stored; infinity is the text "inf"."""
    return value if value is None or value == "inf" else float(value)


def _print_list(entries: list[dict[str, Any]], path: str) -> None:
    """One line for each audit; not a table of rich, which takes ten times as long."""
    # A single delta is printed above the list; several need a column.
    deltas = sorted({entry["delta"] for entry in entries if entry["delta"] is not None})
    common = f", epsilon at delta = {deltas[0]:g}" if len(deltas) == 1 else ""
    numbers = ("runs", "lower", "upper", *(["delta"] if len(deltas) > 1 else []))
    print(printable(f"Audits in {path}{common}"))
    print("audit   ", *(f"{name:>11}" for name in numbers), " verdict       training")
    for entry in entries:
        runs, asked = entry["runs"], entry["runs_asked"]
        cells = {
            "runs": f"{runs:,}" if runs == asked else f"{runs:,}/{asked:,}",
            "lower": _number(entry["lower"]),
            "upper": _number(entry["upper"]),
            "delta": "" if entry["delta"] is None else f"{entry['delta']:g}",
        }
        played = f"{entry['training']} by {entry['adversary']}" if entry["training"] else ""
        what = ": ".join(part for part in (entry["name"], played) if part)
        verdict = entry["verdict"] or entry["state"]
        print(
            f"{entry['audit'][:8]:<8}",
            *(f"{cells[name]:>11}" for name in numbers),
            printable(f" {verdict:<12}  {what}"),
        )


def _number(value: float | str | None) -> str:
    return decimals(value, 2) if isinstance(value, float) else "∞" if value == "inf" else ""


def setting_lines(configuration: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Settings as indented lines."""
    for key, value in configuration.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}"
            yield from setting_lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {value}"
