"""The settings of an audit as text: equal settings give equal text, and differences are listed."""

from __future__ import annotations

import hashlib
import json
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit.errors import InvalidInput

_ABSENT = "(not set)"


def canonical_json(configuration: Mapping[str, Any]) -> str:
    """A configuration as text: keys sorted, no spaces, and 1.0 written as 1.

    Example:
        >>> canonical_json({"steps": 250, "clip_norm": 1.0})
        '{"clip_norm":1,"steps":250}'
    """
    return _dump(_plain(configuration, "configuration"))


def identity(name: str | None, configuration: str) -> str:
    """16 hexadecimal digits that identify an audit."""
    digest = hashlib.blake2b(f"{name or ''}\0{configuration}".encode(), digest_size=8)
    return digest.hexdigest()


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """The changed settings, one text each; nested keys are joined by dots.

    Example:
        >>> differences({"steps": 250, "data": {"n": 3}}, {"steps": 500, "data": {"n": 3}})
        ('steps: 250 -> 500',)
    """
    before, after = _flat(old), _flat(new)
    return tuple(
        f"{key}: {before.get(key, _ABSENT)} -> {after.get(key, _ABSENT)}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    )


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any, where: str) -> Any:
    """The value as plain JSON data; numpy numbers become Python numbers."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        if not math.isfinite(number):
            raise InvalidInput(f"{where} must be finite, got {number!r}")
        # Below 2^53 every whole float has one spelling as an int, so 1.0 and 1 can be the same.
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise InvalidInput(f"{where} must have text as keys, got {wrong[0]!r}")
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [_plain(item, f"{where}[{place}]") for place, item in enumerate(value)]
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return _plain(value.item(), where)
    raise InvalidInput(
        f"{where} must be text, a number, true or false, a list or a mapping, "
        f"got a {type(value).__name__}"
    )


def _flat(configuration: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in configuration.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value if isinstance(value, str) else _dump(value)
    return flat
