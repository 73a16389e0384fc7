"""The documentation site in a browser: nothing overflows, formulas and code are rendered."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from browser_tools import WIDTHS, emulate, keep_screenshot

ROOT = Path(__file__).parents[2]
MATERIAL = {"light": "default", "dark": "slate"}
PAGES = {
    "home": "",
    "landscapes": "landscapes/",
    "bounds": "choosing-a-bound/",
    "paper": "reproduction/",
    "field": "field/",
    "tutorial": "tutorials/live-audit/",
    "tutorial-figure": "tutorials/main-figure/",
    "tutorial-lora": "tutorials/lora/",
    "tutorial-adversary": "tutorials/own-adversary/",
    "api": "api/",
    "api-page": "api/dpaudit.mechanisms.CorrelatedNoise/",
}
READY = (
    "return document.querySelector('.arithmatex:not(:has(.katex))') ? null"
    " : document.body.getAttribute('data-md-color-scheme')"
)
FACTS = """
const all = selector => [...document.querySelectorAll(selector)];
return {
  loaded: performance.getEntriesByType('resource').map(entry => entry.name),
  brokenImages: [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src),
  formulas: all('.arithmatex').map(f => [
    f.querySelectorAll('.katex').length, f.querySelectorAll('.katex-error').length]),
  cellFormulas: all('.jp-Cell .katex').length,
  quotations: all('blockquote').length,
  promptsInText: all('.doc-contents p').map(p => p.textContent).filter(t => t.includes('>>>')),
  promptsInCode: all('.doc-contents .highlight code').filter(
    c => c.textContent.includes('>>>')).length,
  tallestCell: Math.max(0, ...all('td').map(cell => cell.clientHeight)),
  cutCode: all('pre > code').filter(c => c.scrollWidth > c.clientWidth + 1).length,
};
"""


@pytest.fixture(scope="module")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built site, served from this process."""
    folder = os.environ.get("DPAUDIT_SITE")  # .ci/run has built it already
    if folder is None:
        pytest.importorskip("mkdocs", reason="the documentation tools are not installed")
        folder = str(tmp_path_factory.mktemp("site"))
        subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", folder],
            cwd=ROOT,
            check=True,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        )
    handler = partial(_Quiet, directory=folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def visits(browser: Any, site: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What the browser shows of every page, visited once for each colour scheme."""
    from selenium.webdriver.support.wait import WebDriverWait

    visited = {}
    for scheme, material in MATERIAL.items():
        emulate(browser, width=1400, scheme=scheme)
        browser.get(site)
        browser.execute_script("localStorage.clear()")  # the theme remembers a scheme
        browser.refresh()
        for page, path in PAGES.items():
            emulate(browser, width=1400, scheme=scheme)
            browser.get(site + path)
            wait = WebDriverWait(browser, 10)  # scheme and formulas appear after loading
            wait.until(lambda driver, expected=material: driver.execute_script(READY) == expected)
            facts = browser.execute_script(FACTS)
            facts["errors"] = [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
            for width in WIDTHS:
                emulate(browser, width=width, scheme=scheme)
                facts[width] = settled_width(browser, width)
                keep_screenshot(browser, f"{page}-{width}-{scheme}")
            visited[page, scheme] = facts
    return visited


def settled_width(browser: Any, width: int) -> int:
    """The width that a page needs, once the theme's search box has moved to its new place."""
    for _ in range(20):
        needed = browser.execute_script("return document.body.parentNode.scrollWidth")
        if needed <= width:
            break
        time.sleep(0.05)
    return needed


@pytest.mark.parametrize("scheme", MATERIAL)
@pytest.mark.parametrize("page", PAGES)
def test_nothing_overflows_at_any_width_in_either_scheme(visits, page, scheme):
    facts = visits[page, scheme]
    assert all(facts[width] <= width for width in WIDTHS), [facts[width] for width in WIDTHS]


def test_the_home_page_has_room_for_its_tables_and_commands(visits):
    facts = visits["home", "light"]
    assert facts["tallestCell"] < 100  # a cell with one word in each line is taller
    assert facts["cutCode"] == 0


@pytest.mark.parametrize("page", PAGES)
def test_the_site_needs_no_network(visits, site, page):
    facts = visits[page, "light"]
    assert all(name.startswith((site, "data:")) for name in facts["loaded"]), facts["loaded"]
    assert facts["brokenImages"] == []
    assert facts["errors"] == []


def test_formulas_are_rendered(visits):
    for page in ("api", "landscapes", "api-page"):
        formulas = visits[page, "light"]["formulas"]
        assert formulas, f"{page} has no formulas"
        assert all(counts == [1, 0] for counts in formulas), page
    assert visits["tutorial-figure", "light"]["cellFormulas"] >= 1


def test_api_examples_are_code(visits):
    facts = visits["api-page", "light"]
    assert facts["quotations"] == 0
    assert facts["promptsInText"] == []
    assert facts["promptsInCode"] >= 1
