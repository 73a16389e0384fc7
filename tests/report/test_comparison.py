"""Several audits in one page: which settings it shows, which curves it draws, and its size."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from played import normal_scores, settings, store_audit

from dpaudit.errors import InvalidInput
from dpaudit.report import Facts, PageData, render_page
from dpaudit.report.comparison import MOST_COMPARED, compare
from dpaudit.report.pages import record_page
from dpaudit.report.palette import ADVERSARIES
from dpaudit.scores import Store


@pytest.fixture(scope="module")
def pages() -> list[PageData]:
    """Two consistent audits and a violation, which differ in noise and seed."""
    with Store.open(":memory:") as store:
        return [
            record_page(
                store_audit(
                    store,
                    normal_scores(mu, runs=200, seed=seed),
                    settings(runs=200, noise_multiplier=noise, seed=seed),
                    name=name,
                ),
            )
            for name, noise, mu, seed in (
                ("weak", 8.0, 1.8, 1),
                ("strong", 4.0, 3.5, 2),
                ("wrong", 8.0, 5.0, 3),
            )
        ]


def keys_of(pages: list[PageData]) -> list[str]:
    return [page.identity for page in pages]


def test_only_settings_that_differ_are_columns(pages: list[PageData]) -> None:
    found = compare(pages, keys_of(pages))
    columns = {column.name: column.values for column in found.columns}
    assert columns == {"noise multiplier": ("8", "4", "8"), "seed": ("1", "2", "3")}
    common = dict(found.common)
    assert common["clip norm"] == "1"
    assert not set(common) & set(columns)
    assert not {"duration", "created"} & set(common)


def test_the_adversary_comes_first_and_what_follows_from_other_settings_is_hidden(
    pages: list[PageData],
) -> None:
    many = [
        replace(
            pages[0],
            identity=f"{k:016x}",
            facts=(
                Facts(heading="training", rows=(("steps", f"{k}"), ("horizons", f"{k}, {k + 1}"))),
                Facts(heading="adversary", rows=(("name", f"adversary {k}"),)),
            ),
        )
        for k in range(2)
    ]
    columns = compare(many, keys_of(many)).columns
    assert [column.name for column in columns if not column.is_further] == ["adversary", "steps"]
    assert [column.name for column in columns if column.is_further] == ["horizons"]


def test_a_setting_that_one_audit_lacks_is_a_column(pages: list[PageData]) -> None:
    bare = replace(pages[0], facts=())
    names = {column.name for column in compare([bare, pages[1]], ["a", "b"]).columns}
    assert {"clip norm", "adversary"} <= names


def test_violations_are_counted_drawn_and_marked(pages: list[PageData]) -> None:
    many = [replace(pages[0], identity=f"{k:016x}"[::-1]) for k in range(12)] + [pages[2]]
    found = compare(many, keys_of(many))
    assert ("Violation", 1) in found.counts
    assert pages[2].identity in found.drawn
    assert len(found.drawn) < len(many)
    text = render_page(many)
    assert text.count('<tr class="violation"') == 1
    assert len(re.findall(r'<path class="line c\d" data-audit', text)) == len(found.drawn)


def test_adversaries_have_their_colours_if_they_differ(pages: list[PageData]) -> None:
    assert compare(pages, keys_of(pages)).curves["adversaries"] == {}
    facts = (Facts(heading="adversary", rows=(("name", "random-dimension"),)),)
    mixed = [pages[0], replace(pages[1], facts=facts)]
    found = compare(mixed, keys_of(mixed)).curves["adversaries"]
    assert found == {
        pages[0].identity: ADVERSARIES["simulated-dimension"],
        pages[1].identity: ADVERSARIES["random-dimension"],
    }
    assert f"--curve:{ADVERSARIES['random-dimension']}" in render_page(mixed)


def test_the_length_of_a_setting_is_looked_at_once_for_the_whole_table(
    pages: list[PageData],
) -> None:
    looked = []

    class Word(str):
        def __len__(self) -> int:
            looked.append(self)
            return super().__len__()

    facts = [Facts(heading="training", rows=(("loss", Word(k)),)) for k in range(20)]
    many = [replace(pages[0], identity=f"{k:016x}", facts=(facts[k],)) for k in range(20)]
    render_page(many)
    assert len(looked) <= 2 * len(many)


def test_equal_curves_are_written_once(pages: list[PageData]) -> None:
    found = compare(pages, keys_of(pages))
    claimed = [found.curves["audits"][key][1] for key in keys_of(pages)]
    assert claimed[0] == claimed[2] != claimed[1]


def test_every_audit_has_a_link_of_its_own(pages: list[PageData]) -> None:
    text = render_page([*pages, pages[0], replace(pages[0], identity=""), pages[0]])
    links = re.findall(r'href="#(audit[^"]*)"', text)
    assert len(set(links)) == 6
    assert links[0] == f"audit-{pages[0].identity[:8]}"
    for link in links:
        assert f'<details class="one" id="{link}">' in text


def test_a_page_has_a_largest_number_of_audits(pages: list[PageData]) -> None:
    many = [replace(pages[k % 3], identity=f"{k:016x}"[::-1]) for k in range(MOST_COMPARED + 1)]
    with pytest.raises(InvalidInput, match=f"at most {MOST_COMPARED} audits, got {len(many)}"):
        render_page(many)
    assert render_page(many[1:]).count('<article class="audit">') == MOST_COMPARED
