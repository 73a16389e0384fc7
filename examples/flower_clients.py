"""Audit federated averaging with Flower; the unit of privacy is a client.

python examples/flower_clients.py

The server, the clipping and the noise are those of Flower. The clients run in this process instead
of Flower's simulation engine, which would start other processes for every training. The canary is a
client that sends a crafted update in every round.

Flower weights the clipped updates by the number of examples of each client, and its noise is that
of equal weights. With equal numbers the claim is kept; a client with seven times the data of the
others contributes 2.8 times as much as is claimed.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.task_identity import TaskIdentity

import dpaudit

CLIENTS, ROUNDS, PARAMETERS, CLIP, NOISE = 4, 6, 10, 1.0, 2.0
EQUAL, UNEQUAL = (1, 1, 1, 1), (1, 1, 1, 7)
"""Numbers of examples of the clients; the last one is the canary."""

INITIAL = np.zeros(PARAMETERS)


# --- The user's own clients. ---------------------------------------------------------------------


def client_update(client: int, weights: np.ndarray) -> np.ndarray:
    """One step towards the mean of the client's own data."""
    target = np.random.default_rng(client).normal(size=PARAMETERS)
    return 0.1 * (target - weights)


class ClientsInThisProcess(Grid):
    """Delivers messages of the server to functions, one for each client."""

    def __init__(self, update, examples):
        self.update, self.examples = update, examples
        # Flower's own engine sets these three for the process of a server.
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1

    @property
    def run(self):
        raise NotImplementedError

    def set_run(self, run) -> None:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(range(1, CLIENTS + 1))

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None) -> Message:
        return Message(content, dst_node_id, message_type, group_id=group_id)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout=None) -> Iterable[Message]:
        replies = []
        for message in messages:
            client = message.metadata.dst_node_id
            (weights,) = message.content["arrays"].to_numpy_ndarrays()
            content = {
                "arrays": ArrayRecord([weights + self.update(client, weights)]),
                "metrics": MetricRecord({"num-examples": self.examples[client - 1]}),
            }
            replies.append(Message(RecordDict(content), reply_to=message))
        return replies


def federate(
    update, *, seed, noise_multiplier=NOISE, examples=EQUAL, sampled=CLIENTS
) -> np.ndarray:
    """Some rounds, in each of which as many clients are ``sampled``."""
    np.random.seed(seed)  # noqa: NPY002  # Flower draws its noise from there
    strategy = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(
            fraction_evaluate=0.0,
            fraction_train=sampled / CLIENTS,
            min_available_nodes=CLIENTS,
        ),
        noise_multiplier=noise_multiplier,
        clipping_norm=CLIP,
        num_sampled_clients=sampled,
    )
    result = strategy.start(
        grid=ClientsInThisProcess(update, examples),
        initial_arrays=ArrayRecord([INITIAL.copy()]),
        num_rounds=ROUNDS,
    )
    (weights,) = result.arrays.to_numpy_ndarrays()
    return weights


# --- The audit. ----------------------------------------------------------------------------------


def train(canary, inserted, seed, **settings):
    """The last client is the canary; without it that client sends hardly any change.

    Flower divides by the norm of an update, so that an update of exactly zero fails.
    """

    def update(client, weights):
        if client < CLIENTS:
            return client_update(client, weights)
        return -canary.gradient if inserted else np.full(PARAMETERS, 1e-9)

    return federate(update, seed=seed, **settings)


def audit(runs: int = 100, **settings) -> dpaudit.AuditResult:
    return dpaudit.audit(
        functools.partial(train, **settings),
        canary=dpaudit.GradientCanary.draw(PARAMETERS, clip_norm=CLIP, unit="client"),
        claim=dpaudit.Claim.from_dpsgd(noise_multiplier=NOISE, steps=ROUNDS).per("client"),
        initial=INITIAL,
        runs=runs,
    )


def main(runs: int = 100) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    for examples in (EQUAL, UNEQUAL):
        print(f"Numbers of examples: {examples}\n{audit(runs, examples=examples).summary()}\n")


if __name__ == "__main__":
    main()
