"""Check strategies of Flower: client updates in, the server's update out.

python examples/flower_strategies.py

Any federated library is checked in this way: a function makes a new strategy, gives it the updates
and the weights of the clients, round by round, and returns what the server makes of each round.
"""

from __future__ import annotations

import logging

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
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


def check(make, *, rounds: int = 3, weights=(1.0,) * CLIENTS, **options) -> CheckResult:
    """Check the strategies that ``make`` returns, over some rounds with a state."""

    def private_step(batches, seed, weights):
        strategy, released = make(), []
        for updates in batches:
            strategy.current_arrays = ArrayRecord([INITIAL])
            arrays, _ = strategy.aggregate_train(1, replies(updates, weights))
            released.append(arrays.to_numpy_ndarrays()[0])
        return released

    settings = {"clip_norm": CLIP, "noise_multiplier": NOISE, "unit": "client"}
    settings |= {"parameters": PARAMETERS, "batch_size": CLIENTS, "fixed_batch_size": True}
    return check_step(private_step, weights=weights, rounds=rounds, **(settings | options))


def replies(updates, weights):
    """What the clients send: their parameters after local training, and their examples."""
    # Flower's own engine sets these three for the process of a server.
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    sent = []
    for client, (update, weight) in enumerate(zip(updates, weights, strict=True), start=1):
        asked = Message(RecordDict(), dst_node_id=client, message_type="train")
        # Flower divides by the norm of an update, so that one of exactly zero fails.
        update = update if np.any(update) else np.full(PARAMETERS, 1e-9)
        content = {
            "arrays": ArrayRecord([INITIAL + update]),
            "metrics": MetricRecord({"num-examples": float(weight)}),
        }
        sent.append(Message(RecordDict(content), reply_to=asked))
    return sent


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print("Fixed clip norm:", check(fixed).summary)
    print("One client with seven times the data:", check(fixed, weights=[1.0] * 7 + [7.0]).summary)
    print("Adaptive clip norm:", check(adaptive).summary)


if __name__ == "__main__":
    main()
