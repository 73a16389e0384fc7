"""Check strategies of Flower: client updates in, the server's update out.

python examples/flower_strategies.py

Any federated library is checked in this way: a function makes a new strategy, gives it the updates
and the weights of the clients, round by round, and returns what the server makes of each round.
"""

from __future__ import annotations

import logging

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.common.secure_aggregation.quantization import quantize
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from flwr.supercore.task_identity import TaskIdentity

from dpaudit.checks import CheckResult, check_step

CLIENTS, PARAMETERS, CLIP, NOISE = 8, 300, 1.0, 1.0
COUNT_DEVIATION = CLIENTS  # so large that the count hardly costs privacy
INITIAL = np.zeros(PARAMETERS)


def fixed():
    return DifferentialPrivacyServerSideFixedClipping(
        FedAvg(min_available_nodes=1),
        noise_multiplier=NOISE,
        clipping_norm=CLIP,
        num_sampled_clients=CLIENTS,
    )


def adaptive():
    return DifferentialPrivacyServerSideAdaptiveClipping(
        FedAvg(min_available_nodes=1),
        noise_multiplier=NOISE,
        num_sampled_clients=CLIENTS,
        initial_clipping_norm=CLIP,
        clipped_count_stddev=COUNT_DEVIATION,
    )


def fixed_at_clients():
    return DifferentialPrivacyClientSideFixedClipping(
        FedAvg(min_available_nodes=1),
        noise_multiplier=NOISE,
        clipping_norm=CLIP,
        num_sampled_clients=CLIENTS,
    )


def adaptive_at_clients():
    return DifferentialPrivacyClientSideAdaptiveClipping(
        FedAvg(min_available_nodes=1),
        noise_multiplier=NOISE,
        num_sampled_clients=CLIENTS,
        initial_clipping_norm=CLIP,
        clipped_count_stddev=COUNT_DEVIATION,
    )


def check(make, *, mod=None, rounds: int = 3, weights=(1.0,) * CLIENTS, **options) -> CheckResult:
    """Check the strategies that ``make`` returns, over some rounds with a state.

    A ``mod`` clips at the clients. Fewer ``weights`` than clients are dropouts.
    """

    def private_step(batches, seed, weights):
        strategy, released = make(), []
        for updates in batches:
            strategy.current_arrays = ArrayRecord([INITIAL])
            norm = strategy.clipping_norm
            arrays, _ = strategy.aggregate_train(1, replies(updates, weights, mod, norm))
            released.append(arrays.to_numpy_ndarrays()[0])
        return released

    settings = {"clip_norm": CLIP, "noise_multiplier": NOISE, "unit": "client"}
    settings |= {"parameters": PARAMETERS, "batch_size": len(weights), "fixed_batch_size": True}
    return check_step(private_step, weights=weights, rounds=rounds, **(settings | options))


def replies(updates, weights, mod=None, norm=CLIP):
    """What the clients send: their parameters after local training, and their examples."""
    # Flower's own engine sets these three for the process of a server.
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    mod, sent = mod or (lambda asked, context, train: train(asked, context)), []
    for client, (update, weight) in enumerate(zip(updates, weights, strict=True), start=1):
        told = {"arrays": ArrayRecord([INITIAL]), "config": ConfigRecord({"clipping_norm": norm})}
        asked = Message(RecordDict(told), dst_node_id=client, message_type="train")
        # Flower divides by the norm of an update, so that one of exactly zero fails.
        update = update if np.any(update) else np.full(PARAMETERS, 1e-9)
        content = {
            "arrays": ArrayRecord([INITIAL + update]),
            "metrics": MetricRecord({"num-examples": float(weight)}),
        }
        reply = Message(RecordDict(content), reply_to=asked)
        sent.append(mod(asked, None, lambda asked, context, reply=reply: reply))
    return sent


# --- Local privacy: one row is a batch. Secure aggregation: the sum is seen from outside. --------


def check_local(epsilon: float = 1.0, delta: float = 1e-5) -> CheckResult:
    """Check the noise that every client adds, and the clipping before it."""
    mod = LocalDpMod(clipping_norm=CLIP, sensitivity=CLIP, epsilon=epsilon, delta=delta)

    def private_step(gradients, seed):
        (reply,) = replies(gradients, [1.0], mod)
        return reply.content["arrays"].to_numpy_ndarrays()[0]

    noise_multiplier = np.sqrt(2 * np.log(1.25 / delta)) / epsilon
    return check_step(
        private_step,
        clip_norm=CLIP,
        noise_multiplier=noise_multiplier,
        parameters=PARAMETERS,
        batch_size=1,
        unit="client",
    )


def check_secure_sum(*, share: float = 1.0, levels: int = 1 << 22, largest: float = 20.0):
    """Check the sum that secure aggregation shows, of updates with a share of the noise each."""

    def private_step(updates, seed):
        drawn, total = np.random.default_rng(seed), 0
        for reply in replies(updates, [1.0] * len(updates), fixedclipping_mod):
            update = reply.content["arrays"].to_numpy_ndarrays()[0] - INITIAL
            noise = share * NOISE * CLIP / np.sqrt(CLIENTS)
            noisy = update + drawn.normal(0, noise, PARAMETERS)
            total = total + quantize([noisy], largest, levels)[0]
        step = 2 * largest / levels
        return total * step - len(updates) * largest

    return check_step(
        private_step,
        clip_norm=CLIP,
        noise_multiplier=NOISE,
        parameters=PARAMETERS,
        batch_size=CLIENTS,
        fixed_batch_size=True,
        unit="client",
    )


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print("Fixed clip norm:", check(fixed).summary)
    print("One client with seven times the data:", check(fixed, weights=[1.0] * 7 + [7.0]).summary)
    print("Two of eight clients drop out:", check(fixed, weights=[1.0] * 6).summary)
    print("Adaptive clip norm:", check(adaptive).summary)
    print("Clipping at the clients:", check(fixed_at_clients, mod=fixedclipping_mod).summary)
    print("The same, adaptive:", check(adaptive_at_clients, mod=adaptiveclipping_mod).summary)
    print("Local privacy:", check_local().summary)
    print("Secure aggregation:", check_secure_sum().summary)


if __name__ == "__main__":
    main()
