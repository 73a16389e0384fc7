"""Claims about a training's privacy, and tests of them."""

from dpaudit.claims.claim import Claim, Verdict
from dpaudit.claims.fixed_sample import ClaimTest, test_claim

__all__ = ["Claim", "ClaimTest", "Verdict", "test_claim"]
