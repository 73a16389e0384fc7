"""The registry of figures and tables, in the paper's order, and the choice of some by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from dpaudit._registry import Registry
from dpaudit.errors import InvalidInput
from dpaudit_paper.base import Figure
from dpaudit_paper.setting import Scale

_MODULES = {
    "F1a": "f1a_convnet",
    "F1b": "f1b_resnet18",
    "F1c": "f1c_fcnn",
    "F2a": "f2a_k5",
    "F2b": "f2b_k25",
    "F3a": "f3a_landscape",
    "F3b": "f3b_heat_map",
    "T1": "t1_prior_work",
    "A1": "a1_variants",
    "A2": "a2_over_parameterised",
    "T2": "t2_hyperparameters",
    "A3a": "a3a_convnet_tradeoff",
    "A3b": "a3b_landscape_tradeoff",
    "A4": "a4_threshold_search",
    "A5": "a5_random_direction",
    "A6": "a6_canary_norm",
    "A7": "a7_landscape_shape",
    "A8": "a8_privacy_profiles",
    "A9": "a9_unknown_start",
    "A10": "a10_fine_tuning",
    "A11": "a11_every_sigma",
    "P1": "p1_protocols",
    "H1": "h1_does_hiding_help",
    "H2": "h2_smoothness",
}

FIGURES: Mapping[str, Figure] = Registry(
    "figure",
    "dpaudit.figures",
    {name: f"dpaudit_paper.figures.{module}:FIGURE" for name, module in _MODULES.items()},
)
"""Every figure and table by its name; other packages add theirs by entry points."""


def chosen(
    names: Iterable[str], *, scale: Scale, gpu: bool = False, longest_first: bool = False
) -> list[Figure]:
    """The figures of these names, cheapest first; ``all`` for every one, ``F1`` for F1a to F1c.

    The order makes an interrupted session leave as many finished figures as possible. The opposite
    order suits figures made at the same time: no long one is left alone at the end.

    Arguments:
        names: Names of figures, in upper or lower case.
        scale: The scale whose cost orders the figures.
        gpu: Whether to order by the cost on a GPU instead of two CPU cores.
        longest_first: Whether the most expensive figure comes first.

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

    return sorted(found.values(), key=seconds, reverse=longest_first)


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
