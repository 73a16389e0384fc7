"""Audit a training of Opacus as it is: canaries in, the claim out.

`canary_for` draws crafted gradients that fit the optimizer, `insert_canary` puts them into the
user's own loop, `claim_of` reads what the accountant promises.
"""

from dpaudit.integrations.opacus.canaries import canary_for
from dpaudit.integrations.opacus.claims import claim_of
from dpaudit.integrations.opacus.inserting import insert_canary

__all__ = ["canary_for", "claim_of", "insert_canary"]
