"""Audit and check a training with Opacus, without changing it.

`canary_for` draws crafted gradients that fit an optimizer, `insert_canary` inserts them into the
user's own loop, `claim_of` reads the accountant's claim, `check_optimizer` checks the private step.
"""

from dpaudit.integrations.opacus.canaries import canary_for
from dpaudit.integrations.opacus.claims import claim_of
from dpaudit.integrations.opacus.inserting import insert_canary
from dpaudit.integrations.opacus.step import OpacusStep, check_optimizer

__all__ = ["OpacusStep", "canary_for", "check_optimizer", "claim_of", "insert_canary"]
