"""``dpaudit report``: write the page of one audit, or of several side by side."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpaudit._numbers import decimals
from dpaudit._validate import printable
from dpaudit.cli._audit_options import ReadConfidence, ReadDelta, StoreToRead
from dpaudit.cli._options import Json, Overwrite, check_files, option
from dpaudit.cli._output import print_json, writing
from dpaudit.configuration import store_path
from dpaudit.errors import StoreError
from dpaudit.scores import AuditRecord, Store
from dpaudit.scores.store import reading

if TYPE_CHECKING:
    from dpaudit.report import PageData

_MOST_PRINTED = 10


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
    store: StoreToRead = None,
    out: Annotated[
        Path | None, option("File to write.", "PAGE.html", "named after the audit")
    ] = None,
    delta: ReadDelta = None,
    confidence: ReadConfidence = None,
    overwrite: Overwrite = False,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    json: Json = False,
) -> None:
    """Write the report of an audit as one HTML file that needs no network.

    Several audits, at most 20, are compared side by side. Unfinished audits
    show their results so far.

    [bold]dpaudit report 3f2a91 --out housing.html --open[/]

    [bold]dpaudit report audits.sqlite[/]
    """
    check_files(locals(), "out", room=5_000_000)  # a page is smaller
    from dpaudit.report import write_page  # slow to import

    pages = _pages(audits or [], store, delta=delta, confidence=confidence)
    name = f"audit-{pages[0].identity[:8]}.html" if len(pages) == 1 else "audits.html"
    target = out or Path(name)
    if not json:
        only = pages[0] if len(pages) == 1 else None
        for page in pages[:_MOST_PRINTED]:
            print(printable(f"{page.title}: {page.sentence}" if page is only else _line(page)))
        if len(pages) > _MOST_PRINTED:
            print(f"... and {len(pages) - _MOST_PRINTED:,} more audits, all in the page.")
    with writing("--out"):
        write_page(pages, target, overwrite=overwrite)
    written = target.resolve()
    size = written.stat().st_size
    if json:
        entries = [_entry(page) for page in pages]
        print_json({"page": str(written), "bytes": size, "audits": entries})
    else:
        print(printable(f"Written to {written} ({size / 1e6:.2f} MB)."))
    if show:
        webbrowser.open(written.as_uri())


def _pages(
    audits: list[str], store: str | None, *, delta: float | None, confidence: float | None
) -> list[PageData]:
    """The pages of the audits in the order given."""
    from dpaudit.report import thresholds_for
    from dpaudit.report.comparison import MOST_COMPARED
    from dpaudit.report.pages import record_page

    usual = store_path(store)
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
        unique = list({(record.store.path, record.id): record for record in records}.values())
        if len(unique) > MOST_COMPARED:
            print(
                f"dpaudit: the page has the newest {MOST_COMPARED} of {len(unique):,} audits; name "
                "audits to choose others",
                file=sys.stderr,
            )
            unique = unique[-MOST_COMPARED:]
        most = thresholds_for(len(unique))
        pages = []
        for record in unique:
            with reading(record):
                page = record_page(record, delta=delta, confidence=confidence, most_thresholds=most)
                pages.append(page)
        return pages


def _line(page: PageData) -> str:
    """One of several audits; the sentences of all would be a wall of text."""
    bound = "" if page.lower is None else f", epsilon >= {decimals(page.lower.epsilon, 2)}"
    return f"{page.identity[:8]}  {page.title}: {page.verdict}{bound}"


def _entry(page: PageData) -> dict[str, Any]:
    """One audit for ``--json``; ``dpaudit show --json`` prints all of it."""
    return {
        "audit": page.identity,
        "title": page.title,
        "verdict": page.verdict,
        "sentence": page.sentence,
        "lower": None if page.lower is None else page.lower.to_dict(),
        "upper": None if page.upper is None else page.upper.to_dict(),
        "runs": page.runs[0],
        "runs_asked": page.runs[1],
    }
