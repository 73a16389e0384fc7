"""``dpaudit report``: write the page of one audit, or of several side by side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from dpaudit.cli._audit_options import Json, ReadConfidence, ReadDelta, StoreFile
from dpaudit.configuration import DEFAULT_STORE


def report(
    audits: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="AUDIT|STORE...",
            help="Audits by name or by the first digits of their identity; or store files, whose "
            "audits are all shown.",
            show_default="every audit in the store",
        ),
    ] = None,
    store: StoreFile = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PAGE.html", help="File to write.", show_default="named after the audit"
        ),
    ] = None,
    delta: ReadDelta = None,
    confidence: ReadConfidence = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    json: Json = False,
) -> None:
    """Write the report of an audit as one HTML file that needs no network.

    Several audits are compared side by side. Unfinished audits show their results so far.

    [bold]dpaudit report 3f2a91 --out housing.html --open[/]

    [bold]dpaudit report audits.sqlite[/]
    """
    from dpaudit.report import write_page

    found = _pages(audits or [], store, delta=delta, confidence=confidence)
    pages = [page for page, _ in found]
    name = f"audit-{pages[0].identity[:8]}.html" if len(pages) == 1 else "audits.html"
    written = write_page(pages, out or Path(name)).resolve()
    if json:
        from dpaudit.cli._render import print_json

        print_json(
            {
                "page": str(written),
                "bytes": written.stat().st_size,
                "audits": [_entry(page, runs) for page, runs in found],
            }
        )
    else:
        for page in pages:
            print(f"{page.title}: {page.sentence}")
        print(f"Written to {written} ({written.stat().st_size / 1e6:.2f} MB).")
    if show:
        import webbrowser

        webbrowser.open(written.as_uri())


def _pages(
    audits: list[str], store: str | None, *, delta: float | None, confidence: float | None
) -> list[tuple[Any, tuple[int, int]]]:
    """The pages of the audits in the order given, and the numbers of their runs."""
    from contextlib import ExitStack

    from dpaudit.audits.pages import record_page
    from dpaudit.errors import StoreError
    from dpaudit.report import thresholds_for
    from dpaudit.scores import AuditRecord, Store

    usual = store or os.environ.get("DPAUDIT_STORE") or DEFAULT_STORE
    with ExitStack() as stack:
        opened: dict[str, Store] = {}

        def open_store(path: str) -> Store:
            if path not in opened:
                opened[path] = stack.enter_context(Store.open(path, create=False))
            return opened[path]

        records: list[AuditRecord] = []
        for which in audits or [usual]:
            if which == usual or Path(which).is_file():
                records += open_store(which).audits()
            else:
                records.append(open_store(usual).audit(which))
        if not records:
            raise StoreError(f"there is no audit in {', '.join(audits) or usual} to report on")
        unique = list({(record.database.path, record.id): record for record in records}.values())
        most = thresholds_for(len(unique))
        pages = [
            record_page(record, delta=delta, confidence=confidence, most_thresholds=most)
            for record in unique
        ]
        return [(page, _runs(page, record)) for page, record in zip(pages, unique, strict=True)]


def _runs(page: Any, record: Any) -> tuple[int, int]:
    """The number of runs that the page uses, and the number asked for."""
    if page.progress is not None:
        return page.progress.done, page.progress.asked
    kept, asked = record.summary or {}, int(record.configuration["runs"])
    done = int(kept.get("runs", asked))
    return done, max(done, int(kept.get("asked", asked)))


def _entry(page: Any, runs: tuple[int, int]) -> dict[str, Any]:
    """One audit for ``--json``; ``dpaudit show --json`` prints all of it."""
    found = page.evidence
    upper = None if found is None else found.least_upper
    return {
        "audit": page.identity,
        "title": page.title,
        "verdict": page.verdict,
        "sentence": page.sentence,
        "lower": None if found is None else found.leading.to_dict(),
        "upper": None if upper is None else upper.to_dict(),
        "runs": runs[0],
        "runs_asked": runs[1],
    }
