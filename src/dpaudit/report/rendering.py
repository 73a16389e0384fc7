"""Render `PageData` as one self-contained HTML file."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, final

import numpy as np

from dpaudit._files import write_text
from dpaudit._version import __version__
from dpaudit.errors import InvalidInput, MissingExtra
from dpaudit.privacy import Bound
from dpaudit.report import charts, palette
from dpaudit.report.comparison import MOST_FULL_REPORTS, MOST_OVERLAID, compare
from dpaudit.report.data import MOST_THRESHOLDS, SMALLEST_RATE, AuditEvidence, PageData, Reading
from dpaudit.report.words import assumed, headline, meaning, typeset, verdict_word


def write_page(pages: PageData | Sequence[PageData], path: str | os.PathLike[str]) -> Path:
    """Write one audit, or several side by side, as one self-contained HTML file.

    See also: `dpaudit.AuditResult.report`; ``dpaudit report``.

    Arguments:
        pages: The audits to show.
        path: The file to write.
    """
    target = Path(path)
    if not target.absolute().parent.is_dir():
        raise InvalidInput(f"path must be in an existing folder, got {str(target)!r}")
    text = render_page([pages] if isinstance(pages, PageData) else pages)
    try:
        write_text(target, text)
    except OSError as error:
        raise InvalidInput(f"cannot write {target}: {error.strerror or error}") from None
    return target


def render_page(pages: Sequence[PageData]) -> str:
    """The HTML of one page."""
    if not pages:
        raise InvalidInput("pages must hold at least one audit, got none")
    keys = _keys(pages)
    brief = len(pages) > MOST_FULL_REPORTS
    views = [_view(page, key, brief=brief) for page, key in zip(pages, keys, strict=True)]
    several = len(pages) > 1
    return str(
        _template().render(
            views=views,
            several=several,
            brief=brief,
            compared=compare(pages, keys) if several else None,
            **_parts(pages),
        )
    )


def _keys(pages: Sequence[PageData]) -> list[str]:
    """The anchor of each audit: the start of its identity, which stays the same in every page."""
    keys: list[str] = []
    for page in pages:
        key = f"audit-{page.identity[:8]}" if page.identity else "audit"
        taken = sum(other == key or other.startswith(f"{key}-") for other in keys)
        keys.append(f"{key}-{taken + 1}" if taken else key)
    return keys


def thresholds_for(audits: int) -> int:
    """How many thresholds each audit may carry, for a page of at most 3 MB.

    A threshold takes 22 bytes, everything else of an audit about 65,000. A page of more than
    `MOST_FULL_REPORTS` audits shows no thresholds.
    """
    if audits > MOST_FULL_REPORTS:
        return 1
    room = (2_700_000 // audits - 65_000) // 22
    return max(500, min(MOST_THRESHOLDS, room))


@final
@dataclass(frozen=True, kw_only=True)
class _Row:
    """One bound on the axis of epsilon."""

    label: str
    assumes: str
    value: str
    place: float
    side: str
    leading: bool


@final
@dataclass(frozen=True, kw_only=True)
class _View:
    """What the template reads of one audit."""

    key: str
    page: PageData
    word: str
    sentence: str
    headline: tuple[tuple[str, str], ...]
    meaning: tuple[str, ...]
    rows: tuple[_Row, ...]
    ticks: tuple[charts.Tick, ...]
    upper_place: float | None
    histogram: charts.Chart | None
    tradeoff: charts.Chart | None
    profile: charts.Chart | None
    growth: charts.Chart | None
    horizons: charts.Chart | None
    reading: Reading | None
    live: dict[str, Any] | None


def _view(page: PageData, key: str, *, brief: bool) -> _View:
    found = None if brief else page.evidence
    upper = None if found is None or found.least_upper is None else found.least_upper.epsilon
    axis = charts.epsilon_axis(
        upper, *(() if found is None else (bound.epsilon for bound in found.lower))
    )
    limits = None if found is None else found.thresholds
    return _View(
        key=key,
        page=page,
        word=verdict_word(page.verdict),
        sentence=_without(verdict_word(page.verdict), typeset(page.sentence)),
        headline=() if brief else headline(page),
        meaning=tuple(typeset(text) for text in meaning(page)),
        rows=() if found is None else tuple(_rows(found, axis)),
        ticks=axis.ticks(charts.round_steps(0.0, axis.high), lambda value: f"{value:g}"),
        upper_place=None if upper is None else _percent(axis, upper),
        histogram=(
            None
            if found is None or found.histogram is None
            else charts.histogram_chart(found.histogram)
        ),
        tradeoff=None if found is None else charts.tradeoff_chart(found.tradeoff),
        profile=None if found is None else charts.profile_chart(found.profile),
        growth=(
            None if found is None or found.growth is None
            else charts.growth_chart(found.growth, upper)
        ),
        horizons=_horizons(page),
        reading=None if limits is None else limits.reading,
        live=None if found is None else _live(found),
    )  # fmt: skip


def _without(word: str, sentence: str) -> str:
    """The sentence without its first word, if the badge beside it shows that word already."""
    first, colon, rest = sentence.partition(": ")
    if not colon or first.split()[:2] != word.split()[:2]:
        return sentence
    return rest[:1].upper() + rest[1:]


def _rows(found: AuditEvidence, axis: charts.Axis) -> list[_Row]:
    return [
        _Row(
            label=_label(bound),
            assumes=assumed(bound),
            value=f"{bound.epsilon:.2f}",
            place=_percent(axis, bound.epsilon),
            side=bound.side,
            leading=bound is found.leading,
        )
        for bound in found.lower
    ]


def _label(bound: Bound) -> str:
    rule = bound.details.get("threshold_rule")
    return f"{bound.method}, {rule}" if rule else bound.method


def _percent(axis: charts.Axis, value: float) -> float:
    return round(float(axis.place(np.array([value]))[0]), 2)


def _horizons(page: PageData) -> charts.Chart | None:
    """Lower and upper bounds against steps, the whole training included."""
    if not page.horizons or page.evidence is None:
        return None
    uppers = [None if stop.upper is None else stop.upper.epsilon for stop in page.horizons]
    return charts.horizon_chart(
        [stop.steps for stop in page.horizons],
        [stop.lower.epsilon for stop in page.horizons],
        uppers,
    )


def _live(found: AuditEvidence) -> dict[str, Any] | None:
    """The exact counts at every threshold, packed for the script of the page."""
    limits, shown = found.thresholds, found.histogram
    if limits is None or shown is None:
        return None
    counts = limits.counts
    return {
        "delta": limits.delta,
        "confidence": limits.confidence,
        "negatives": counts.negatives,
        "positives": counts.positives,
        "start": limits.start,
        "low": float(shown.edges[0]),
        "high": float(shown.edges[-1]),
        "smallestRate": SMALLEST_RATE,
        "thresholds": _packed(counts.thresholds, "<f8"),
        "falsePositives": _packed(counts.false_positives, "<u4"),
        "falseNegatives": _packed(counts.false_negatives, "<u4"),
    }


def _packed(numbers: np.ndarray[Any, Any], kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, dtype=kind).tobytes()).decode("ascii")


def _parts(pages: Sequence[PageData]) -> dict[str, Any]:
    """The parts that all audits of a page share."""
    from markupsafe import Markup

    bounds = [bound for page in pages for bound in (page.upper, page.lower) if bound is not None]
    axis = charts.epsilon_axis(*(bound.epsilon for bound in bounds))
    several = ["comparison.js"] if len(pages) > 1 else []
    scripts = ["numbers.js", "threshold.js", *several, "page.js"]
    title = pages[0].title if len(pages) == 1 else f"{len(pages):,} audits"
    return {
        "title": title,
        "version": __version__,
        "roles": palette.ROLES,
        "cycle": palette.CYCLE,
        "most_overlaid": MOST_OVERLAID,
        "axis_ticks": axis.ticks(charts.round_steps(0.0, axis.high), lambda v: f"{v:g}"),
        "place": lambda value: _percent(axis, value),
        "style": Markup(_file("style.css")),
        "scripts": [Markup(_file(name)) for name in scripts],
    }


def _file(name: str) -> str:
    return (files("dpaudit.report") / "page" / name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _template() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("writing a page", "report") from None
    environment = Environment(
        loader=PackageLoader("dpaudit.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": _number,
        "rate": lambda value: f"{100 * value:.3g} %",
        "typeset": typeset,
        "label": _label,
        "assumed": assumed,
        "sentence": lambda text: text[:1].upper() + text[1:],
        "verdict": verdict_word,
    }
    return environment.get_template("page.html")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return "∞" if math.isinf(value) else f"{value:.2f}"
