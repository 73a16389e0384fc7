"""Checks of user input. Each message names the argument, its value, the range and the remedy."""

from __future__ import annotations

import math
import numbers
import os
import re

from dpaudit.errors import InvalidInput

_LONGEST = 200
"""Characters of a value in a message."""


def shown(value: object) -> str:
    """A value as a message shows it: short, on one line, whatever its ``repr`` does.

    Example:
        >>> class Loud:
        ...     def __repr__(self):
        ...         raise RuntimeError
        >>> shown("a"), shown(Loud()), len(shown("a" * 10_000))
        ("'a'", 'an object of type Loud', 203)
    """
    try:
        text = repr(value)
    except Exception:  # the object's own code
        return f"an object of type {type(value).__name__}"
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"


def printable(text: str) -> str:
    """The text without what could command a terminal or a CI system that reads the log.

    These are control characters, and what GitHub Actions takes for a command at the start of a
    line, ``::error::``, or anywhere, ``##[error]``.

    Example:
        >>> printable("a\\x1b[2Jb"), printable("name\\n::error::lie")
        ('a�[2Jb', 'name\\n: :error::lie')
    """
    shown = "".join(sign if sign.isprintable() or sign in "\n\t" else "\ufffd" for sign in text)
    return re.sub(r"(^|\n)([ \t]*)::", r"\1\2: :", shown).replace("##[", "## [")


def unobeyed(text: str) -> str:
    r"""The JSON text, of the same content, without a command of GitHub Actions such as ##[error].

    Example:
        >>> unobeyed('{"name": "##[error]lie"}')
        '{"name": "#\\u0023[error]lie"}'
    """
    return text.replace("##[", "#\\u0023[")


def said(error: BaseException) -> str:
    """The type and the message of an exception, whatever its ``str`` does.

    Example:
        >>> said(ValueError("too small"))
        'ValueError: too small'
    """
    try:
        text = str(error)
    except Exception:  # the exception's own code
        text = "its message cannot be shown"
    return f"{type(error).__name__}: {text}"


def path(name: str, value: object) -> str:
    """Return a path as text; its folder need not exist."""
    try:
        place = os.fspath(value)  # type: ignore[call-overload]
    except Exception:  # the object's own code
        place = None
    if not isinstance(place, str) or not place or "\0" in place:
        raise InvalidInput(
            f"{name} must be a path, as text or a pathlib.Path, got {shown(value)}; for instance "
            f"{name}='audits.sqlite'"
        )
    return place


def label(name: str, value: object) -> str | None:
    """Return a name given by the user, which is text that is not blank, or `None`."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{name} must be text that is not blank, got {shown(value)}")
    return value.encode("utf8", "backslashreplace").decode("utf8")  # without lone surrogates


def real(name: str, value: object, *, remedy: str = "") -> float:
    """Return ``value`` as a finite float."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidInput(f"{name} must be a number, got {shown(value)}{_and(remedy)}")
    try:
        number = float(value)
    except OverflowError:  # a whole number of 400 digits
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInput(f"{name} must be finite, got {shown(value)}{_and(remedy)}")
    return number


def positive(name: str, value: object, *, remedy: str = "") -> float:
    """Return ``value`` as a float above zero."""
    number = real(name, value, remedy=remedy)
    if number <= 0:
        raise InvalidInput(f"{name} must be above 0, got {shown(value)}{_and(remedy)}")
    return number


def non_negative(name: str, value: object) -> float:
    """Return ``value`` as a float of at least zero."""
    number = real(name, value)
    if number < 0:
        raise InvalidInput(f"{name} must be at least 0, got {shown(value)}")
    return number


def between(
    name: str,
    value: object,
    low: float,
    high: float,
    *,
    closed_low: bool = False,
    closed_high: bool = False,
    remedy: str = "",
) -> float:
    """Return ``value`` as a float inside the interval from ``low`` to ``high``."""
    number = real(name, value, remedy=remedy)
    above = number >= low if closed_low else number > low
    below = number <= high if closed_high else number < high
    if not (above and below):
        left, right = "[" if closed_low else "(", "]" if closed_high else ")"
        raise InvalidInput(
            f"{name} must be in {left}{low:g}, {high:g}{right}, got {shown(value)}{_and(remedy)}"
        )
    return number


def integer(
    name: str, value: object, *, at_least: int = 0, at_most: int | None = None, remedy: str = ""
) -> int:
    """Return ``value`` as an int of at least ``at_least`` and, if given, at most ``at_most``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidInput(f"{name} must be a whole number, got {shown(value)}{_and(remedy)}")
    if value < at_least:
        raise InvalidInput(f"{name} must be at least {at_least}, got {shown(value)}{_and(remedy)}")
    if at_most is not None and int(value) > at_most:
        raise InvalidInput(f"{name} must be at most {at_most:,}, got {shown(value)}{_and(remedy)}")
    return int(value)


def seed(value: object) -> int:
    """Return a seed of 64 bits: torch's generators and the noise's key take no more."""
    number = integer("seed", value)
    if number >= 2**64:
        raise InvalidInput(f"seed must be below 2**64, got {shown(value)}; use a smaller one")
    return number


def runs(value: object, *, canaries: int) -> int:
    """Return the number of trainings of an audit, large enough for a bound.

    One run has inserted and other canaries only if it has several. With one canary, half of the
    runs have it; the pilot takes one score with and one without it, and as many must remain.
    """
    return integer("runs", value, at_least=4 if canaries == 1 else 1, at_most=10**9)


def one_of(name: str, value: object, allowed: tuple[str, ...], *, remedy: str = "") -> str:
    """Return ``value`` if it is one of the ``allowed`` words."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidInput(
            f"{name} must be one of {', '.join(allowed)}, got {shown(value)}{_and(remedy)}"
        )
    return str(value)


def confidence(value: object) -> float:
    """Return a confidence level below 1 whose error probability does not round to 1."""
    return between("confidence", value, 1e-9, 1, closed_low=True, remedy="use 0.95 for 95 %")


def delta(value: object) -> float:
    """Return a delta in [0, 1)."""
    return between("delta", value, 0, 1, closed_low=True, remedy="a common choice is 1e-5")


def _and(remedy: str) -> str:
    return f"; {remedy}" if remedy else ""


def name_of_unit(value: object) -> str:
    """The unit of privacy: a word, such as ``record``, ``user`` or ``client``."""
    if not isinstance(value, str) or not value.isidentifier():
        raise InvalidInput(
            f"unit must be a word such as 'record', 'user' or 'client', got {shown(value)}"
        )
    return value
