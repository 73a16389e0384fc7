"""A result in the output of a notebook cell: verdict, sentence and bounds as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from dpaudit._numbers import decimals
from dpaudit.privacy import Bound
from dpaudit.report import palette
from dpaudit.report.words import Statement, assumed, method_name, verdict_word

_BADGE = "color:#fff;background:{colour};border-radius:1em;padding:0.1em 0.7em;font-weight:600"


def result_html(*, title: str, statement: Statement, bounds: Sequence[Bound]) -> str:
    """The HTML of a result; it needs no style sheet and no script.

    Example:
        >>> bound = Bound(epsilon=1.25, delta=1e-5, side="upper", method="gaussian")
        >>> from dpaudit.report.words import Line
        >>> line = Line(epsilon=1.25, sign="<=", words="1 step")
        >>> words = Statement(verdict="violation", what="t", claimed=line, shown=())
        >>> text = result_html(title="t", statement=words, bounds=[bound])
        >>> "1.25" in text and palette.ALARM.light in text
        True
    """
    badge = f'<span style="{_BADGE.format(colour=palette.verdict_colour(statement.verdict))}">'
    told = "".join(f"<p><b>{name}</b> {escape(text)}</p>" for name, text in statement.rows)
    rows = "".join(_row(bound) for bound in bounds)
    word = escape(verdict_word(statement.verdict))
    return (
        f"<div><p>{badge}{word}</span> <b>{escape(title)}</b></p>"
        f"{told}<table><thead><tr><th>epsilon</th><th>method</th>"
        f"<th>assumes</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(bound: Bound) -> str:
    sign = "≤" if bound.side == "upper" else "≥"
    value = "∞" if math.isinf(bound.epsilon) else decimals(bound.epsilon, 2)
    cells = (f"{sign} {value}", method_name(bound), assumed(bound))
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
