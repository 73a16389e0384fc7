"""Audit federated averaging written in numpy; the unit of privacy is a client.

python examples/federated_clients.py

``examples/flower_clients.py`` is the same audit with Flower.
"""

import functools

import numpy as np

import dpaudit

CLIENTS, ROUNDS, PARAMETERS, CLIP, NOISE = 4, 6, 10, 1.0, 2.0


def client_update(client, weights):
    """One step towards the mean of the client's own data."""
    target = np.random.default_rng(client).normal(size=PARAMETERS)
    return 0.1 * (target - weights)


def clipped(update):
    return update * min(1.0, CLIP / max(np.linalg.norm(update), 1e-12))


def train(canary, inserted, seed, noise_multiplier=NOISE):
    """The last client is the canary; without it that client sends no change."""
    random, weights = np.random.default_rng(seed), np.zeros(PARAMETERS)
    for _ in range(ROUNDS):
        updates = [client_update(client, weights) for client in range(1, CLIENTS)]
        updates.append(-canary.gradient if inserted else np.zeros(PARAMETERS))
        total = sum(clipped(update) for update in updates)
        noise = random.normal(0, noise_multiplier * CLIP, PARAMETERS)
        weights = weights + (total + noise) / CLIENTS
    return weights


def audit(runs: int = 200, true_share: float = 1.0, seed: int = 1) -> dpaudit.AuditResult:
    return dpaudit.audit(
        functools.partial(train, noise_multiplier=true_share * NOISE),
        canary=dpaudit.GradientCanary.draw(PARAMETERS, clip_norm=CLIP, unit="client"),
        claim=dpaudit.Claim.from_dpsgd(noise_multiplier=NOISE, steps=ROUNDS).per("client"),
        runs=runs,
        seed=seed,
    )


def main(runs: int = 200) -> None:
    print(audit(runs).summary())


if __name__ == "__main__":
    main()
