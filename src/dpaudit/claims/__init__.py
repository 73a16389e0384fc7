"""Claims about a training's privacy, and the verdict on them."""

from dpaudit.claims.claim import Claim
from dpaudit.claims.policy import CONFIRMED, LIVE, STRICT, Policy, Verdict, unconfirmed
from dpaudit.claims.verdict import UNNAMED, ClaimTest, TensorTest, judge, test_claim

__all__ = [
    "CONFIRMED",
    "LIVE",
    "STRICT",
    "UNNAMED",
    "Claim",
    "ClaimTest",
    "Policy",
    "TensorTest",
    "Verdict",
    "judge",
    "test_claim",
    "unconfirmed",
]
