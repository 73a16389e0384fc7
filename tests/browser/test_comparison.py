"""The comparison of audits in a browser: sorting, filtering, overlaid curves, links, widths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_tools import SCHEMES, WIDTHS, emulate, keep_screenshot

from dpaudit.report import Facts, PageData, write_page

AUDITS = 12


@pytest.fixture(scope="module")
def comparison(page: PageData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve audits: every fourth is a violation, and noise and name differ."""
    assert page.evidence is not None
    evidence = page.evidence
    pages = []
    for k in range(AUDITS):
        leading = replace(evidence.leading, epsilon=float((k * 5) % AUDITS) + 0.5)
        curves = evidence.tradeoff
        moved = replace(curves.proven, y=np.minimum(1.0, curves.proven.y * (1 + k / 6)))
        pages.append(
            replace(
                page,
                title=f"audit {k}",
                identity=f"{k + 1:08x}" * 2,
                verdict="violation" if k % 4 == 0 else "consistent",
                evidence=replace(evidence, leading=leading, tradeoff=replace(curves, proven=moved)),
                facts=(Facts(heading="training", rows=(("noise multiplier", f"{10 - k}"),)),),
            )
        )
    return write_page(pages, tmp_path_factory.mktemp("pages") / "comparison.html")


@pytest.fixture
def opened(browser: Any, comparison: Path) -> Iterator[Any]:
    emulate(browser, width=1400)
    browser.get("about:blank")  # a new address with the same file would not load it again
    browser.get(comparison.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def column(browser: Any, selector: str) -> list[str]:
    return browser.execute_script(
        "return [...document.querySelectorAll('.comparison tbody tr:not([hidden])')]"
        ".map(row => row.querySelector(arguments[0]).textContent.trim())",
        selector,
    )


def click(browser: Any, selector: str) -> None:
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def head(browser: Any, name: str) -> None:
    browser.execute_script(
        "[...document.querySelectorAll('.comparison thead button')]"
        ".find(one => one.textContent === arguments[0]).click()",
        name,
    )


def test_a_click_on_a_heading_sorts_by_number_and_a_second_reverses(opened: Any) -> None:
    head(opened, "lower ε")
    rising = [float(text) for text in column(opened, ".lower")]
    assert rising == sorted(rising)
    assert len(rising) == AUDITS
    head(opened, "lower ε")
    assert [float(text) for text in column(opened, ".lower")] == rising[::-1]
    head(opened, "noise multiplier")
    assert column(opened, ".setting") == [str(k) for k in range(-1, 11)]
    head(opened, "verdict")
    words = column(opened, ".word")
    assert words == sorted(words)


def test_the_filter_keeps_the_rows_with_all_words(opened: Any) -> None:
    box = opened.find_element("css selector", ".filter")
    box.send_keys("violation")
    assert column(opened, "a") == ["audit 0", "audit 4", "audit 8"]
    assert "3 of 12" in opened.find_element("css selector", "[role=status]").text
    box.send_keys(" 00000005")
    assert column(opened, "a") == ["audit 4"]


def test_chosen_audits_are_drawn_each_in_a_colour(opened: Any) -> None:
    def drawn() -> dict[str, str]:
        return dict(
            opened.execute_script(
                "return [...document.querySelectorAll('.overlay path:not(.dashed)')]"
                ".map(path => [path.dataset.audit, getComputedStyle(path).stroke])"
            )
        )

    begun = drawn()
    assert {"audit-00000001", "audit-00000005", "audit-00000009"} <= set(begun)  # the violations
    boxes = opened.find_elements("css selector", ".pick input")
    assert [box.is_selected() for box in boxes].count(True) == len(begun)
    for box in boxes:
        if box.is_enabled() and not box.is_selected():
            box.click()
    full = drawn()
    assert len(full) == len(set(full.values())) == 8
    assert not all(box.is_enabled() for box in boxes)
    boxes[0].click()
    assert set(full) - set(drawn()) == {"audit-00000001"}
    assert all(box.is_enabled() for box in boxes)
    entries = opened.find_elements("css selector", ".overlay .legend .entry")
    assert len(entries) == 7


def test_a_deep_link_opens_its_audit(opened: Any, comparison: Path) -> None:
    folded = "return [...document.querySelectorAll('details.one')].map(one => one.open)"
    assert not any(opened.execute_script(folded))
    opened.find_element("css selector", 'a[href="#audit-00000002"]').click()
    assert opened.execute_script(folded)[1]
    opened.get("about:blank")
    opened.get(f"{comparison.as_uri()}#audit-00000003")
    assert [place for place, one in enumerate(opened.execute_script(folded)) if one] == [2]


@pytest.fixture(scope="module")
def mixed(page: PageData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two audits that differ in thirty settings, as of different kinds of training."""
    facts = [
        Facts(heading=f"kind {k}", rows=tuple((f"setting {k}-{n}", f"{n}") for n in range(15)))
        for k in range(2)
    ]
    pages = [replace(page, identity=f"{k}" * 16, facts=(facts[k],)) for k in range(2)]
    return write_page(pages, tmp_path_factory.mktemp("pages") / "mixed.html")


def visible(browser: Any, selector: str) -> int:
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])]"
        ".filter(e => e.getClientRects().length).length",
        selector,
    )


def test_bounds_are_seen_without_scrolling_and_few_settings_at_first(
    browser: Any, mixed: Path
) -> None:
    for width in WIDTHS:
        emulate(browser, width=width)
        browser.get("about:blank")
        browser.get(mixed.as_uri())
        right = browser.execute_script(
            "return Math.max(...[...document.querySelectorAll('td.lower, td.upper')]"
            ".map(e => e.getBoundingClientRect().right))"
        )
        assert right <= width
        few = visible(browser, "tbody .setting")
        click(browser, ".all-settings")
        assert 0 < few <= 12 < visible(browser, "tbody .setting")
    assert browser.get_log("browser") == []


def test_audits_of_one_title_have_their_identity_in_the_legend(browser: Any, mixed: Path) -> None:
    browser.get("about:blank")
    browser.get(mixed.as_uri())
    click(browser, ".pick input")
    click(browser, ".pick input")  # drawn again by the script
    entries = [e.text for e in browser.find_elements("css selector", ".overlay .entry")]
    assert sorted(text.split()[-1] for text in entries) == ["00000000", "11111111"]


def test_audits_without_curves_are_compared_too(
    browser: Any, page: PageData, tmp_path: Path
) -> None:
    pages = [replace(page, evidence=None, identity=f"{k}" * 16) for k in range(2)]
    browser.get(write_page(pages, tmp_path / "stored.html").as_uri())
    assert visible(browser, ".pick") == 0
    browser.find_element("css selector", ".filter").send_keys("11111111")
    assert visible(browser, "tbody tr") == 1
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_overflows_and_violations_stand_out(opened: Any, scheme: str) -> None:
    for width in WIDTHS:
        emulate(opened, width=width, scheme=scheme)
        wide = opened.execute_script(
            "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg')"
            " && e.getBoundingClientRect().right > arguments[0] + 1).map(e => e.className)",
            width,
        )
        needed = opened.execute_script("return document.documentElement.scrollWidth")
        assert wide == []
        assert needed <= width
        red, green, blue = opened.execute_script(
            "return getComputedStyle(document.querySelector('tr.violation a')).color"
            ".match(/\\d+/g).slice(0, 3).map(Number)"
        )
        assert red > 1.5 * max(green, blue)
        keep_screenshot(opened, f"comparison-{width}-{scheme}")
