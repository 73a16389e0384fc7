"""The contract of an integration."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput

if TYPE_CHECKING:
    from dpaudit.integrations.base import Integration


def check_integration(
    integration: Integration,
    make: Callable[[], tuple[Any, Callable[[], Any], Callable[[], Any]]],
    *,
    learning_rate: float,
) -> None:
    """Raise `AssertionError` for the first rule that an integration breaks.

    Arguments:
        integration: The integration.
        make: Makes a small training without noise, the same at every call: its optimizer, a
            function that makes one step, and a function that returns the flat parameters. The
            canary takes part in every step. If the library has no place for a canary from outside,
            only the claim is checked.
        learning_rate: How far the parameters move for a private gradient of one: learning rate
            over expected batch size.
    """
    assert integration.name, "an integration needs a name"
    assert not integration.recognises(object()), "a plain object must not be recognised"
    optimizer, _, parameters = make()
    assert integration.recognises(optimizer), "the library's optimizer must be recognised"
    assert isinstance(integration.claim_of(optimizer, steps=3), Claim), "claim_of gives a Claim"
    try:
        canary = integration.canary_for(optimizer, count=1, seed=1)
    except InvalidInput:  # the library has no place for a canary from outside
        return
    size = len(np.asarray(parameters()))
    assert canary.parameters == size, f"canary_for: {canary.parameters} parameters, not {size}"
    again = integration.canary_for(optimizer, count=1, seed=1)
    assert np.array_equal(canary.dimensions, again.dimensions), "canary_for: depends on its seed"
    _check_insertion(integration, make, canary, learning_rate)
    with contextlib.suppress(InvalidInput):  # not every optimizer has a private step to check
        step = integration.private_step(optimizer)
        rows = np.zeros((4, size))
        assert len(step(rows, 1)) == size, "private_step returns one number for each parameter"
        assert np.array_equal(step(rows, 1), step(rows, 1)), "private_step depends on its seed only"


def _check_insertion(integration: Any, make: Any, canary: Any, learning_rate: float) -> None:
    ends = {}
    for name in ("plain", "without", "with"):
        optimizer, step, parameters = make()
        before = dict(vars(optimizer))
        inserting = (
            contextlib.nullcontext()
            if name == "plain"
            else integration.insert_canary(optimizer, canary, name == "with", seed=0)
        )
        with inserting:
            step()
        assert vars(optimizer).keys() == before.keys(), "insert_canary must restore the optimizer"
        ends[name] = np.asarray(parameters(), dtype=np.float64)
    assert np.array_equal(ends["plain"], ends["without"]), (
        "insert_canary(..., inserted=False) must not change the training"
    )
    moved = (ends["without"] - ends["with"]) / learning_rate
    expected = canary.clipped_sum(True)
    assert np.allclose(moved, expected, atol=1e-3 * canary.clip_norm), (
        f"a canary must move the sum by its clipped gradient: by {np.linalg.norm(moved):.4g}, "
        f"not {np.linalg.norm(expected):.4g}"
    )
