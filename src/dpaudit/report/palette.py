"""The colours of figures, pages and the terminal: each meaning has one colour everywhere.

Okabe and Ito's palette, which colour-blind readers can tell apart. Line styles and labels repeat
what colours say, for printing in grey.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
RED, PURPLE, SKY, GREY = "#D55E00", "#CC79A7", "#56B4E9", "#666666"


@final
@dataclass(frozen=True, kw_only=True)
class Role:
    """The meaning of a colour, and its values on light and dark backgrounds.

    Arguments:
        name: Its name in the style sheet.
        light: The colour on white and in figures.
        dark: The colour on black.
    """

    name: str
    light: str
    dark: str


INSERTED = Role(name="inserted", light=ORANGE, dark="#F0B13A")
OTHERS = Role(name="others", light=BLUE, dark=SKY)
PROVEN = Role(name="proven", light=GREEN, dark="#2DBE94")
CLAIMED = Role(name="claimed", light=GREY, dark="#A9AEB5")
FITTED = Role(name="fitted", light="#A65483", dark="#D98FB8")
ALARM = Role(name="alarm", light="#B84E00", dark="#FF9455")

ROLES = (INSERTED, OTHERS, PROVEN, CLAIMED, FITTED, ALARM)
