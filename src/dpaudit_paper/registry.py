"""Every figure and table of the paper, in the paper's order, and how to find one by its name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from dpaudit.errors import InvalidInput
from dpaudit_paper import (
    a1_variants,
    a2_over_parameterised,
    a3a_convnet_tradeoff,
    a3b_landscape_tradeoff,
    a4_threshold_search,
    a5_random_direction,
    a6_canary_norm,
    a7_landscape_shape,
    a8_privacy_profiles,
    a9_unknown_start,
    a10_fine_tuning,
    a11_every_sigma,
    f1a_convnet,
    f1b_resnet18,
    f1c_fcnn,
    f2a_k5,
    f2b_k25,
    f3a_landscape,
    f3b_heat_map,
    p1_protocols,
    t1_prior_work,
    t2_hyperparameters,
)
from dpaudit_paper.contract import Figure
from dpaudit_paper.setting import Scale

FIGURES: dict[str, Figure] = {
    module.FIGURE.id: module.FIGURE
    for module in (
        f1a_convnet,
        f1b_resnet18,
        f1c_fcnn,
        f2a_k5,
        f2b_k25,
        f3a_landscape,
        f3b_heat_map,
        t1_prior_work,
        a1_variants,
        a2_over_parameterised,
        t2_hyperparameters,
        a3a_convnet_tradeoff,
        a3b_landscape_tradeoff,
        a4_threshold_search,
        a5_random_direction,
        a6_canary_norm,
        a7_landscape_shape,
        a8_privacy_profiles,
        a9_unknown_start,
        a10_fine_tuning,
        a11_every_sigma,
        p1_protocols,
    )
}


def chosen(names: Iterable[str], *, scale: Scale, gpu: bool = False) -> list[Figure]:
    """The figures of these names, cheapest first; ``all`` for every one, ``F1`` for F1a to F1c.

    Cheapest first, so that a session that is cut short has made as many as it could.

    Arguments:
        names: Names as the command line knows them, in any case.
        scale: Decides what they cost.
        gpu: On what.

    Example:
        >>> [figure.id for figure in chosen(["f1C"], scale="quick")]
        ['F1c']
    """
    found: dict[str, Figure] = {}
    for name in names:
        found |= {figure.id: figure for figure in _named(name)}

    def seconds(figure: Figure) -> float:
        cost = figure.cost(scale)
        return cost.gpu if gpu or cost.cpu is None else cost.cpu

    return sorted(found.values(), key=seconds)


def _named(name: str) -> list[Figure]:
    if name.lower() == "all":
        return list(FIGURES.values())
    by_lower = {known.lower(): figure for known, figure in FIGURES.items()}
    if name.lower() in by_lower:
        return [by_lower[name.lower()]]
    # F1 means F1a, F1b and F1c, but A1 never means A10.
    parts = [
        figure
        for lower, figure in by_lower.items()
        if lower[:-1] == name.lower() and lower[-1].isalpha()
    ]
    if parts:
        return parts
    nearest = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.0)
    meant = f"did you mean {by_lower[nearest[0]].id}? " if nearest else ""
    raise InvalidInput(
        f"no figure or table is called {name!r}; {meant}'dpaudit reproduce' lists them all"
    )
