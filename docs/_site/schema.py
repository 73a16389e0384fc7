"""Write the JSON schemas of audit.toml and of receipts, and examples/audit.toml with all defaults.

python docs/_site/schema.py
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from pathlib import Path
from typing import Any

from dpaudit.adversaries import ADVERSARIES
from dpaudit.configuration import Settings
from dpaudit.presets import PRESETS
from dpaudit.receipts.form import schema as receipt_schema

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "assets" / "audit.schema.json"
RECEIPT = ROOT / "docs" / "assets" / "receipt.schema.json"
EXAMPLE = ROOT / "examples" / "audit.toml"

_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_CHOICES = {
    "preset": list(PRESETS),
    "adversary": list(ADVERSARIES),
    "precision": ["float32", "tf32", "bfloat16", "float64"],
    "simulation": ["noiseless", "noisy"],
    "ranking": ["per-step", "final-model"],
}


def schema() -> dict[str, Any]:
    """The schema, from the fields of `Settings` and the registries."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Settings of dpaudit audit and dpaudit plan",
        "type": "object",
        "additionalProperties": False,
        "properties": {field.name: _property(field) for field in dataclasses.fields(Settings)},
    }


def _property(field: dataclasses.Field[Any]) -> dict[str, Any]:
    word = str(field.type).split("|")[0].strip()
    made: dict[str, Any] = {"description": _described(field)}
    if word.startswith("tuple"):
        made |= {"type": "array", "items": {"type": "integer", "minimum": 1}}
    else:
        made["type"] = _TYPES[word]
    if field.name in _CHOICES:
        # Other packages may add names, so that the list is for completion only.
        made["anyOf"] = [{"enum": _CHOICES[field.name]}, {"type": "string"}]
    return made


def _described(field: dataclasses.Field[Any]) -> str:
    """The help of the option, with its choices and its default."""
    shown = field.metadata
    choices = shown["metavar"].split("|") if "|" in (shown["metavar"] or "") else []
    choices = choices or _CHOICES.get(field.name, [])
    text = str(shown["help"])
    if choices and choices[0] not in text:
        text += f" Choices: {', '.join(choices)}."
    return f"{text} Default: {shown['default']}." if isinstance(shown["default"], str) else text


_HEADER = """\
#:schema ../docs/assets/audit.schema.json
# dpaudit audit examples/audit.toml
#
# Every setting with its default. Options on the command line take precedence over this file.
# Relative paths start at the folder of this file. Settings without a default are commented out.
"""

# Settings without a default, each with a value that shows its form.
_SHOWN = {
    "data_dir": "data",
    "tile_size": 100,
    "virtual_batch": 32,
    "name": "audit",
    "scores_out": "scores.csv",
}


def example() -> str:
    """The text of examples/audit.toml."""
    complete = Settings(store="dpaudit.sqlite").resolved()
    wrap = textwrap.TextWrapper(width=96, break_on_hyphens=False)
    lines = [_HEADER]
    for field in dataclasses.fields(Settings):
        lines += (f"# {line}" for line in wrap.wrap(_described(field)))
        name, value = field.name, getattr(complete, field.name)
        sign = "# " if value is None else ""
        lines.append(f"{sign}{name} = {json.dumps(_SHOWN[name] if value is None else value)}\n")
    return "\n".join(lines)


if __name__ == "__main__":
    EXAMPLE.write_text(example(), encoding="utf8")
    SCHEMA.write_text(json.dumps(schema(), indent=2) + "\n", encoding="utf8")
    RECEIPT.write_text(json.dumps(receipt_schema(), indent=2) + "\n", encoding="utf8")
