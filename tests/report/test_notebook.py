"""Results in the output of a notebook cell."""

from __future__ import annotations

from played import normal_scores, settings, store_audit
from test_pages import MU, parsed

from dpaudit.audits import read_result
from dpaudit.report.palette import ALARM
from dpaudit.scores import Store


def test_a_result_shows_verdict_sentence_and_every_bound() -> None:
    with Store.open(":memory:") as store:
        record = store_audit(store, normal_scores(2 * MU, runs=600), settings(runs=600))
        result = read_result(record)
    text = result._repr_html_()
    reader = parsed(text)
    shown = " ".join(reader.text)
    assert ALARM.light in text
    assert "Violation" in shown
    for _, text in result.statement.rows:
        assert text in "".join(reader.text)
    assert f"≤ {result.least_upper.epsilon:.2f}" in shown
    for bound in result.lower:
        assert f"≥ {bound.epsilon:.2f}" in shown
    assert result.verdict in repr(result)
    assert f"epsilon >= {result.leading.epsilon:.2f}" in repr(result)
