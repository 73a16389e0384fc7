"""Numbers as text that never rounds to a different statement."""

from __future__ import annotations


def decimals(value: float, places: int) -> str:
    """A number with so many decimals, or two significant digits if that would print zero.

    Example:
        >>> decimals(1.23456, 2), decimals(0.0, 2), decimals(2e-5, 2)
        ('1.23', '0.00', '2e-05')
    """
    text = f"{value:.{places}f}"
    return text if value == 0 or float(text) != 0 else f"{value:.2g}"


def percent(share: float, digits: int = 6) -> str:
    """A share in per cent, with more digits where fewer would print all of it.

    Example:
        >>> percent(0.95), percent(1 - 1e-12), percent(0.9996, 3), percent(1.0)
        ('95', '99.9999999999', '99.96', '100')
    """
    while digits < 17 and share < 1 <= float(f"{100 * share:.{digits}g}") / 100:
        digits += 1
    return f"{100 * share:.{digits}g}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever is easiest to read.

    Example:
        >>> duration(0.12), duration(90), duration(600), duration(9000)
        ('0.1 s', '90 s', '10 min', '2.5 h')
    """
    if seconds < 1:
        return f"{seconds:.1g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def counted(count: int, what: str) -> str:
    """A number of things.

    Example:
        >>> counted(1, "training"), counted(5000, "training")
        ('1 training', '5,000 trainings')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
