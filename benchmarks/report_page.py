"""Draw docs/figures/report-page.png: a report page on a desktop and on a phone.

    dpaudit audit --store audit.sqlite && dpaudit report --store audit.sqlite --out page.html
    python benchmarks/report_page.py page.html docs/figures/report-page.png

Needs Chromium with its driver, selenium and Pillow.
"""

from __future__ import annotations

import base64
import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver

HEIGHT, GAP, BACKGROUND = 1760, 20, "#e8edf1"
SCREENS = ((1000, "light"), (390, "dark"))


def main(page: str, picture: str) -> None:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    with tempfile.TemporaryDirectory() as profile:
        flags = ("--headless=new", "--no-sandbox", "--hide-scrollbars")
        for flag in (*flags, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        service = webdriver.ChromeService(shutil.which("chromedriver") or "chromedriver")
        browser = webdriver.Chrome(options=options, service=service)
        try:
            browser.get(Path(page).resolve().as_uri())
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
    main(*sys.argv[1:])
