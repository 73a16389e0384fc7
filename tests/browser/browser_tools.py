"""Widths, colour schemes and screenshots for the tests in a browser.

Set ``DPAUDIT_SCREENSHOTS`` to a folder to keep a screenshot of every page, width and scheme.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

WIDTHS = (400, 800, 1400)
SCHEMES = ("light", "dark")


def emulate(browser: Any, *, width: int, scheme: str = "light", media: str = "screen") -> None:
    """Show pages as on a screen of this width, to a reader who prefers this colour scheme."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [feature]})
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def keep_screenshot(browser: Any, name: str) -> None:
    """Write a screenshot if the environment asks for it."""
    folder = os.environ.get("DPAUDIT_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))
