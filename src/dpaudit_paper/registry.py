"""The figures and tables in the paper's order, the choice of some, and what they need."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from dpaudit._registry import Registry
from dpaudit.errors import DataError, InvalidInput
from dpaudit_paper.base import Figure, Need, Scale

_HOMES = {
    "F1a": "cifar10:F1A",
    "F1b": "cifar10:F1B",
    "F1c": "housing:F1C",
    "F2a": "cifar10:F2A",
    "F2b": "cifar10:F2B",
    "F3a": "landscapes:F3A",
    "F3b": "landscapes:F3B",
    "T1": "tables:T1",
    "A1": "housing:A1",
    "A2": "cifar10:A2",
    "T2": "tables:T2",
    "A3a": "cifar10:A3A",
    "A3b": "landscapes:A3B",
    "A4": "landscapes:A4",
    "A5": "housing:A5",
    "A6": "cifar10:A6",
    "A7": "landscapes:A7",
    "A8": "cifar10:A8",
    "A9": "cifar10:A9",
    "A10": "cifar10:A10",
    "A11": "landscapes:A11",
    "P1": "cifar10:P1",
    "H1": "hidden_state:H1",
    "H2": "hidden_state:H2",
    "H3": "hidden_state:H3",
}

FIGURES: Mapping[str, Figure] = Registry(
    "figure",
    "dpaudit.figures",
    {name: f"dpaudit_paper.figures.{home}" for name, home in _HOMES.items()},
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
    figures = {figure.id: figure for name in names for figure in _named(name)}

    def seconds(figure: Figure) -> float:
        cost = figure.cost(scale)
        return cost.gpu if gpu or cost.cpu is None else cost.cpu

    return sorted(figures.values(), key=seconds, reverse=longest_first)


def _named(name: str) -> list[Figure]:
    if name.lower() == "all":
        return list(FIGURES.values())
    by_lower = {figure_name.lower(): figure_name for figure_name in FIGURES}
    if name.lower() in by_lower:
        return [FIGURES[by_lower[name.lower()]]]
    # F1 means F1a, F1b and F1c, but A1 never means A10.
    parts = [
        FIGURES[figure_name]
        for lower, figure_name in by_lower.items()
        if lower[:-1] == name.lower() and lower[-1].isalpha()
    ]
    if parts:
        return parts
    nearest = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.0)
    meant = f"did you mean {by_lower[nearest[0]]}? " if nearest else ""
    raise InvalidInput(
        f"no figure or table is called {name!r}; {meant}'dpaudit reproduce' lists them all"
    )


def missing_needs(*, data_dir: str | None, device: str) -> frozenset[Need]:
    """The requirements of figures that this machine lacks; reads no data, imports torch."""
    from dpaudit.data.cifar10 import _find_batches
    from dpaudit.presets import find_alexnet

    missing = set()
    if device == "cpu" or not _has_cuda():
        missing.add(Need.GPU)
    try:
        _find_batches(data_dir, True)
    except DataError:
        missing.add(Need.CIFAR10)
    try:
        find_alexnet(data_dir)
    except DataError:
        missing.add(Need.WEIGHTS)
    return frozenset(missing)


def _has_cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
