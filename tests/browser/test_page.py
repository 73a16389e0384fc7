"""The page in a real browser: the threshold's numbers are the library's, and it reads anywhere."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_tools import emulate

from dpaudit.curves import epsilon_of_errors, gaussian_epsilon, mu_of_errors
from dpaudit.lower_bounds import ErrorCounts
from dpaudit.lower_bounds.counts import upper_rate
from dpaudit.report import PageData
from dpaudit.scores import Scores

LIVE = (
    "threshold",
    "false-positives",
    "false-negatives",
    "false-positive-rate",
    "false-negative-rate",
    "false-positive-upper",
    "false-negative-upper",
    "mu",
    "gaussian-epsilon",
    "epsilon",
)


@pytest.fixture
def opened(browser: Any, file: Path) -> Iterator[Any]:
    """The page, freshly opened at desktop width in light colours; its console must stay silent."""
    emulate(browser, width=1100)
    browser.get(file.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def live(browser: Any) -> dict[str, float]:
    values = browser.execute_script(
        "return Object.fromEntries(arguments[0].map(name => "
        "[name, document.querySelector(`[data-live='${name}']`).dataset.value]))",
        LIVE,
    )
    return {name: float(value) for name, value in values.items()}


def check_against_the_library(found: dict[str, float], scores: Scores) -> None:
    ones, zeros = scores.inserted_scores, scores.other_scores
    threshold = found["threshold"]
    counts = ErrorCounts.at(ones, zeros, threshold)
    assert found["false-positives"] == np.sum(zeros > threshold)
    assert found["false-negatives"] == np.sum(ones <= threshold)
    assert found["false-positive-rate"] == found["false-positives"] / len(zeros)
    assert found["false-negative-rate"] == found["false-negatives"] / len(ones)
    alpha = upper_rate(counts.false_positives, len(zeros), 0.025)
    beta = upper_rate(counts.false_negatives, len(ones), 0.025)
    mu = max(0.0, float(mu_of_errors(alpha, beta)[0]))
    assert found["false-positive-upper"] == pytest.approx(float(alpha[0]), rel=1e-9)
    assert found["false-negative-upper"] == pytest.approx(float(beta[0]), rel=1e-9)
    assert found["mu"] == pytest.approx(mu, rel=1e-8, abs=1e-12)
    assert found["gaussian-epsilon"] == pytest.approx(gaussian_epsilon(1e-5, mu), rel=1e-7)
    free = float(epsilon_of_errors(alpha, beta, 1e-5)[0])
    assert found["epsilon"] == pytest.approx(free, rel=1e-8, abs=1e-12)


def drag(browser: Any, *shares: float, kind: str = "mouse") -> None:
    """Press at the first share of the plot's width, move over the others, let go at the last."""
    box = browser.execute_script(
        "const p = document.querySelector('.threshold-plot'); p.scrollIntoView({block: 'center'});"
        "const b = p.getBoundingClientRect(); return [b.left, b.top + b.height / 2, b.width]"
    )
    places = [{"x": box[0] + share * box[2], "y": box[1]} for share in shares]
    if kind == "touch":
        steps = [("touchStart", places[0]), *(("touchMove", place) for place in places[1:])]
        for name, place in steps:
            event = {"type": name, "touchPoints": [place]}
            browser.execute_cdp_cmd("Input.dispatchTouchEvent", event)
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        return
    held = {"button": "left", "buttons": 1, "clickCount": 1}
    moves = [("mousePressed", places[0]), *(("mouseMoved", place) for place in places[1:])]
    for name, place in [*moves, ("mouseReleased", places[-1])]:
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": name, **place, **held})


def press(browser: Any, *keys: str) -> None:
    handle = browser.find_element("css selector", ".handle")
    for key in keys:
        handle.send_keys(key)


def test_it_begins_at_the_threshold_of_the_headline(
    opened: Any, page: PageData, scores: Scores
) -> None:
    assert page.evidence is not None
    assert page.evidence.thresholds is not None
    found = live(opened)
    assert found["threshold"] == page.evidence.leading.details["threshold"]
    check_against_the_library(found, scores)
    reading = page.evidence.thresholds.reading
    assert found["epsilon"] == pytest.approx(reading.epsilon, rel=1e-8)


@pytest.mark.parametrize("kind", ["mouse", "touch"])
def test_dragging_shows_the_librarys_numbers(opened: Any, scores: Scores, kind: str) -> None:
    seen = set()
    for share in (0.02, 0.2, 0.4, 0.5, 0.6, 0.8, 0.98):
        drag(opened, 0.45, (0.45 + share) / 2, share, kind=kind)
        found = live(opened)
        check_against_the_library(found, scores)
        seen.add(found["threshold"])
        handle = opened.execute_script("return document.querySelector('.handle').style.left")
        assert float(handle.rstrip("%")) == pytest.approx(100 * share, abs=6)
    assert len(seen) == 7


