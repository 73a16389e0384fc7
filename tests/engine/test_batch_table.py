"""Batches in a table of fixed width."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from dpaudit._arrays import Integers
from dpaudit.engine.training import batch_table
from dpaudit.mechanisms.batches import (
    BatchPlan,
    FixedBatches,
    FullBatch,
    PoissonBatches,
    ReshuffledEpochs,
)


@pytest.mark.parametrize(
    "plan",
    [
        FixedBatches(batch_size=7),
        ReshuffledEpochs(batch_size=7),
        PoissonBatches(rate=0.1),
        FullBatch(),
    ],
    ids=["fixed", "reshuffled", "poisson", "full"],
)
def test_every_step_sees_its_batch_and_padding_has_no_weight(plan: BatchPlan) -> None:
    rows, present, at = batch_table(plan, 30, 40)
    for step, place in enumerate(at):
        batch = rows[place][present[place] == 1]
        np.testing.assert_array_equal(batch, plan.indices(step, 40))
    assert rows.shape[1] == max(len(plan.indices(step, 40)) for step in range(30))


def test_batches_that_come_round_again_are_kept_once() -> None:
    assert len(batch_table(FixedBatches(batch_size=10), 100, 40)[0]) == 4
    assert len(batch_table(FullBatch(), 100, 40)[0]) == 1


def test_an_empty_poisson_batch_is_a_step_like_any_other() -> None:
    rows, present, at = batch_table(PoissonBatches(rate=0.03, seed=1), 50, 40)
    assert present[at].sum(1).min() == 0
    assert rows.shape[1] >= 1


def test_a_plan_that_cannot_be_hashed_works_too() -> None:
    @dataclass
    class Mine(BatchPlan):
        size: int

        def indices(self, step: int, examples: int) -> Integers:
            return np.arange(self.size)

        def expected_size(self, examples: int) -> float:
            return float(self.size)

        def check(self, examples: int) -> None:
            pass

        @property
        def assumption(self) -> str:
            return "none"

    assert batch_table(Mine(size=3), 5, 40)[0].tolist() == [[0, 1, 2]]
