"""Several audits side by side: the settings that differ, and their trade-off functions together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

from dpaudit.report import charts, palette
from dpaudit.report.pages import PageData
from dpaudit.report.words import verdict_word

MOST_COMPARED = 20
"""Largest number of audits in a page."""

MOST_OVERLAID = len(palette.CYCLE)
"""Largest number of trade-off functions in one chart: one for each colour."""

_FIRST_OVERLAID = 6
_SHOWN = ("runs",)  # settings that have a column in every comparison
_LONG = 24  # characters from which a column needs room for several words
_MOST_COLUMNS = 6  # settings that are shown before the reader asks for all
_FINGERPRINT = re.compile("[0-9a-f]{12,}")
_FIRST = "adversary"  # the setting that is shown before all others
_DETAILS = ("settings, class", "crafted", "horizons", "tile size")  # follow from other settings
_SHARES = (100, 60, 35)  # how much of an adversary's colour its first, second, third curve has


@final
@dataclass(frozen=True, kw_only=True)
class Column:
    """A setting that is not the same in all audits."""

    name: str
    values: tuple[str, ...]
    is_further: bool = False

    @cached_property
    def is_long(self) -> bool:
        """Whether a value has several words."""
        return max(map(len, self.values)) > _LONG

    @property
    def is_detail(self) -> bool:
        """Whether it is a fingerprint, or follows from other settings."""
        return self.name in _DETAILS or any(map(_FINGERPRINT.fullmatch, self.values))

    @property
    def importance(self) -> tuple[bool, int]:
        """Settings of many audits first, details last."""
        return not self.is_detail, sum(map(bool, self.values))


@final
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the table and the chart of a comparison show."""

    counts: tuple[tuple[str, int], ...]
    columns: tuple[Column, ...]
    common: tuple[tuple[str, str], ...]
    chart: charts.Chart
    drawn: tuple[str, ...]
    curves: dict[str, Any]

    @property
    def further(self) -> bool:
        """Whether some of the columns are hidden at first."""
        return any(column.is_further for column in self.columns)


def compare(pages: Sequence[PageData], keys: Sequence[str]) -> Comparison:
    """Compare audits."""
    differing, common = _settings(pages)
    paths: dict[str, int] = {}
    places: dict[str, list[int | None]] = {}
    for page, key in zip(pages, keys, strict=True):
        if page.evidence is not None:
            both = charts.overlay_paths(page.evidence.tradeoff)
            places[key] = [
                None if path is None else paths.setdefault(path, len(paths)) for path in both
            ]
    shown = list(places)
    alarming = {key for key, page in zip(keys, pages, strict=True) if page.verdict == "violation"}
    first = sorted(shown, key=lambda key: key not in alarming)[:_FIRST_OVERLAID]
    counts = Counter(verdict_word(page.verdict) for page in pages)
    return Comparison(
        counts=tuple(counts.most_common()),
        columns=_most_important_first(differing),
        common=tuple(common),
        chart=charts.overlay_axes(),
        drawn=tuple(key for key in shown if key in first),
        curves={
            "paths": list(paths),
            "audits": places,
            "colours": len(palette.CYCLE),
            "adversaries": _adversary_colours(pages, keys),
        },
    )


def _most_important_first(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The adversary and the most important columns, then the further ones."""
    columns = sorted(columns, key=lambda column: column.name != _FIRST)
    ranked = sorted(columns, key=lambda column: column.importance, reverse=True)
    important = [column for column in ranked[:_MOST_COLUMNS] if not column.is_detail] or ranked
    first = [column for column in columns if column in important]
    rest = [column for column in columns if column not in important]
    return (*first, *(replace(column, is_further=True) for column in rest))


def _adversary_colours(pages: Sequence[PageData], keys: Sequence[str]) -> dict[str, str]:
    """The colour of each audit's adversary; empty if all audits have the same adversary.

    Several audits of one adversary get different shades of its colour.
    """
    names = [_flat(page).get("adversary", "") for page in pages]
    if len(set(names)) == 1:
        return {}
    colours, used = {}, Counter[str]()
    for key, name in zip(keys, names, strict=True):
        if name in palette.ADVERSARIES:
            share = _SHARES[used[name] % len(_SHARES)]
            used[name] += 1
            own = palette.ADVERSARIES[name]
            mixed = f"color-mix(in srgb, {own} {share}%, var(--ink))"
            colours[key] = own if share == 100 else mixed
    return colours


def _settings(pages: Sequence[PageData]) -> tuple[list[Column], list[tuple[str, str]]]:
    """The settings that differ, and those that all audits share.

    Settings of the same name and values, such as the seeds of data and model, share a column.
    """
    tables = [_flat(page) for page in pages]
    names = dict.fromkeys(name for table in tables for name in table)
    differing: dict[tuple[str, tuple[str, ...]], str] = {}
    common = []
    for name in names:
        values = tuple(table.get(name, "") for table in tables)
        if len(set(values)) == 1:
            common.append((name, values[0]))
        else:
            last = name.rpartition(", ")[2]
            differing[last, values] = min(differing.get((last, values), name), name, key=len)
    return [Column(name=name, values=values) for (_, values), name in differing.items()], common


def _flat(page: PageData) -> dict[str, str]:
    """All settings of an audit by name. The name of a training is called "training"."""
    table: dict[str, str] = {}
    for group in page.facts:
        for name, value in group.rows if group.compared else ():
            if name in _SHOWN:
                continue
            label = group.heading if name == "name" else name
            table[label if label not in table else f"{group.heading}, {label}"] = value
    return table
