"""MkDocs hooks: results are a part of the site, and each public name has a page of its own.

Pages refer to results as ``../results/NAME.svg``, a link that also works in the repository. The
page ``api.md`` lists public names as ``::: NAME``. Each becomes a page below ``api/``, and the
first mention of a name on any other page becomes a link to it.
"""

from __future__ import annotations

import inspect
import pydoc
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from dpaudit.adversaries import ADVERSARIES
from dpaudit.executors import EXECUTORS
from dpaudit.lower_bounds import METHODS, RULES
from dpaudit.presets import PRESETS
from dpaudit.upper_bounds import ACCOUNTANTS

DOCS = Path(__file__).parents[1]
RESULTS = DOCS.parent / "results"
SUFFIXES = {".svg", ".csv"}
SHORT_CODE = re.compile(r"<code>(?=[^<]{1,24}</code>)")
LISTED = re.compile(r"^::: (\S+)$", flags=re.MULTILINE)
FENCED = re.compile(r"(^```.*?^```)", flags=re.MULTILINE | re.DOTALL)
CHOICES = {
    "lower_bound": {"method": METHODS, "threshold": RULES},
    "estimate": {"method": [*METHODS, "dpsgd"], "threshold": RULES},
    "estimate_all": {"methods": [*METHODS, "dpsgd"], "threshold": RULES},
    "upper_bound": {"accountant": ACCOUNTANTS},
    "noise_multiplier_for": {"accountant": ACCOUNTANTS},
    "audit": {"training": PRESETS, "adversary": ADVERSARIES, "executor": EXECUTORS},
    "plan": {"training": PRESETS, "adversary": ADVERSARIES, "executor": EXECUTORS},
}
"""The words that an argument of a public function takes."""


def on_files(files: Files, *, config: Any) -> Files:
    """Add the committed results, and a page for each public name."""
    for path in sorted(RESULTS.iterdir()):
        if path.suffix in SUFFIXES:
            files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    for name in _public_names():
        files.append(File.generated(config, f"api/{name}.md", content=_page_of(name)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """List the public names on ``api.md``; elsewhere link results and public names."""
    if page.file.src_uri == "api.md":
        return LISTED.sub(lambda m: f"- [`{m[1]}`](api/{m[1]}.md): {_first_line(m[1])}", markdown)
    if "/" in page.file.src_uri:
        return markdown
    return _with_links(markdown.replace("](../results/", "](results/"))


def on_page_content(html: str, **_: Any) -> str:
    """Mark short code, so that a browser does not break ``--delta`` after its first hyphen."""
    return SHORT_CODE.sub('<code class="short">', html)


def _public_names() -> list[str]:
    return LISTED.findall((DOCS / "api.md").read_text(encoding="utf8"))


def _page_of(name: str) -> str:
    listed = [
        f"Values of `{argument}`: {', '.join(f'`{word}`' for word in words)}.\n"
        for argument, words in CHOICES.get(name.removeprefix("dpaudit."), {}).items()
    ]
    options = "    options:\n      heading_level: 1\n      inherited_members: true\n"
    return "\n".join([f"::: {name}\n{options}", *listed])


def _first_line(name: str) -> str:
    """The first sentence of a docstring, with code as Markdown writes it."""
    paragraph = (inspect.getdoc(pydoc.locate(name)) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`")


def _with_links(markdown: str) -> str:
    """The page with a link at the first mention of each public name outside of code blocks."""
    parts = FENCED.split(markdown)
    for name in _public_names():
        mention = re.compile(rf"(?<!\[)`{re.escape(name)}(?:\(\))?`(?!\])")
        for i in range(0, len(parts), 2):
            parts[i], made = mention.subn(lambda m, n=name: f"[{m[0]}](api/{n}.md)", parts[i], 1)
            if made:
                break
    return "".join(parts)
