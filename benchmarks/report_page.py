"""Draw the default audit for the documentation: `make picture`.

``docs/figures/report-page.png`` is its report page on a desktop and on a phone, ``own-result.png``
what `dpaudit.AuditResult.plot` draws. Needs Chromium with its driver, selenium and Pillow.
"""

from __future__ import annotations

import base64
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver

import dpaudit

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
HEIGHT, GAP, BACKGROUND = 1760, 20, "#e8edf1"
SCREENS = ((1000, "light"), (390, "dark"))


def main() -> None:
    result = dpaudit.audit("housing")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        _picture(result.report(page), FIGURES / "report-page.png")
    result.plot().savefig(FIGURES / "own-result.png", dpi=120)


def _picture(page: Path, picture: Path) -> None:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    with tempfile.TemporaryDirectory() as profile:
        flags = ("--headless=new", "--no-sandbox", "--hide-scrollbars")
        for flag in (*flags, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        service = webdriver.ChromeService(shutil.which("chromedriver") or "chromedriver")
        browser = webdriver.Chrome(options=options, service=service)
        try:
            browser.get(page.as_uri())
            shots = [_shot(browser, width, scheme) for width, scheme in SCREENS]
        finally:
            browser.quit()
    width = sum(shot.width for shot in shots) + GAP * (len(shots) + 1)
    whole = Image.new("RGB", (width, HEIGHT + 2 * GAP), BACKGROUND)
    left = GAP
    for shot in shots:
        whole.paste(shot, (left, GAP))
        left += shot.width + GAP
    whole.quantize(128).save(picture, optimize=True)


def _shot(browser: Any, width: int, scheme: str) -> Image.Image:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    metrics = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.refresh()
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    return Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")


if __name__ == "__main__":
    main()
