"""Plug-ins by name: those that ship with dpaudit, and those that other packages add.

Another package adds a plug-in with an entry point in its own ``pyproject.toml``::

    [project.entry-points."dpaudit.adversaries"]
    my-adversary = "my_package:MyAdversary"

Nothing is imported until a plug-in is asked for by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast, final

from dpaudit._validate import said, shown
from dpaudit.errors import InvalidInput

T = TypeVar("T")


@final
class Registry(Mapping[str, T], Generic[T]):
    """A read-only mapping from names to plug-ins of one kind.

    Arguments:
        argument: The argument or option that names such a plug-in, for error messages.
        group: The entry-point group in which other packages add theirs.
        shipped: The plug-ins of dpaudit by name; ``"module:object"`` is imported on first use.
        make: Applied to each object that is imported, for example to instantiate a class.

    Example:
        >>> functions = Registry("function", "dpaudit.example", {"root": "math:sqrt"})
        >>> functions["root"](9.0)
        3.0
        >>> functions["rot"]
        Traceback (most recent call last):
        dpaudit.errors.InvalidInput: function must be one of root, got 'rot'; did you mean 'root'?
    """

    def __init__(
        self,
        argument: str,
        group: str,
        shipped: Mapping[str, T] | Mapping[str, str],
        *,
        make: Callable[[Any], T] | None = None,
    ) -> None:
        self._argument, self._group, self._make = argument, group, make
        self._shipped = {
            name: EntryPoint(name=name, value=str(where), group=group)
            for name, where in shipped.items()
        }
        self._loaded = cast(
            "dict[str, T]",
            {name: plug_in for name, plug_in in shipped.items() if not isinstance(plug_in, str)},
        )

    @cached_property
    def _known(self) -> dict[str, EntryPoint]:
        """Shipped plug-ins first, in their order; others may not take a shipped name."""
        others = {entry.name: entry for entry in entry_points(group=self._group)}
        return {**self._shipped, **{n: p for n, p in others.items() if n not in self._shipped}}

    def __getitem__(self, name: str) -> T:
        text = name if isinstance(name, str) else ""  # anything else may be unhashable
        if text in self._loaded:
            return self._loaded[text]
        point = self._shipped.get(text) or self._known.get(text)
        if point is None:
            close = difflib.get_close_matches(text, list(self._known), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise InvalidInput(
                f"{self._argument} must be one of {', '.join(self._known)}, got {shown(name)}{hint}"
            )
        try:
            loaded = point.load()
        except Exception as error:  # another package's import may raise anything
            if text in self._shipped:
                raise
            raise InvalidInput(
                f"{self._argument} {name!r} is registered as {point.value!r} in the entry points "
                f"{self._group!r}, but loading it raised {said(error)}; repair "
                "or uninstall the package that registers it"
            ) from error
        self._loaded[text] = loaded if self._make is None else self._make(loaded)
        return self._loaded[text]

    def __contains__(self, name: object) -> bool:
        return name in self._shipped or name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
