"""MkDocs hooks: ``results/`` becomes a part of the site, and short code is kept in one line.

Pages refer to results as ``../results/NAME.svg``, a link that also works in the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

RESULTS = Path(__file__).parents[2] / "results"
SUFFIXES = {".svg", ".csv"}
SHORT_CODE = re.compile(r"<code>(?=[^<]{1,24}</code>)")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the committed results to the files of the site."""
    for path in sorted(RESULTS.iterdir()):
        if path.suffix in SUFFIXES:
            files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links to the results at their place in the site."""
    return markdown.replace("](../results/", "](results/")


def on_page_content(html: str, **_: Any) -> str:
    """Mark short code, so that a browser does not break ``--delta`` after its first hyphen."""
    return SHORT_CODE.sub('<code class="short">', html)
