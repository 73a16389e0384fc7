"""Write docs/assets/audit.schema.json, the JSON schema of audit.toml for editors.

python docs/_site/schema.py
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from dpaudit.adversaries import ADVERSARIES
from dpaudit.configuration import Settings
from dpaudit.presets import PRESETS

SCHEMA = Path(__file__).parents[1] / "assets" / "audit.schema.json"

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


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema(), indent=2) + "\n", encoding="utf8")
