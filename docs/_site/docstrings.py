"""Griffe extension: examples of docstrings are rendered as code, formulas as formulas.

Griffe knows the section ``Examples:``. It takes ``Example:`` for a note, in which the lines with
``>>>`` become quotations. Formulas are written for Sphinx, as ``:math:`` roles; the site expects
dollar signs.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_HEADING = re.compile(r"^(\s*)Example:[ \t]*$", flags=re.MULTILINE)
_FORMULA = re.compile(r":math:`([^`]+)`")
_DISPLAYED = re.compile(r"^([ \t]*)\.\. math:: (.+(?:\n\1[ \t]+\S.*)*)", flags=re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites a docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            text = _DISPLAYED.sub(r"\1$$\n\1\2\n\1$$", obj.docstring.value)
            text = _HEADING.sub(r"\1Examples:", text)
            obj.docstring.value = _FORMULA.sub(r"$\1$", text)
