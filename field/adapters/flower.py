"""Flower: the private strategies of its server, and the local modifier of its clients."""

import logging
import math

import numpy as np
from field.kit import case
from field.parts import CLIP, PARAMETERS, SIGMA, check_step, seed_everything
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp.mod.localdp_mod import LocalDpMod
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from flwr.supercore.task_identity import TaskIdentity

import dpaudit
from dpaudit.curves import gaussian_epsilon
from dpaudit.scores import Scores

logging.getLogger("flwr").setLevel(logging.ERROR)
# Flower's own engine sets these three for the process of a server.
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1

CLIENTS = 16
ZERO = np.zeros(PARAMETERS)


def replies(updates, weights):
    """What the clients send: their weights after local training, and their number of examples."""
    for number, (update, weight) in enumerate(zip(updates, weights, strict=True), start=1):
        asked = Message(
            RecordDict({"arrays": ArrayRecord([ZERO])}), dst_node_id=number, message_type="train"
        )
        # Flower divides by the norm of an update, so that one of exactly zero would raise.
        sent = np.where(np.any(update), update, 1e-9)
        content = {
            "arrays": ArrayRecord([ZERO + sent]),
            "metrics": MetricRecord({"num-examples": float(weight)}),
        }
        yield Message(RecordDict(content), reply_to=asked)


def one_round(strategy, updates, weights):
    strategy.current_arrays = ArrayRecord([ZERO])
    arrays, _ = strategy.aggregate_train(1, list(replies(updates, weights)))
    (released,) = arrays.to_numpy_ndarrays()
    return released


def fixed(updates, seed, last=1.0):
    """One round with fixed clipping on the server; ``last`` is the weight of the last client."""
    seed_everything(seed)
    strategy = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(min_available_nodes=1),
        noise_multiplier=SIGMA,
        clipping_norm=CLIP,
        num_sampled_clients=len(updates),
    )
    return one_round(strategy, updates, [1.0] * (len(updates) - 1) + [last])


@case("fixed clipping on the server, equal clients", claims="noise multiplier 1, clip norm 1")
def fixed_equal():
    return check_step(fixed, batch_size=CLIENTS, fixed_batch_size=True)


@case(
    "fixed clipping on the server, one client with seven times the data",
    claims="noise multiplier 1, clip norm 1",
    expected="broken",
    cause="serverapp/strategy/dp_fixed_clipping.py: FedAvg weights the clipped updates by "
    "`num-examples`, the noise (`compute_stdv`) is that of equal weights. Unequal weights are "
    "refused only where an accountant is passed.",
    class_of_bug="a federated library: clients are weighted by their data, the noise is for equal "
    "weights",
)
def fixed_unequal():
    """Client level: the heavy client takes part with its clipped update, or with none."""
    rng = np.random.default_rng(0)
    others = rng.normal(size=(CLIENTS - 1, PARAMETERS))
    heavy = np.zeros(PARAMETERS)
    heavy[0] = 100.0  # is clipped to norm 1

    def released(inserted, seed):
        updates = np.vstack([others, heavy if inserted else np.zeros(PARAMETERS)])
        return fixed(updates, seed, last=7.0)[0]

    with_it = [released(True, seed) for seed in range(200)]
    without = [released(False, 1000 + seed) for seed in range(200)]
    return dpaudit.test_claim(
        Scores.from_samples(with_it, without),
        dpaudit.Claim.from_dpsgd(noise_multiplier=SIGMA, steps=1),
    )


def adaptive_settings(clients):
    """The claimed multiplier is that of both releases together (Andrew et al. 2021)."""
    return {
        "noise_multiplier": SIGMA,
        "num_sampled_clients": clients,
        "initial_clipping_norm": CLIP,
        "clipped_count_stddev": clients / 20,
    }


