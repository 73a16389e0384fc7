"""Render `PageData` as one self-contained HTML file."""

from __future__ import annotations

import base64
import math
import os
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpaudit import _validate
from dpaudit._numbers import decimals, percent
from dpaudit._outputs import MARKER, write_output
from dpaudit._version import __version__
from dpaudit.audits.curves import MOST_THRESHOLDS
from dpaudit.audits.evidence import AuditEvidence
from dpaudit.errors import InvalidInput, MissingExtra
from dpaudit.report import charts, palette
from dpaudit.report.comparison import MOST_COMPARED, MOST_OVERLAID, compare
from dpaudit.report.pages import PageData
from dpaudit.report.words import assumed, capitalised, method_name, typeset, verdict_word

if TYPE_CHECKING:
    from dpaudit.audits.assessment import Assessment


def write_page(
    pages: PageData | Sequence[PageData], path: str | os.PathLike[str], *, overwrite: bool = False
) -> Path:
    """Write one audit, or several side by side, as one self-contained HTML file.

    See also: `dpaudit.AuditResult.report`; ``dpaudit report``.

    Arguments:
        pages: The audits to show.
        path: The file to write; an existing one that dpaudit did not write is refused.
        overwrite: Replace any existing file.
    """
    text = render_page([pages] if isinstance(pages, PageData) else pages)
    return write_output(path, text, overwrite=overwrite)


def render_page(pages: Sequence[PageData]) -> str:
    """The HTML of one page."""
    if not isinstance(pages, list | tuple) or not pages or not isinstance(pages[0], PageData):
        raise InvalidInput(
            "pages must hold at least one audit, such as result.page(), got "
            f"{_validate.shown(pages)}"
        )
    if len(pages) > MOST_COMPARED:
        raise InvalidInput(
            f"pages must hold at most {MOST_COMPARED} audits, got {len(pages):,}; choose some"
        )
    keys = _keys(pages)
    views = [_view(page, key) for page, key in zip(pages, keys, strict=True)]
    several = len(pages) > 1
    return str(
        _template().render(
            views=views,
            several=several,
            compared=compare(pages, keys) if several else None,
            **_parts(pages),
        )
    )


def _keys(pages: Sequence[PageData]) -> list[str]:
    """The anchor of each audit: the start of its identity, which stays the same in every page."""
    keys, taken = list[str](), Counter[str]()
    for page in pages:
        key = f"audit-{page.identity[:8]}" if page.identity else "audit"
        keys.append(f"{key}-{taken[key] + 1}" if taken[key] else key)
        taken[key] += 1
    return keys


def thresholds_for(audits: int) -> int:
    """How many thresholds each audit may carry, for a page of at most 3 MB.

    A threshold takes 110 bytes, everything else of an audit about 60,000.
    """
    room = (2_700_000 // audits - 60_000) // 110
    return max(100, min(MOST_THRESHOLDS, room))


def _view(page: PageData, key: str) -> dict[str, Any]:
    """What the template reads of one audit."""
    word, evidence = verdict_word(page.verdict), page.evidence
    return {
        "key": key,
        "page": page,
        "word": word,
        "sentence": _without(word, typeset(page.sentence)),
        "headline": () if page.statement is None else page.statement.rows,
        "drawn": None if evidence is None else _drawn(evidence, page.horizons),
    }


def _drawn(evidence: AuditEvidence, horizons: Sequence[Assessment]) -> dict[str, Any]:
    """The evidence of one audit, drawn."""
    upper = None if evidence.least_upper is None else evidence.least_upper.epsilon
    axis = charts.epsilon_axis(upper, *(bound.epsilon for bound in evidence.lower))
    shown = evidence.histogram
    return {
        "place": lambda epsilon: _percent(axis, epsilon),
        "ticks": axis.ticks(charts.round_steps(0.0, axis.high), lambda value: f"{value:g}"),
        "upper_place": None if upper is None else _percent(axis, upper),
        "histogram": None if shown is None else charts.histogram_chart(shown),
        "tradeoff": charts.tradeoff_chart(evidence.tradeoff),
        "profile": charts.profile_chart(evidence.profile),
        "horizons": charts.horizon_chart(horizons) if horizons else None,
        "live": _live(evidence),
    }


def _without(word: str, sentence: str) -> str:
    """The sentence without its first word, if the badge beside it shows that word already."""
    first, colon, rest = sentence.partition(": ")
    if not colon or first.split()[:2] != word.split()[:2]:
        return sentence
    return capitalised(rest)


def _percent(axis: charts.Axis, value: float) -> float:
    return round(float(axis.place(np.array([value]))[0]), 2)


def _live(evidence: AuditEvidence) -> dict[str, Any] | None:
    """The exact counts at every threshold, packed for the script of the page."""
    limits, shown = evidence.thresholds, evidence.histogram
    if limits is None or shown is None:
        return None
    counts, readings = limits.counts, limits.readings
    rates = counts.false_positives / counts.negatives, counts.false_negatives / counts.positives
    ring = charts.overlay_axes()
    columns = {
        **{name: _packed(values, "<f8") for name, values in vars(readings).items()},
        "across": _packed(ring.x.place(rates[0]), "<f8"),
        "up": _packed(ring.y.place(rates[1]), "<f8"),
    }
    return {
        "negatives": counts.negatives,
        "positives": counts.positives,
        "start": limits.start,
        "low": float(shown.edges[0]),
        "high": float(shown.edges[-1]),
        "columns": columns,
    }


def _packed(numbers: np.ndarray[Any, Any], kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, dtype=kind).tobytes()).decode("ascii")


def _parts(pages: Sequence[PageData]) -> dict[str, Any]:
    """The parts that all audits of a page share."""
    from markupsafe import Markup

    bounds = [bound for page in pages for bound in (page.upper, page.lower) if bound is not None]
    axis = charts.epsilon_axis(*(bound.epsilon for bound in bounds))
    several = ["comparison.js"] if len(pages) > 1 else []
    scripts = ["threshold.js", *several, "page.js"]
    title = pages[0].title if len(pages) == 1 else f"{len(pages):,} audits"
    return {
        "title": title,
        "version": __version__,
        "marker": MARKER,
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
        "percent": percent,
        "typeset": typeset,
        "label": method_name,
        "assumed": assumed,
        "sentence": capitalised,
        "verdict": verdict_word,
    }
    return environment.get_template("page.html")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return "∞" if math.isinf(value) else decimals(value, 2)
