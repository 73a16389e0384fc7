"""Pages of every kind of audit: what they say, what they escape, that they need nothing else."""

from __future__ import annotations

import html.parser
import re
from pathlib import Path

import numpy as np
import pytest
from played import normal_scores, settings, store_audit

import dpaudit
from dpaudit.audits import read_result
from dpaudit.audits.evidence import collect_evidence
from dpaudit.errors import InvalidInput, StoreError
from dpaudit.report import (
    PageData,
    render_page,
    thresholds_for,
    write_page,
)
from dpaudit.report.pages import record_page
from dpaudit.scores import Scores, Store

MU = 250**0.5 / 4  # mu of the settings' claim


def page_of(scores: Scores | None, **options: object) -> PageData:
    finished = bool(options.pop("finished", True))
    name = options.pop("name", None)
    with Store.open(":memory:") as store:
        configuration = settings(**options)  # type: ignore[arg-type]
        record = store_audit(
            store, scores, configuration, name=name, finished=finished  # type: ignore[arg-type]
        )  # fmt: skip
        return record_page(record)


class Balanced(html.parser.HTMLParser):
    """Fails on a tag that is closed by another, and collects text."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "path", "rect"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for key, value in attrs if key == "id" and value]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for key, value in attrs if key == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(text: str) -> Balanced:
    reader = Balanced()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    return reader


def check_alone(text: str) -> None:
    """Nothing that a browser would fetch; packed numbers may spell anything."""
    text = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    assert re.findall(r"https?:|//[a-z]|@import|<iframe|<img|srcset|fetch\(|XMLHttp", text) == []
    for target in re.findall(r"url\(([^)]*)\)", text):
        assert re.fullmatch(r"#audit(-\w+)*-(left|right)", target)
    assert re.findall(r'(?:src|href)="(?!#|data:)', text) == []
    assert "default-src 'none'" in text


def test_a_tight_audit() -> None:
    page = page_of(normal_scores(MU, runs=1000), runs=1000)
    text = render_page([page])
    parsed(text)
    check_alone(text)
    assert page.verdict == "consistent"
    assert page.evidence is not None
    assert f"ε ≥ {page.evidence.leading.epsilon:.2f}" in text
    assert "ε ≤ 24.00" in text
    assert "1,000 scores from 1,000 runs" in text
    assert "the mechanism&#39;s trade-off curve is Gaussian" in text
    assert page.evidence.cautious is not None
    assert page.evidence.cautious.assumptions == ()


@pytest.mark.parametrize(
    "name",
    ["<script>alert(1)</script>", "</script><b>", '"><img src=x onerror=alert(1)>', "{{ 7 }}"],
)
def test_names_are_text_not_markup(name: str) -> None:
    page = page_of(normal_scores(MU), name=name)
    for text in (render_page([page]), render_page([page, page_of(normal_scores(1.0))])):
        reader = parsed(text)
        check_alone(text)
        assert name in "".join(reader.text)
        assert name not in re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL) or "<" not in name
        assert text.count("<script") == text.count("</script>")


def test_a_violation_differs_from_a_bound_above_the_claim_by_chance() -> None:
    wrong = page_of(normal_scores(8.0, runs=600), runs=600)
    assert wrong.verdict == "violation"
    assert "Look for a bug" in render_page([wrong])

    fine = page_of(normal_scores(MU, runs=600), runs=600)
    assert fine.verdict == "consistent"
    assert "Look for a bug" not in render_page([fine])


def test_one_run_with_many_canaries_says_what_it_assumes() -> None:
    page = page_of(normal_scores(MU, runs=1, canaries=3000), runs=1, canaries=3000)
    text = render_page([page])
    parsed(text)
    assert "3,000 scores from 1 run." in text
    assert "The proven curve assumes that canaries of the same run are independent" in text
    assert page.evidence is not None
    assert page.evidence.cautious is not None
    assert page.evidence.cautious.method == "one-run"


def test_a_hundred_thousand_scores_fit_in_three_megabytes() -> None:
    page = page_of(normal_scores(MU, runs=1, canaries=100_000), runs=1, canaries=100_000)
    text = render_page([page])
    check_alone(text)
    assert len(text.encode()) < 3e6
    limits = page.evidence.thresholds if page.evidence else None
    assert limits is not None
    assert len(limits.counts) > 10_000


def test_many_audits_share_the_three_megabytes(tmp_path: Path) -> None:
    with Store.open(":memory:") as store:
        record = store_audit(
            store, normal_scores(MU, runs=1, canaries=20_000), settings(runs=1, canaries=20_000)
        )
        page = record_page(record, most_thresholds=thresholds_for(20))
    assert write_page([page] * 20, tmp_path / "many.html").stat().st_size < 3e6


def test_an_infinite_upper_bound_is_no_claim() -> None:
    random = np.random.default_rng(0)
    scores = normal_scores(0.0)
    apart = Scores(score=scores.inserted + 1e-9 * random.normal(size=400), inserted=scores.inserted)
    page = page_of(apart, noise_multiplier=0.0)
    text = render_page([page])
    parsed(text)
    assert page.verdict == "no-claim"
    assert "ε ≤ ∞" in text
    assert "nothing is claimed" in text
    assert page.evidence is not None
    assert page.evidence.tradeoff.claimed is None
    assert page.evidence.profile.claimed is None


def test_an_unfinished_audit_says_how_much_is_done() -> None:
    page = page_of(normal_scores(MU, runs=100), runs=400, finished=False)
    text = render_page([page])
    assert (page.unfinished, page.runs) == (True, (100, 400))
    assert "100 of 400 runs are done" in text
    assert "to resume it" in text
    assert page.evidence is not None


@pytest.mark.parametrize("scores", [None, Scores(score=[1.0, 2.0], inserted=[1, 1])])
def test_too_few_scores_give_a_reason_and_no_number(scores: Scores | None) -> None:
    page = page_of(scores, finished=False)
    text = render_page([page])
    parsed(text)
    assert (page.verdict, page.evidence) == ("too-few-scores", None)
    assert "No bound yet" in text
    assert "ε ≥" not in text
    assert "of 400 runs are done" in text


@pytest.mark.parametrize("runs", [2, 4, 10])
def test_a_handful_of_scores_is_enough_for_a_page(runs: int) -> None:
    parsed(render_page([page_of(normal_scores(MU, runs=runs), runs=runs)]))


def test_equal_scores_and_infinite_ones_make_a_page() -> None:
    for score in (np.ones(40), np.where(np.arange(40) % 2, np.inf, -np.inf)):
        scores = Scores(score=score, inserted=np.arange(40) % 2)
        parsed(render_page([page_of(scores, runs=40)]))


def test_horizons_are_shorter_trainings() -> None:
    page = page_of(normal_scores(2.0), horizons=(50, 100))
    assert [stop.horizon for stop in page.horizons] == [50, 100, 250]
    text = render_page([page])
    parsed(text)
    assert "Shorter trainings" in text


def test_several_audits_side_by_side() -> None:
    pages = [
        page_of(normal_scores(MU), name="first"),
        page_of(normal_scores(1.0, seed=1), period=5, steps=1250, name="second"),
        page_of(None, finished=False, name="third"),
    ]
    text = render_page(pages)
    reader = parsed(text)
    check_alone(text)
    assert "3 audits" in "".join(reader.text)
    for page in pages:
        assert f'href="#audit-{page.identity[:8]}"' in text
        assert page.title in text
    assert text.count('<article class="audit">') == 3


def test_a_page_needs_no_mechanism() -> None:
    scores = normal_scores(3.0)
    claim = dpaudit.Claim.from_points([(1.0, 1e-5)])
    lower = dpaudit.estimate_all(scores, methods=["clopper-pearson"], delta=1e-5)
    test = dpaudit.test_claim(scores, claim)
    page = PageData(
        title="mine",
        subtitle="",
        identity="",
        verdict=test.verdict,
        sentence="Violation: it leaks.",
        evidence=collect_evidence(
            scores, lower=lower, leading=lower.bounds[0], claim=claim, test=test
        ),
    )
    text = render_page([page])
    parsed(text)
    assert "It leaks." in text
    assert "Repeat it" not in text


def test_the_audit_of_an_own_training_is_a_page(tmp_path: Path) -> None:
    from dpaudit import audit

    result = audit(
        noisy_sum, claim=dpaudit.Claim.from_mu(1.0), runs=120, store=tmp_path / "own.sqlite"
    )
    text = write_page(result.page(), tmp_path / "own.html").read_text(encoding="utf8")
    parsed(text)
    check_alone(text)
    assert "1-GDP" in text
    with Store.open(tmp_path / "own.sqlite") as store:
        kept = record_page(store.audits()[0])
    assert kept.verdict == result.verdict
    assert kept.sentence == result.sentence
    for page in (kept, result.page()):
        (adversary,) = [dict(group.rows) for group in page.facts if group.heading == "adversary"]
        assert adversary["name"] == result.adversary == "score"
    parsed(render_page([kept]))


def test_an_audit_that_was_watched_says_what_still_holds(tmp_path: Path) -> None:
    from dpaudit import audit

    result = audit(
        noisy_sum,
        claim=dpaudit.Claim.from_mu(0.1),
        runs=400,
        until_violation=True,
        store=tmp_path / "own.sqlite",
    )
    with Store.open(tmp_path / "own.sqlite") as store:
        kept = record_page(store.audits()[0])
    text = write_page([result.page(), kept], tmp_path / "own.html").read_text(encoding="utf8")
    parsed(text)
    assert text.count("The scores were tested as they came, and") == 2
    assert kept.evidence is not None
    assert kept.evidence.leading.method == result.leading.method == "anytime-gaussian-dp"
    assert kept.evidence.leading.epsilon == result.leading.epsilon


def noisy_sum(canary: object, inserted: bool, seed: int) -> float:
    return float(inserted) + float(np.random.default_rng(seed).normal())


def test_foreign_audits_and_bad_paths_are_refused(tmp_path: Path) -> None:
    with Store.open(":memory:") as store:
        record = store.begin("other", {"something": 1}, {})
        with pytest.raises(StoreError, match="cannot be read"):
            record_page(record)
    with pytest.raises(InvalidInput, match="make the folder first"):
        write_page(page_of(normal_scores(1.0)), tmp_path / "no" / "page.html")
    with pytest.raises(InvalidInput, match="at least one audit"):
        render_page([])


def test_result_has_a_report_of_its_own(tmp_path: Path) -> None:
    with Store.open(":memory:") as store:
        result = read_result(store_audit(store, normal_scores(MU), settings()))
    assert result.report(tmp_path / "page.html").read_text(encoding="utf8").startswith("<!doctype")


@pytest.mark.parametrize(("mu", "verdict"), [(MU, "consistent"), (8.0, "violation")])
def test_the_headline_says_what_was_claimed_shown_and_to_do(mu: float, verdict: str) -> None:
    page = page_of(normal_scores(mu, runs=600), runs=600)
    assert page.verdict == verdict
    assert page.statement is not None
    rows = dict(page.statement.rows)
    assert list(rows) == ["Claimed", "Shown", "Meaning", "What to do"]
    assert page.evidence is not None
    assert page.evidence.least_upper is not None
    assert f"{page.evidence.least_upper.epsilon:.2f}" in rows["Claimed"]
    assert f"{page.evidence.leading.epsilon:.2f}" in rows["Shown"]
    text = render_page([page])
    parsed(text)
    assert all(
        html.escape(row, quote=False) in html.unescape(text) or row in html.unescape(text)
        for row in rows.values()
    )
