"""The colours of figures, pages and the terminal: each meaning has one colour everywhere.

Okabe and Ito's palette, which colour-blind readers can tell apart. Line styles and labels repeat
what colours say, for printing in grey.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
RED, PURPLE, SKY, GREY = "#D55E00", "#CC79A7", "#56B4E9", "#666666"

ADVERSARIES = {
    "simulated-dimension": BLUE,
    "random-dimension": ORANGE,
    "flipped-label": GREEN,
    "random-direction": PURPLE,
    "rare-feature": RED,
    "start-distribution": SKY,
}
"""The colour of an adversary in every figure that compares adversaries."""


CYCLE = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, "#8C564B", GREY)
"""Colours of curves that differ in nothing but their number, such as those of several audits."""


@final
@dataclass(frozen=True, kw_only=True)
class Role:
    """The meaning of a colour, and its values on light and dark backgrounds."""

    name: str
    light: str
    dark: str
    terminal: str = ""


INSERTED = Role(name="inserted", light=ORANGE, dark="#F0B13A")
OTHERS = Role(name="others", light=BLUE, dark=SKY)
PROVEN = Role(name="proven", light=GREEN, dark="#2DBE94")
CLAIMED = Role(name="claimed", light=GREY, dark="#A9AEB5")
FITTED = Role(name="fitted", light="#A65483", dark="#D98FB8")
ALARM = Role(name="alarm", light="#B3261E", dark="#FF8A80", terminal="red")
GOOD = Role(name="good", light="#1A7F5A", dark="#4FD0A4", terminal="green")
WARN = Role(name="warn", light="#8A5A00", dark="#F0B13A", terminal="yellow")

ROLES = (INSERTED, OTHERS, PROVEN, CLAIMED, FITTED, ALARM, GOOD, WARN)

_VERDICTS = {
    "violation": ALARM,
    "broken": ALARM,
    "consistent": GOOD,
    "passed": GOOD,
    "inconclusive": WARN,
    "warning": WARN,
}


def verdict_colour(verdict: str) -> str:
    """The colour of a verdict on white.

    Example:
        >>> verdict_colour("violation") == ALARM.light
        True
    """
    return _VERDICTS.get(verdict, CLAIMED).light


def terminal_style(verdict: str) -> str:
    """The style of a verdict in a terminal.

    Example:
        >>> terminal_style("violation"), terminal_style("unfinished")
        ('bold red', 'bold')
    """
    role = _VERDICTS.get(verdict)
    return "bold" if role is None else f"bold {role.terminal}"
