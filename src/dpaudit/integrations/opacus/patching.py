"""Replace methods of one object for a while."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any, final

_NOTHING = object()


@final
class ReplacedMethods:
    """Replaces methods of ``target`` until `put_back`; its class and other objects do not change.

    A wrapper around a replaced method (a learning-rate scheduler makes one) keeps working: after
    `put_back` it calls the original method.

    Arguments:
        target: The object whose methods are replaced.

    Example:
        >>> class Door:
        ...     def open(self):
        ...         return "open"
        >>> door = Door()
        >>> replaced = ReplacedMethods(door)
        >>> replaced.wrap("open", lambda original: original().upper())
        >>> door.open()
        'OPEN'
        >>> replaced.put_back()
        >>> door.open(), vars(door)
        ('open', {})
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self._active = True
        self._before: dict[str, tuple[object, object]] = {}

    def wrap(self, name: str, around: Callable[..., Any]) -> None:
        """Call ``around(original, *arguments)`` in place of the method, if it exists."""
        original = getattr(self._target, name, None)
        if original is None:
            return

        # `wraps` also copies the attributes that schedulers look for on `step`.
        @functools.wraps(original)
        def replacement(_: Any, *arguments: Any, **named: Any) -> Any:
            if not self._active:
                return original(*arguments, **named)
            return around(original, *arguments, **named)

        method = MethodType(replacement, self._target)
        self._before[name] = (vars(self._target).get(name, _NOTHING), method)
        vars(self._target)[name] = method

    def put_back(self) -> None:
        """Restore the object."""
        self._active = False
        own = vars(self._target)
        for name, (before, method) in self._before.items():
            if own.get(name) is not method:
                continue
            if before is _NOTHING:
                del own[name]
            else:
                own[name] = before
