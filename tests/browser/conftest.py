"""A headless Chromium for the tests of pages, and the pages they open."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpaudit
from dpaudit.audits.evidence import collect_evidence
from dpaudit.report import Facts, PageData, write_page
from dpaudit.scores import Scores

sys.path.insert(0, str(Path(__file__).parent))

BROWSER, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1100,900",
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One browser for all tests: starting it takes longer than any of them."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    for program in (BROWSER, DRIVER):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # With the driver's path selenium looks for none on the network.
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def scores() -> Scores:
    random = np.random.default_rng(7)
    return Scores.from_samples(random.normal(2.5, 1, 300), random.normal(0, 1, 200))


@pytest.fixture(scope="session")
def page(scores: Scores) -> PageData:
    """An audit with every part that a page can have, except for horizons."""
    claim = dpaudit.Claim.from_mu(3.0)
    lower = dpaudit.estimate_all(
        scores, methods=["gaussian-dp", "clopper-pearson", "gaussian-fit"], delta=1e-5
    )
    return PageData(
        title="A page to try",
        subtitle="drawn scores",
        identity="0123456789abcdef",
        verdict="consistent",
        sentence="Gap: these scores were drawn, not trained for.",
        evidence=collect_evidence(
            scores,
            lower=lower,
            leading=lower["gaussian-dp"],
            upper=[dpaudit.upper_bound(noise_multiplier=1.0, steps=9, delta=1e-5)],
            claim=claim,
            test=dpaudit.test_claim(scores, claim),
        ),
        facts=(Facts(heading="game", rows=(("seed", "7"), ("fingerprint", "eaa48a644af3cf34"))),),
    )


@pytest.fixture(scope="session")
def file(page: PageData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(page, tmp_path_factory.mktemp("pages") / "page.html")


@pytest.fixture(scope="session")
def several(page: PageData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bad = replace(page, title="Another page", identity="f" * 16, verdict="violation")
    return write_page([page, bad], tmp_path_factory.mktemp("pages") / "several.html")