def test_letting_go_ends_the_drag(opened: Any) -> None:
    drag(opened, 0.3, 0.4)
    before = live(opened)
    drag(opened, 0.4)
    opened.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 900, "y": 400})
    assert live(opened) == before


def test_arrow_keys_go_one_threshold_at_a_time(opened: Any, scores: Scores) -> None:
    from selenium.webdriver.common.keys import Keys

    begun = live(opened)
    press(opened, Keys.ARROW_RIGHT)
    found = live(opened)
    errors = ("false-positives", "false-negatives")
    moved = sum(abs(found[name] - begun[name]) for name in errors)
    assert found["threshold"] > begun["threshold"]
    assert moved <= 1
    check_against_the_library(found, scores)
    press(opened, Keys.ARROW_LEFT)
    assert live(opened) == begun
    press(opened, Keys.HOME)
    check_against_the_library(live(opened), scores)
    assert live(opened)["threshold"] < scores.score.min() + 1
    press(opened, Keys.END, Keys.PAGE_DOWN)
    check_against_the_library(live(opened), scores)


def test_the_slider_has_labels_for_screen_readers(opened: Any) -> None:
    handle = opened.find_element("css selector", "[role=slider]")
    low, now, high = (
        int(handle.get_attribute(f"aria-value{name}")) for name in ("min", "now", "max")
    )
    assert low == 0 < now < high
    drag(opened, 0.7)
    assert int(handle.get_attribute("aria-valuenow")) > now
    assert "false positives" in handle.get_attribute("aria-valuetext")
    assert opened.switch_to.active_element == handle


def test_back_to_the_headlines_threshold(opened: Any) -> None:
    begun = live(opened)
    button = opened.find_element("css selector", "button.reset")
    assert not button.is_enabled()
    drag(opened, 0.8)
    assert live(opened) != begun
    opened.execute_script("arguments[0].click()", button)
    assert live(opened) == begun


def test_the_ring_follows_on_the_trade_off_curve(opened: Any) -> None:
    def ring() -> tuple[float, float]:
        style = opened.execute_script(
            "const s = document.querySelector('.here').style; return [s.left, s.bottom]"
        )
        return float(style[0].rstrip("%")), float(style[1].rstrip("%"))

    drag(opened, 0.3)
    left = ring()
    drag(opened, 0.7)
    right = ring()
    assert left[0] > right[0]  # fewer false positives
    assert left[1] < right[1]  # more false negatives


def soon(browser: Any, holds: Callable[[], bool]) -> bool:
    """Whether it holds before long: a browser tells its page of some things in its own time."""
    from selenium.webdriver.support.wait import WebDriverWait

    return bool(WebDriverWait(browser, 30).until(lambda _: holds()))


def background(browser: Any) -> int:
    colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in colour.strip("rgb()").split(","))


def test_dark_where_the_reader_prefers_it_and_on_demand(opened: Any) -> None:
    assert background(opened) > 600
    emulate(opened, width=1100, scheme="dark")
    assert soon(opened, lambda: background(opened) < 150)
    toggle = opened.find_element("css selector", "button.theme")
    assert soon(opened, lambda: toggle.text == "Light")
    toggle.click()
    assert soon(opened, lambda: background(opened) > 600)
    toggle.click()
    assert soon(opened, lambda: background(opened) < 150)
    opened.execute_script("localStorage.clear()")


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_never_scrolls_sideways(opened: Any, several: Path, width: int) -> None:
    emulate(opened, width=width)
    for address in (opened.current_url, several.as_uri()):
        opened.get(address)
        opened.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
        wide = opened.execute_script(
            "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, pre')"
            " && e.getBoundingClientRect().right > arguments[0] + 1).map(e => e.className)",
            width,
        )
        # A phone zooms out over what is too wide, so that its own idea of the width says nothing.
        needed = opened.execute_script("return document.documentElement.scrollWidth")
        assert (wide, needed) == ([], width)
    opened.execute_script("document.querySelector('.threshold-plot').scrollIntoView()")


def test_print_is_light_and_has_everything(opened: Any, several: Path) -> None:
    emulate(opened, width=1100, scheme="dark", media="print")
    assert background(opened) > 600
    assert not opened.find_element("css selector", "button.theme").is_displayed()
    emulate(opened, width=1100)
    opened.get(several.as_uri())
    paper = opened.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})
    assert base64.b64decode(paper["data"]).startswith(b"%PDF")
    # Folded audits were opened for the printer.
    opened_all = "return [...document.querySelectorAll('details')].every(d => d.open)"
    assert opened.execute_script(opened_all)


def test_without_scripts_the_numbers_are_there(opened: Any, file: Path, page: PageData) -> None:
    opened.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened.get(file.as_uri())
        said = opened.find_element("css selector", "[data-live='epsilon']").text
    finally:
        opened.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert page.evidence is not None
    assert page.evidence.thresholds is not None
    reading = page.evidence.thresholds.reading
    assert said == f"{reading.epsilon:.2f}"