@case(
    "adaptive clipping on the server, one round in which all are clipped",
    claims="noise multiplier 1 for update and count together",
    expected="broken",
    cause="serverapp/strategy/dp_adaptive_clipping.py: `_geometric_update` changes the clip norm "
    "after the updates were clipped with the old one and before `_add_noise_to_aggregated_arrays` "
    "scales the noise with the new one. If all are clipped, the factor is exp(-0.2 (1 - 0.5)) = "
    "0.905. The indicator counts clipped updates, where the rule of Andrew et al. counts those "
    "that are not: with `clipped - target` the clip norm shrinks when too many are clipped.",
    class_of_bug="a federated library: the clip norm is updated between clipping and noise",
)
def adaptive():
    """The noise of the update alone, against the multiplier that its own formula asks for."""
    clients = 64

    def step(updates, seed):
        seed_everything(seed)
        strategy = DifferentialPrivacyServerSideAdaptiveClipping(
            FedAvg(min_available_nodes=1), **adaptive_settings(len(updates))
        )
        strategy.clipped_count_stddev = 1e-9  # a known count, so that only its effect is measured
        return one_round(strategy, updates, [1.0] * len(updates))

    count_deviation = clients / 20
    update_multiplier = (SIGMA**-2 - (2 * count_deviation) ** -2) ** -0.5
    long = np.random.default_rng(1).normal(size=(clients, PARAMETERS))
    noise = np.std([step(long, seed) - step(long, 0) for seed in range(1, 31)], ddof=1) / math.sqrt(
        2
    )
    claimed = update_multiplier * CLIP / clients
    ratio = float(noise / claimed)
    # 30 x 620 values: the ratio is known to about one percent.
    return {
        "status": "broken" if ratio < 0.97 else "kept",
        "verdict": "noise measured",
        "by": "deviation of 30 x 620 noisy coordinates",
        "broken": [
            {"rule": "noise size", "explanation": f"Noise is {ratio:.3f} of what is claimed."}
        ],
    }


def local_dp(epsilon, delta, clip, sensitivity):
    """One client's message with its update along the first axis, or against it."""

    def sent(direction, seed):
        np.random.seed(seed)
        asked = Message(
            RecordDict({"arrays": ArrayRecord([ZERO[:2]])}), dst_node_id=1, message_type="train"
        )

        def train(message, context):
            update = np.array([direction * 100.0 * clip, 0.0])
            return Message(RecordDict({"arrays": ArrayRecord([update])}), reply_to=message)

        reply = LocalDpMod(clip, sensitivity, epsilon, delta)(asked, None, train)
        (arrays,) = reply.content.array_records.values()
        return arrays.to_numpy_ndarrays()[0][0]

    runs = 4000
    with_it = [sent(+1, seed) for seed in range(runs)]
    without = [sent(-1, runs + seed) for seed in range(runs)]
    return dpaudit.test_claim(
        Scores.from_samples(with_it, without), dpaudit.Claim.from_epsilon(epsilon, delta)
    )


@case(
    "LocalDpMod, clipping and noise of one update",
    claims="the noise of its formula, sqrt(2 ln(1.25 / delta)) / epsilon times the sensitivity",
)
def local_step():
    epsilon, delta = 1.0, 1e-5

    def step(updates, seed):
        np.random.seed(seed % 2**32)
        (update,) = updates
        asked = Message(
            RecordDict({"arrays": ArrayRecord([ZERO])}), dst_node_id=1, message_type="train"
        )

        def train(message, context):
            sent = np.where(np.any(update), update, 1e-9)
            return Message(RecordDict({"arrays": ArrayRecord([sent])}), reply_to=message)

        reply = LocalDpMod(CLIP, CLIP, epsilon, delta)(asked, None, train)
        (arrays,) = reply.content.array_records.values()
        return arrays.to_numpy_ndarrays()[0]

    multiplier = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    return check_step(step, batch_size=1, noise_multiplier=multiplier, fixed_batch_size=True)


@case(
    "LocalDpMod at epsilon 10",
    claims="epsilon 10, delta 1e-5",
    expected="broken",
    cause="clientapp/mod/localdp_mod.py: the classical formula for the deviation is proven for "
    "epsilon up to 1; at 10 its noise gives 10.39 exactly, at 20 it gives 25.4.",
    class_of_bug="a federated library: the classical formula of the Gaussian mechanism above "
    "epsilon 1",
)
def local_large_epsilon():
    epsilon, delta = 10.0, 1e-5
    deviation = math.sqrt(2 * math.log(1.25 / delta)) / epsilon  # as in the library's code
    exact = gaussian_epsilon(delta, 1 / deviation)
    return {
        "status": "broken" if exact > epsilon else "kept",
        "verdict": "exact epsilon of its noise",
        "by": "closed form",
        "claimed_epsilon": epsilon,
        "shown_epsilon": round(exact, 4),
    }


@case(
    "LocalDpMod at epsilon 1, sensitivity equal to the clip norm",
    claims="epsilon 1, delta 1e-5 for any two updates of a client",
    expected="broken",
    cause="clientapp/mod/localdp_mod.py: `sensitivity` is free of `clipping_norm`; two clipped "
    "updates can be 2 * clipping_norm apart, and nothing says so.",
    class_of_bug="a federated library: the sensitivity is a free setting and not tied to the clip "
    "norm",
)
def local_half_sensitivity():
    return local_dp(1.0, 1e-5, clip=1.0, sensitivity=1.0)
