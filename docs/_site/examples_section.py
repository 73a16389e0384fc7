"""Griffe extension: an ``Example:`` section of a docstring is rendered as code.

Griffe knows the section ``Examples:``. It takes ``Example:`` for a note, in which the lines with
``>>>`` become quotations.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_HEADING = re.compile(r"^(\s*)Example:[ \t]*$", flags=re.MULTILINE)


class ExamplesSection(griffe.Extension):
    """Renames the section before the docstring is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = _HEADING.sub(r"\1Examples:", obj.docstring.value)
