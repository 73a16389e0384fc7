"""Sums of rows under `vmap`, whichever of rows and values differ between runs."""

from __future__ import annotations

import pytest
import torch

from dpaudit.engine.embeddings import sum_rows


@pytest.mark.parametrize("axes", [(None, 0), (0, 0), (0, None), (1, 2)])
def test_runs_are_summed_apart(axes: tuple[int | None, int | None]) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 4, (3, 9), generator=generator)
    values = torch.randn(3, 9, 5, generator=generator)
    own_rows = rows if axes[0] is not None else rows[:1].expand(3, -1)
    own_values = values if axes[1] is not None else values[:1].expand(3, -1, -1)
    given_rows = rows[0] if axes[0] is None else rows.movedim(0, axes[0])
    given_values = values[0] if axes[1] is None else values.movedim(0, axes[1])
    found = torch.func.vmap(lambda r, v: sum_rows(r, v, 4), in_dims=axes)(given_rows, given_values)
    for run in range(3):
        expected = torch.zeros(4, 5).index_add(0, own_rows[run], own_values[run])
        torch.testing.assert_close(found[run], expected)
