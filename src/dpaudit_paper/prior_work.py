"""The paper's table of prior adversaries, and the adversary of this package for each row.

The entries of a row (hidden state, tight, kind of canary) are as printed. Our adversaries have
their own attributes; where the two differ, the note of the row says why.

Paper:
    Cebere, Bellet, Papernot (ICLR 2025), appendix, "Summary of prior work on privacy auditing of
    DP-SGD".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, kw_only=True)
class PriorAdversary:
    """One row of the table.

    See also: `dpaudit.adversaries.ADVERSARIES`.

    Arguments:
        paper: Authors of the paper.
        year: Year, as cited by the paper.
        label: Name of the adversary in the table.
        hidden_state: Whether the table lists it as a hidden-state adversary.
        tight: Whether the table lists it as tight in its own threat model.
        canary: The kind of canary in the table.
        adversary: Name of our adversary; `None` for a row without one.
        note: How our adversary differs, or why there is none.
        estimator: The method of `dpaudit.estimate` for a row about an estimator.

    Example:
        >>> [row.label for row in PRIOR_WORK if row.adversary is None]
        ['Experiment 1', 'Experiment 2']
    """

    paper: str
    year: int
    label: str
    hidden_state: bool
    tight: bool
    canary: str
    adversary: str | None
    note: str = ""
    estimator: str | None = None


_BAYESIAN = (
    "Here through its estimator: `dpaudit estimate --method joint-beta` reads the scores of any "
    "adversary. The attacks, a threshold on the loss of a chosen point, are those of "
    "`one-run-black-box` and `flipped-label`."
)

PRIOR_WORK: tuple[PriorAdversary, ...] = (
    PriorAdversary(
        paper="Jagielski et al.",
        year=2020,
        label="Poisoned Backdoor",
        hidden_state=True,
        tight=False,
        canary="sample",
        adversary="clipbkd",
        note="One backdoor at each insertion step in place of k copies in the data.",
    ),
    PriorAdversary(
        paper="Nasr et al.",
        year=2021,
        label="API Access",
        hidden_state=True,
        tight=False,
        canary="sample",
        adversary="api-access",
    ),
    PriorAdversary(
        paper="Nasr et al.",
        year=2021,
        label="Static Adversary",
        hidden_state=True,
        tight=False,
        canary="sample",
        adversary="static-poisoning",
    ),
    PriorAdversary(
        paper="Nasr et al.",
        year=2021,
        label="Intermediate Poison Attack",
        hidden_state=True,
        tight=False,
        canary="sample",
        adversary="intermediate-poisoning",
        note="Reads the loss of every iterate, so that it is no hidden-state adversary here.",
    ),
    PriorAdversary(
        paper="Nasr et al.",
        year=2021,
        label="Adaptive Poisoning Attack",
        hidden_state=False,
        tight=False,
        canary="sample",
        adversary="adaptive-poisoning",
    ),
    PriorAdversary(
        paper="Nasr et al.",
        year=2021,
        label="Gradient Attack",
        hidden_state=False,
        tight=False,
        canary="gradient",
        adversary="gradient-attack",
        note="The dimensions are chosen once, by simulating, not anew at every step.",
    ),
    PriorAdversary(
        paper="Nasr et al.",
        year=2021,
        label="Malicious Datasets",
        hidden_state=False,
        tight=True,
        canary="gradient",
        adversary="malicious-data",
        note="Chooses the examples alone; learning rate and batches stay the mechanism's.",
    ),
    PriorAdversary(
        paper="Zanella-Béguelin et al.",
        year=2023,
        label="Experiment 1",
        hidden_state=True,
        tight=False,
        canary="sample",
        adversary=None,
        note=_BAYESIAN,
        estimator="joint-beta",
    ),
    PriorAdversary(
        paper="Zanella-Béguelin et al.",
        year=2023,
        label="Experiment 2",
        hidden_state=True,
        tight=False,
        canary="sample",
        adversary=None,
        note=_BAYESIAN,
        estimator="joint-beta",
    ),
    PriorAdversary(
        paper="Maddock et al.",
        year=2023,
        label="Algorithm 1",
        hidden_state=False,
        tight=False,
        canary="gradient",
        adversary="canife",
        note=(
            "Designs a data point by its gradient. Out of reach: clients of several local steps, "
            "and mock rounds of a frozen model; an example stands for a client, and rounds add up. "
            "Housing's 68 parameters leave no room for a gradient orthogonal to a batch of 400."
        ),
    ),
    PriorAdversary(
        paper="Nasr et al.",
        year=2023,
        label="Algorithm 1",
        hidden_state=True,
        tight=False,
        canary="sample",
        adversary="flipped-label",
        note="The paper's baseline A_L.",
    ),
    PriorAdversary(
        paper="Nasr et al.",
        year=2023,
        label="Algorithm 2",
        hidden_state=False,
        tight=True,
        canary="gradient",
        adversary="dirac-gradient",
        note="One coin for a run in place of one for a step; takes genuine gradients off the sums.",
    ),
    PriorAdversary(
        paper="Andrew et al.",
        year=2023,
        label="Algorithm 2",
        hidden_state=True,
        tight=False,
        canary="sample or gradient",
        adversary="random-direction",
        note="A_CotS. Out of reach: the federated client; an example stands for it.",
    ),
    PriorAdversary(
        paper="Andrew et al.",
        year=2023,
        label="Algorithm 3",
        hidden_state=False,
        tight=False,
        canary="gradient",
        adversary="one-shot-iterates",
        note="Out of reach: the federated client; an example stands for it.",
    ),
    PriorAdversary(
        paper="Steinke et al.",
        year=2023,
        label="audit-type=whitebox",
        hidden_state=False,
        tight=False,
        canary="sample or gradient",
        adversary="one-run-white-box",
        note="With gradients. At k = 1 its sum telescopes and needs no iterate.",
    ),
    PriorAdversary(
        paper="Steinke et al.",
        year=2023,
        label="audit-type=blackbox",
        hidden_state=True,
        tight=False,
        canary="sample",
        adversary="one-run-black-box",
    ),
)
