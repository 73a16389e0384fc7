"""Figures for papers: into axes of one's own, labelled, at column width, off pyplot's record."""

from __future__ import annotations

import io

import numpy as np
import pytest
from played import normal_scores, settings, store_audit

from dpaudit.audits import read_result
from dpaudit.audits.evidence import AuditEvidence
from dpaudit.audits.result import AuditResult
from dpaudit.errors import InvalidInput
from dpaudit.report import figures
from dpaudit.report.charts import histogram_chart
from dpaudit.report.pages import result_page
from dpaudit.scores import Scores, Store

PICTURES = ("scores", "tradeoff", "profile", "bounds")


@pytest.fixture(scope="module")
def result() -> AuditResult:
    with Store.open(":memory:") as store:
        return read_result(store_audit(store, normal_scores(3.0), settings()))


@pytest.fixture(scope="module")
def found(result: AuditResult) -> AuditEvidence:
    evidence = result_page(result).evidence
    assert evidence is not None
    return evidence


@pytest.mark.parametrize("width", [figures.COLUMN, figures.DOUBLE])
@pytest.mark.parametrize("picture", PICTURES)
def test_every_picture_is_labelled_and_as_wide_as_asked(
    found: AuditEvidence, picture: str, width: float
) -> None:
    made = figures.figure(found, picture, width=width)
    (ax,) = made.axes
    assert made.get_size_inches()[0] == pytest.approx(width)
    assert ax.get_xlabel()
    assert ax.get_legend() is not None
    made.savefig(io.BytesIO(), format="png")
    box = ax.get_tightbbox()
    # Nothing hangs over the edge of the column.
    assert box.x0 >= -1
    assert box.x1 <= made.bbox.x1 + 1


def test_a_gaussian_curve_is_drawn_straight(found: AuditEvidence) -> None:
    (ax,) = figures.figure(found, "tradeoff").axes
    (line,) = [line for line in ax.get_lines() if line.get_label() == "claimed"]
    inside = line.get_ydata() > 1.01e-4
    shown = ax.transData.transform(np.column_stack(line.get_data()))[inside]
    slopes = np.diff(shown[:, 1]) / np.diff(shown[:, 0])
    assert slopes == pytest.approx(slopes[0], rel=1e-6)


def test_axes_of_ones_own_and_pyplot_left_alone(result: AuditResult, found: AuditEvidence) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    before = plt.get_fignums()
    ax = Figure().subplots()
    assert found.histogram is not None
    figures.draw(histogram_chart(found.histogram), ax=ax)
    assert ax.get_xlabel() == "score"
    assert len(result.plot().axes) == 3
    assert plt.get_fignums() == before


@pytest.mark.parametrize("mu", [0.2, 3.0])
def test_labels_of_a_plot_do_not_collide(mu: float) -> None:
    with Store.open(":memory:") as store:
        found = read_result(store_audit(store, normal_scores(mu), settings()))
    from matplotlib.text import Text

    made = found.plot()
    made.savefig(io.BytesIO(), format="png")
    texts = [text for text in made.findobj(Text) if text.get_text() and text.get_visible()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    assert len(boxes) > 20
    for k, (one, box) in enumerate(boxes):
        for other, another in boxes[:k]:
            across = min(box.x1, another.x1) - max(box.x0, another.x0)
            along = min(box.y1, another.y1) - max(box.y0, another.y0)
            assert across <= 1 or along <= 1, f"{one!r} collides with {other!r}"
    # The number of a short bar is beside it, not across its end or the axis.
    bounds = made.axes[2]
    for bar, label in zip(bounds.patches, bounds.texts[len(bounds.patches) :], strict=True):
        if label.get_text():
            assert label.get_window_extent().x0 > bar.get_window_extent().x1


def test_plots_of_odd_scores() -> None:
    for score in (np.ones(40), np.where(np.arange(40) % 2, np.inf, -np.inf)):
        scores = Scores(score=score, inserted=np.arange(40) % 2)
        with Store.open(":memory:") as store:
            odd = read_result(store_audit(store, scores, settings(runs=40, noise_multiplier=0.0)))
        odd.plot().savefig(io.BytesIO(), format="png")


def test_an_unknown_picture_is_refused(found: AuditEvidence) -> None:
    with pytest.raises(InvalidInput, match="picture must be one of"):
        figures.figure(found, "pie")
