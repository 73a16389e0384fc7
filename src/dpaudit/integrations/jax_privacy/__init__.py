"""Audit a training with jax-privacy 2.

`insert_canary` makes a ``clipped_grad`` that takes canaries, `select_batches` lets a batch
selection strategy choose their steps, and `claim_of` reads the claim from a configuration.
"""

from dpaudit.integrations.jax_privacy.batches import select_batches
from dpaudit.integrations.jax_privacy.claims import claim_of
from dpaudit.integrations.jax_privacy.inserting import insert_canary
from dpaudit.integrations.trees import canary_for, record_gradient

__all__ = ["canary_for", "claim_of", "insert_canary", "record_gradient", "select_batches"]
