"""MkDocs hooks: figures and tables of ``results/`` become files of the site.

Pages refer to them as ``../results/NAME.svg``, a link that also works in the repository.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

RESULTS = Path(__file__).parents[2] / "results"
SUFFIXES = {".svg", ".pdf", ".csv"}


def on_files(files: Files, *, config: Any) -> Files:
    """Add the committed results to the files of the site."""
    for path in sorted(RESULTS.iterdir()):
        if path.suffix in SUFFIXES:
            files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links to the results at their place in the site."""
    return markdown.replace("](../results/", "](results/")
