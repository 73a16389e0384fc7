"""Write the JSON schema of audit.toml for editors, and examples/audit.toml with all defaults.

python docs/_site/schema.py
"""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from pathlib import Path
from typing import Any

from dpaudit.adversaries import ADVERSARIES
from dpaudit.configuration import OWN_SETTINGS, Settings
from dpaudit.presets import PRESETS

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "assets" / "audit.schema.json"
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
    made: dict[str, Any] = {"description": _descriptions()[field.name]}
    if word.startswith("tuple"):
        made |= {"type": "array", "items": {"type": "integer", "minimum": 1}}
    else:
        made["type"] = _TYPES[word]
    if field.name in _CHOICES:
        # Other packages may add names, so that the list is for completion only.
        made["anyOf"] = [{"enum": _CHOICES[field.name]}, {"type": "string"}]
    return made


def _descriptions() -> dict[str, str]:
    """The argument sections of the docstring of `Settings`."""
    text = (Settings.__doc__ or "").partition("Arguments:\n")[2]
    found = re.findall(r"^        (\w+): (.+(?:\n            .+)*)", text, flags=re.MULTILINE)
    return {name: " ".join(words.split()) for name, words in found}


_HEADER = """\
#:schema ../docs/assets/audit.schema.json
# dpaudit audit examples/audit.toml
#
# Every setting with its default. Options on the command line take precedence over this file.
# Relative paths start at the folder of this file. Settings without a default are commented out.
"""

# Settings without a default, each with a value that shows its form.
_SHOWN = {"data_dir": "data", "tile_size": 100, "name": "audit", "scores_out": "scores.csv"}


def example() -> str:
    """The text of examples/audit.toml."""
    complete = Settings(store="dpaudit.sqlite").resolved()
    found = {**vars(complete), "adversary": complete.adversary.name}
    found |= {name: getattr(complete.adversary, name) for name in OWN_SETTINGS}
    found |= {"period": complete.insertion.period, "phase": "first"}
    wrap = textwrap.TextWrapper(width=96, break_on_hyphens=False)
    lines = [_HEADER]
    for name, text in _descriptions().items():
        choices = f" Choices: {', '.join(_CHOICES[name])}." if name in _CHOICES else ""
        lines += (f"# {line}" for line in wrap.wrap(f"{text}{choices}"))
        value, sign = (found[name], "") if found[name] is not None else (_SHOWN[name], "# ")
        lines.append(f"{sign}{name} = {json.dumps(value)}\n")
    return "\n".join(lines)


if __name__ == "__main__":
    EXAMPLE.write_text(example(), encoding="utf8")
    SCHEMA.write_text(json.dumps(schema(), indent=2) + "\n", encoding="utf8")
