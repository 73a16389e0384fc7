"""Write the JSON schema of receipts: python docs/_site/schema.py"""

from __future__ import annotations

import json
from pathlib import Path

from dpaudit.receipts.form import schema

RECEIPT = Path(__file__).parents[2] / "docs" / "assets" / "receipt.schema.json"

if __name__ == "__main__":
    RECEIPT.write_text(json.dumps(schema(), indent=2) + "\n", encoding="utf8")
