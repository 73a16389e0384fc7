"""The colours of figures and pages: one meaning, one colour, in both.

Okabe and Ito's palette, which survives a colour-blind reader; line styles and labels say the same
thing again, for a grey printer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
RED, PURPLE, SKY, GREY = "#D55E00", "#CC79A7", "#56B4E9", "#666666"


@final
@dataclass(frozen=True, kw_only=True)
class Role:
    """What a colour stands for, in light and in dark surroundings.

    Arguments:
        name: Its name among the page's colours.
        light: On white, and in figures.
        dark: On black.
    """

    name: str
    light: str
    dark: str


INSERTED = Role(name="inserted", light=ORANGE, dark="#F0B13A")
OTHERS = Role(name="others", light=BLUE, dark=SKY)
PROVEN = Role(name="proven", light=GREEN, dark="#2DBE94")
PROMISED = Role(name="promised", light=GREY, dark="#A9AEB5")
FITTED = Role(name="fitted", light="#A65483", dark="#D98FB8")
ALARM = Role(name="alarm", light="#B84E00", dark="#FF9455")

ROLES = (INSERTED, OTHERS, PROVEN, PROMISED, FITTED, ALARM)
