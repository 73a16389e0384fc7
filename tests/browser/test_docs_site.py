"""The documentation site in a browser: nothing overflows, formulas and code are rendered."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
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
    "installing": "installing/",
    "flow": "flow/",
    "notation": "notation/",
    "landscapes": "landscapes/",
    "coverage": "coverage/",
    "gallery": "gallery/",
    "tutorial": "tutorials/opacus-bug/",
    "api": "api/",
}
SHOWN = "return document.body.getAttribute('data-md-color-scheme')"


@pytest.fixture(scope="module")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built site, served from this process."""
    pytest.importorskip("mkdocs", reason="the documentation tools are not installed")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    handler = partial(_Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def show(browser: Any, address: str, *, scheme: str = "light", width: int = 1400) -> None:
    """Open a page; without a remembered scheme the theme follows the reader's preference."""
    emulate(browser, width=width, scheme=scheme)
    browser.get(address)


@pytest.mark.parametrize("page", PAGES)
def test_nothing_overflows_at_any_width_in_either_scheme(browser, site, page):
    from selenium.webdriver.support.wait import WebDriverWait

    for scheme, material in MATERIAL.items():
        show(browser, site + PAGES[page], scheme=scheme)
        wait = WebDriverWait(browser, 5)  # the theme chooses the scheme after loading
        wait.until(lambda one, expected=material: one.execute_script(SHOWN) == expected)
        for width in WIDTHS:
            emulate(browser, width=width, scheme=scheme)
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            keep_screenshot(browser, f"{page}-{width}-{scheme}")
            assert wide <= width, f"{page} is {wide} px wide at {width} px, {scheme}"


def test_the_site_needs_no_network(browser, site):
    for page in PAGES.values():
        show(browser, site + page)
        loaded = browser.execute_script(
            "return performance.getEntriesByType('resource').map(entry => entry.name)"
        )
        assert all(name.startswith((site, "data:")) for name in loaded), loaded
        broken = browser.execute_script(
            "return [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
        )
        assert broken == []
        errors = [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
        assert errors == [], page


def test_formulas_are_rendered(browser, site):
    for page in ("notation", "landscapes", "api"):
        show(browser, site + PAGES[page])
        formulas = browser.execute_script(
            "return [...document.querySelectorAll('.arithmatex')].map("
            "f => [f.querySelectorAll('.katex').length, f.querySelectorAll('.katex-error').length])"
        )
        assert formulas, f"{page} has no formulas"
        assert all(counts == [1, 0] for counts in formulas), page


def test_formulas_of_a_notebook_are_rendered(browser, site):
    show(browser, site + "tutorials/main-figure/")
    count = browser.execute_script("return document.querySelectorAll('.jp-Cell .katex').length")
    assert count >= 1


def test_api_examples_are_code(browser, site):
    show(browser, site + PAGES["api"])
    quoted = browser.execute_script("return document.querySelectorAll('blockquote').length")
    assert quoted == 0
    prompts = browser.execute_script(
        "return [...document.querySelectorAll('.doc-contents p')]"
        ".filter(p => p.textContent.includes('>>>')).map(p => p.textContent)"
    )
    assert prompts == []
    code = browser.execute_script(
        "return [...document.querySelectorAll('.doc-contents .highlight code')]"
        ".filter(c => c.textContent.includes('>>>')).length"
    )
    assert code >= 50
