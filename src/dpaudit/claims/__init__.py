"""Claims about a training's privacy, and tests of them."""

from dpaudit.claims.claim import Claim
from dpaudit.claims.fixed_sample import ClaimTest, test_claim
from dpaudit.claims.verdict import Verdict

__all__ = ["Claim", "ClaimTest", "Verdict", "test_claim"]
