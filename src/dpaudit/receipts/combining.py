r"""Evidence of several auditors against the same claim.

**E-values.** An e-value is a number that is at least 0 and whose expectation is at most 1 if the
claim is true. By Markov's inequality it reaches :math:`1/\alpha` with probability at most
:math:`\alpha`. The product of e-values of independent audits is an e-value, since expectations of
independent numbers multiply. So audits combine without a plan for how many there will be.

**An audit that stopped by itself** (``--until-violation``) has its wealth at the end as e-value.

**An audit with a fixed number of runs**, or a live one, has a p-value :math:`p`. The calibrator,
the same for every audit and fixed here, is

.. math:: e(p) = \frac{1}{2\sqrt{p}}.

*Theorem.* If the claim is true, :math:`E[e(p)] \le 1`. *Proof.* A p-value satisfies
:math:`P(p \le t) \le t`, so it is stochastically at least a uniform :math:`U` on (0, 1). Since
:math:`e` falls, :math:`E[e(p)] \le E[e(U)] = \int_0^1 \tfrac12 u^{-1/2} du = 1`. ∎
(Vovk and Wang, *E-values: calibration, combination and applications*, Annals of Statistics 2021, of
the family :math:`\kappa p^{\kappa-1}` with :math:`\kappa = 1/2`.)

**An audit with fresh runs** has two e-values: that of the first runs, and that of the fresh ones
given the first. Given the first runs, the suspected canaries are fixed, and the fresh p-value,
corrected for their number, is a p-value. So
:math:`E[e_1 e_2] = E[e_1 E[e_2 | \text{first}]] \le 1`, where :math:`e_2 = 1` if no fresh runs
were tested.

Which audits are combined must not depend on their results: leaving out those that found nothing
makes the product worthless, and no receipt can show that it was not done.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

from dpaudit import _validate
from dpaudit.claims import Claim
from dpaudit.claims.policy import STRICT
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds.diagnostics import INDEPENDENT_CANARIES
from dpaudit.receipts.form import Receipt, scores_in
from dpaudit.receipts.making import description_of
from dpaudit.receipts.verifying import verify

SHARED = 0.1
"""Audits that have more than this share of their different scores in common are not independent."""

FEW_VALUES = 100
"""Scores with fewer different values agree by chance: they are not compared."""


@final
@dataclass(frozen=True, kw_only=True)
class Combined:
    """What several audits of one claim show together.

    Arguments:
        claim: The claim.
        e_values: The e-value of each receipt.
        assumptions: What must be true for the product to be an e-value.
        notes: What could not be checked.
    """

    claim: str
    e_values: tuple[float, ...]
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def e_value(self) -> float:
        """The product."""
        return math.prod(self.e_values)

    @property
    def p_value(self) -> float:
        """One over the product, at most 1."""
        return min(1.0, 1 / self.e_value) if self.e_value > 0 else 1.0

    @property
    def verdict(self) -> Literal["violation", "inconclusive"]:
        """``violation`` from 1,000 on, unless it takes canaries of a run to be independent.

        A small product does not show that the claim is true.
        """
        proven = self.e_value >= 1 / STRICT.prove
        free = INDEPENDENT_CANARIES not in self.assumptions
        return "violation" if proven and free else "inconclusive"

    @property
    def suspected(self) -> bool:
        """Whether the product speaks against the claim (20 or more) without proving a violation."""
        return self.verdict != "violation" and self.e_value >= 1 / STRICT.suspect

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "claim": self.claim,
            "verdict": self.verdict,
            "suspected": self.suspected,
            "e_value": self.e_value,
            "e_values": list(self.e_values),
            "p_value": self.p_value,
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
        }


def calibrated(p_value: float) -> float:
    """The e-value of a p-value.

    Example:
        >>> calibrated(0.0001), calibrated(1.0)
        (50.0, 0.5)
    """
    return 1 / (2 * math.sqrt(max(p_value, 1e-300)))


def combine(paths: Sequence[str | Path]) -> Combined:
    """Multiply the e-values of receipts about the same claim.

    Every receipt is checked first; see `verify`. Receipts that share runs, seeds or scores are
    refused.

    Arguments:
        paths: The receipts, each with its scores and, if it is signed, its ``.sig`` beside it.
    """
    if not isinstance(paths, list | tuple) or len(paths) < 2:
        raise InvalidInput(
            f"paths must be a list of at least two receipts, got {_validate.shown(paths)}"
        )
    receipts, signed = [], []
    for path in paths:
        result = verify(path)
        if result.outcome != "consistent":
            raise InvalidInput(
                f"every receipt must be consistent to be combined, and {path} is {result.sentence}"
            )
        if result.receipt.given.asked_afterwards:
            raise InvalidInput(
                f"every claim must be chosen before its audit to be combined, and that of {path} "
                "was chosen afterwards"
            )
        receipts.append(result.receipt)
        signed.append(result.signature)
    claims = [_claim(receipt, path) for receipt, path in zip(receipts, paths, strict=True)]
    for claim, path in zip(claims[1:], paths[1:], strict=True):
        if claim != claims[0]:
            raise InvalidInput(
                f"receipts must be about the same claim, got {claims[0].description} in {paths[0]} "
                f"and {claim.description} in {path}"
            )
    for first, second in itertools.combinations(range(len(paths)), 2):
        shared = shared_evidence(receipts[first], receipts[second])
        if shared:
            raise InvalidInput(
                f"receipts must be of independent audits, but {paths[first]} and {paths[second]} "
                f"have {shared}; use another --seed for each audit"
            )
    notes = ["whether audits that found less were left out cannot be seen"]
    if not all(signed):
        unsigned = sum(signature is None for signature in signed)
        notes.append(f"{unsigned} of {len(paths)} receipts have no signature")
    assumed = [text for receipt in receipts for text in _assumptions(receipt)]
    return Combined(
        claim=claims[0].description,
        e_values=tuple(e_value_of(receipt) for receipt in receipts),
        assumptions=("the audits are independent", *dict.fromkeys(assumed)),
        notes=tuple(notes),
    )


def e_value_of(receipt: Receipt) -> float:
    """The e-value of a receipt whose numbers were checked; see the theorem above."""
    stated = receipt.computed
    test, tensors = stated.test or {}, list(stated.tensors.values())
    if description_of(receipt.given).until_violation:
        return float(test["e_value"])
    # The e-value of a live audit is the largest along the way, which only its p-value corrects.
    last = calibrated(float(test["p_value"]))
    if test["stage"] == 1:
        return last
    first = len(tensors) * min(float(tensor["p_value"]) for tensor in tensors)
    return calibrated(min(1.0, first)) * last


def shared_evidence(one: Receipt, other: Receipt) -> str:
    """What two receipts have in common, in words; empty if nothing was found."""
    if one.given.audit == other.given.audit:
        return "the same audit"
    seeds = [_seeds(each) for each in (one, other)]
    if seeds[0] & seeds[1]:
        return "the same seed"
    for here, there in itertools.product(one.given.phases, other.given.phases):
        if here.digest == there.digest:
            return "the same scores"
        if here.table is None or there.table is None:
            continue
        values = [set(scores_in(each).score.tolist()) for each in (here.table, there.table)]
        fewest, common = min(map(len, values)), len(values[0] & values[1])
        if fewest >= FEW_VALUES and common > SHARED * fewest:
            return f"{common:,} scores in common"
    return ""


def _seeds(receipt: Receipt) -> set[int]:
    """The seeds of all runs; none of a live audit, whose seed is drawn and secret."""
    description = description_of(receipt.given)
    if description.live:
        return set()
    return {description.sample(phase.phase).seed for phase in receipt.given.phases}


def _claim(receipt: Receipt, path: str | Path) -> Claim:
    if receipt.computed.claim is None:
        raise InvalidInput(f"every receipt must test a claim to be combined, and {path} has none")
    return Claim.from_dict(receipt.computed.claim)


def _assumptions(receipt: Receipt) -> tuple[str, ...]:
    """What the test of a receipt assumes; independence only where the test relied on it."""
    test = receipt.computed.test or {}
    claim = receipt.computed.claim or {}
    exempt = claim.get("mechanism") and receipt.computed.threat_model in (
        "standard",
        "hidden state",
    )
    return tuple(
        text
        for text in test.get("assumptions", ())
        if not (exempt and text == INDEPENDENT_CANARIES)
    )
