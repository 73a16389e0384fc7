"""A page of HTML as PDF, by a browser without a window or by WeasyPrint."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

from dpaudit.errors import DpauditError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "msedge")

_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--no-pdf-header-footer",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # a page needs no network
)
_SECONDS = 120


def pdf_of(page: str) -> bytes:
    """A page as PDF; a clear error if there is nothing to print it with.

    Arguments:
        page: The HTML, which needs no other file.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is not None:
        return _by_browser(browser, page)
    if importlib.util.find_spec("weasyprint") is not None:
        weasyprint = importlib.import_module("weasyprint")
        return bytes(weasyprint.HTML(string=page).write_pdf())
    raise DpauditError(
        "a PDF needs Chromium or Chrome on the PATH, or WeasyPrint: pip install 'dpaudit[pdf]'; or "
        "use --kind page and print the HTML file from a browser"
    )


def _by_browser(browser: str, page: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "page.html", Path(folder) / "page.pdf"
        source.write_text(page, encoding="utf-8")
        # Root has no sandbox of its own; the page has no script and no network.
        command = [browser, *_FLAGS, "--no-sandbox", f"--user-data-dir={folder}/profile"]
        try:
            run = subprocess.run(
                [*command, f"--print-to-pdf={made}", source.as_uri()],
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DpauditError(f"{browser} could not print the page: {error}") from None
        if not made.is_file():
            reason = run.stderr.decode("utf-8", "replace").strip()[-300:]
            raise DpauditError(f"{browser} could not print the page: {reason}")
        return made.read_bytes()
