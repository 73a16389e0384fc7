r"""When a small p-value is a violation, and when it only raises a suspicion.

A violation ends builds, so that a correct training may get one with probability at most 0.1 %.

- **Confirmed** (`CONFIRMED`), where runs can be repeated: a test of n runs at 5 % only suspects.
  Then exactly 2n fresh runs, with seeds of their own, are tested once, at 2 %. The runs are
  independent, so a true claim is refuted with probability at most :math:`0.05 \cdot 0.02 = 0.001`.
- **Strict** (`STRICT`), where they cannot: a p-value of 0.001 or less is a violation, one up to
  0.05 a suspicion. For an anytime-valid test the same levels mean a wealth of 1,000 and of 20.
- **Unconfirmed** (`unconfirmed`): one test at 5 %, for those who ask for it.

- **Live** (`LIVE`), inside one production run: the test of all steps and an e-process along the
  way share the level. Each proves a violation at 0.0005, or an e-value of 2,000, and suspects one
  at 0.05, or an e-value of 20.

Of K named tensors, the first stage tests each at 1/K of its level, and the second only the
suspected ones, each at its level divided by their number. *Proof that this is at most 0.1 %:* given
the first runs, the number s of suspected tensors is fixed, and the fresh runs refute one of the s
true claims with probability at most :math:`s \cdot 0.02 / s`. That s is above 0 has probability at
most :math:`K \cdot 0.05 / K`. ∎
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from dpaudit import _validate

Verdict = Literal["violation", "consistent", "inconclusive"]
"""``violation``: the claim is refuted. ``consistent``: it is not, and the audit had the power to
refute a wrong one. ``inconclusive``: anything else, a suspicion that is not confirmed included."""


@final
@dataclass(frozen=True, kw_only=True)
class Policy:
    """The levels of the tests that lead to a violation.

    Arguments:
        suspect: The first test suspects a violation at this p-value or below.
        prove: The first test proves a violation at this p-value or below; 0 if only fresh runs can.
        confirm: Level of the test of fresh runs; `None` if there are none.
        fresh: Number of fresh runs, as a multiple of the first ones.
    """

    suspect: float
    prove: float
    confirm: float | None = None
    fresh: int = 0

    @property
    def false_alarms(self) -> float:
        """Largest probability of a violation if the claim is true."""
        return self.prove if self.confirm is None else self.suspect * self.confirm

    def stages(self, tests: int = 1) -> tuple[tuple[int, float], ...]:
        """What a violation must pass: sample sizes as multiples of the first, and their levels.

        Arguments:
            tests: Number of tensors that are tested one by one.
        """
        if self.confirm is None:
            return ((1, self.prove / tests),)
        return ((1, self.suspect / tests), (self.fresh, self.confirm / tests))


CONFIRMED = Policy(suspect=0.05, prove=0.0, confirm=0.02, fresh=2)
STRICT = Policy(suspect=0.05, prove=0.001)
LIVE = Policy(suspect=0.1, prove=0.001)


def unconfirmed(level: float = 0.05) -> Policy:
    """One test at this level, without confirmation."""
    level = _validate.between("level", level, 0, 1, remedy="0.05 is usual")
    return Policy(suspect=level, prove=level)
