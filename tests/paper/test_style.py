"""Drawing: a column of a legend holds entries of one group only."""

from __future__ import annotations

import pytest

from dpaudit_paper import style


@pytest.mark.parametrize(
    ("sizes", "columns", "rows"), [((3, 4), 2, 4), ((3, 4), 4, 2), ((6, 4), 4, 3), ((1, 1), 2, 1)]
)
def test_columns_of_a_legend_do_not_mix_groups(sizes, columns, rows):
    from matplotlib.lines import Line2D

    groups = [
        [Line2D([], [], label=f"{group} {i}") for i in range(size)]
        for group, size in zip("ab", sizes, strict=True)
    ]
    figure, _ = style.new_figure(height=2.0)
    style.grouped_legend_below(figure, groups, columns=columns)
    (legend,) = figure.legends
    found = [text.get_text() for text in legend.get_texts()]
    assert [label for label in found if label.strip()] == [
        line.get_label() for group in groups for line in group
    ]
    assert len(found) % rows == 0
    assert len(found) // rows <= columns
    for start in range(0, len(found), rows):
        assert len({label[0] for label in found[start : start + rows] if label.strip()}) == 1
