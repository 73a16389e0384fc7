"""Power and false alarms of audits and checks of users, clients and shuffled epochs.

python benchmarks/units.py [--audits 400] [--only TEXT] [--save]

Every path is played with a claim that is true, and met exactly, and with one that is wrong. `found`
are violations (of a check: broken rules) under the wrong claim, `alarms` those under the true one;
`suspected` are true claims that the first runs suspected, at a level of 5 %.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from tables import put_table

import dpaudit
from dpaudit.checks import check_step
from dpaudit.curves import gaussian_mu
from dpaudit.pipelines import neighbours_of

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "examples"))
STEPS, PARAMETERS, RECORDS, DELTA = 4, 100, 4, 1e-5


def clipped(rows):
    return rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))


# --- Users: every record is clipped by itself, or all records of a user together. -----------------


def claim_of(epsilon: float):
    """What an accountant of records says, as a claim for users, and its noise."""
    noise = math.sqrt(STEPS) / gaussian_mu(epsilon, DELTA)
    return dpaudit.Claim.from_dpsgd(noise_multiplier=noise, steps=STEPS).per("user"), noise


def train(rows, seed, noise, together: bool):
    """The sum of the noisy gradients of all steps; no other record has a gradient."""
    if together:
        rows = rows.reshape(-1, RECORDS, PARAMETERS).sum(axis=1)
    total = STEPS * clipped(rows).sum(axis=0)
    return -total - np.random.default_rng(seed).normal(0, noise * math.sqrt(STEPS), PARAMETERS)


def many_users(seed: int, right: bool, epsilon: float):
    """Fifty users are canaries of every training."""
    claim, noise = claim_of(epsilon)
    drawn = dpaudit.GradientCanary.draw(
        PARAMETERS, clip_norm=1.0, count=50, records=RECORDS, unit="user", seed=seed
    )

    def training(canary, inserted, seed):
        return train(canary.rows(inserted), seed, noise, right)

    return dpaudit.audit(training, canary=drawn, claim=claim, runs=8, seed=seed, workers=1)


def one_user(seed: int, right: bool, epsilon: float):
    """One user, who is added to the data set for real."""
    claim, noise = claim_of(epsilon)
    user = np.tile(10 * np.eye(PARAMETERS)[0], (RECORDS, 1))
    other = np.zeros((RECORDS, PARAMETERS))
    return dpaudit.audit(
        lambda data, seed: train(data, seed, noise, right),
        lambda words, returned: -returned[0],
        neighbours=neighbours_of((other, np.vstack([other, user])), unit="user"),
        claim=claim,
        runs=50,
        until_violation=True,
        seed=seed,
        workers=1,
    )


def library_users(seed: int, right: bool, names: tuple[str, str]):
    """`examples/users.py`: user batches of jax-privacy, a sampler of users with Opacus."""
    import users

    return users.audit(getattr(users, names[not right]), runs=8, seed=seed)


# --- Clients and shuffled epochs: the examples. ---------------------------------------------------


def client(seed: int, right: bool, share: float):
    """Federated averaging with one client as the canary, and with too little noise."""
    import federated_clients

    return federated_clients.audit(200, true_share=1.0 if right else share, seed=seed)


def shuffled(seed: int, right: bool):
    """What is proven for shuffled epochs, and the claim of Poisson sampling."""
    import shuffled_training as example

    claim = example.SHUFFLED if right else example.POISSON
    return dpaudit.audit(
        example.train, example.score, canary=example.CANARY, claim=claim, runs=100, seed=seed
    )


# --- Checks: one crafted client or user; no statistics but those of the noise. --------------------

NOISE, CHECKED = 1.1, {"clip_norm": 1.0, "noise_multiplier": 1.1, "parameters": 200}


def weighted(seed: int, right: bool):
    """Weights 1 to 7; the noise is that of the heaviest client, or of the average one."""
    weights = np.array([1.0] * 7 + [7.0])
    largest = weights.max() if right else weights.mean()

    def step(updates, seed, weights):
        updates = np.nan_to_num(updates, nan=0, posinf=0, neginf=0)
        noise = np.random.default_rng(seed).normal(0, NOISE * largest, updates.shape[1])
        return weights @ bounded(updates) + noise

    return check_step(step, weights=weights, batch_size=8, unit="client", seed=seed, **CHECKED)


def user_in_a_step(seed: int, right: bool):
    """The rows of a batch are users, or the records of users."""

    def step(rows, seed):
        rows = np.nan_to_num(rows, nan=0, posinf=0, neginf=0)
        noise = np.random.default_rng(seed).normal(0, NOISE, rows.shape[1])
        return bounded(rows).sum(axis=0) + noise

    return check_step(step, records=1 if right else 4, unit="user", seed=seed, **CHECKED)


def adaptive(seed: int, right: bool):
    """Six rounds; the noise is that of the round's clip norm, or of the first one."""

    def step(batches, seed):
        random, norm, released = np.random.default_rng(seed), 1.0, []
        for rows in batches:
            rows = np.nan_to_num(rows, nan=0, posinf=0, neginf=0)
            noise = random.normal(0, NOISE * (norm if right else 1.0), rows.shape[1])
            released.append(norm * bounded(rows / norm).sum(axis=0) + noise)
            short = np.linalg.norm(np.clip(rows, -1e9, 1e9), axis=1) <= norm
            share = (short.sum() + random.normal(0, 4.0)) / 16
            norm *= np.exp(-0.5 * (share - 0.9))
        return released

    return check_step(step, rounds=6, unit="client", seed=seed, **CHECKED)


def local(seed: int, right: bool):
    """One row is a batch; the noise is that of epsilon 10, or nine tenths of it."""

    def step(rows, seed):
        rows = np.nan_to_num(rows, nan=0, posinf=0, neginf=0)
        noise = (1.0 if right else 0.9) * np.random.default_rng(seed).normal(0, NOISE, rows.shape)
        return (bounded(rows) + noise)[0]

    return check_step(step, batch_size=1, unit="client", seed=seed, **CHECKED)


def bounded(rows):
    """Clipped to norm 1, also where squares overflow."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0) + 1e-300
    norms = np.linalg.norm(rows / largest, axis=1, keepdims=True) * largest
    return rows / np.maximum(1, norms)


PATHS = {
    **{
        f"{words}, claimed epsilon {epsilon}": functools.partial(play, epsilon=epsilon)
        for words, play in (
            ("50 users of 4 records in 8 trainings", many_users),
            ("one user of 4 records, added for real", one_user),
        )
        for epsilon in (2, 4, 8)
    },
    "a client in every round, half of the noise": functools.partial(client, share=0.5),
    "shuffled epochs, claimed as Poisson samples": shuffled,
    "check: clients of unequal weights, noise of the mean weight": weighted,
    "check: the records of a user clipped one by one": user_in_a_step,
    "check: an adaptive clip norm, noise of the first one": adaptive,
    "check: local privacy, nine tenths of the noise": local,
    "50 users in 8 trainings, Opacus with a sampler of users": functools.partial(
        library_users, names=("train_opacus_by_user", "train_opacus")
    ),
    "50 users in 8 trainings, user batches of jax-privacy": functools.partial(
        library_users, names=("train_jax", "train_jax_by_record")
    ),
}


def play(path: str, right: bool, seed: int) -> tuple[bool, bool, int]:
    """Whether the claim was refuted and suspected, and the number of trainings or calls."""
    warnings.simplefilter("ignore")
    result = PATHS[path](seed, right)
    if path.startswith("check"):
        return bool(result.broken), bool(result.broken), result.calls
    refuted = result.verdict == "violation"
    return (
        refuted,
        refuted or result.suspected or bool(result.fresh_runs),
        result.runs + result.fresh_runs,
    )


def cell(path: str, audits: int, pool: ProcessPoolExecutor) -> dict[str, object]:
    seeds = range(audits)
    wrong = list(pool.map(functools.partial(play, path, False), seeds, chunksize=4))
    right = list(pool.map(functools.partial(play, path, True), seeds, chunksize=4))
    return {
        "path": path,
        "audits": audits,
        "found": sum(refuted for refuted, _, _ in wrong),
        "trainings": max(runs for _, _, runs in wrong),
        "alarms": sum(refuted for refuted, _, _ in right),
        "suspected": sum(suspected for _, suspected, _ in right),
    }


def write_page(cells) -> None:
    lines = [
        "| path and mistake | trainings | mistake found | true claim suspected | false alarms |",
        "|---|---|---|---|---|",
    ]
    for row in cells:
        check, of = row["path"].startswith("check"), f"of {row['audits']:,}"
        # A check has one stage; `None` was not counted.
        suspected = "" if check or row["suspected"] is None else f"{row['suspected']} {of}"
        lines.append(
            f"| {row['path']} | {row['trainings']}{' calls' if check else ''} | "
            f"{row['found']} {of} | {suspected} | {row['alarms']} {of} |"
        )
    put_table("pipeline.md", "units.py", lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--audits", type=int, default=400, help="audits of each path and claim")
    parser.add_argument("--only", default="", help="only paths with this text")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--save", action="store_true", help="replace these rows of units.json")
    arguments = parser.parse_args()
    stored = Path(__file__).with_suffix(".json")
    cells = {row["path"]: row for row in json.loads(stored.read_text())} if stored.exists() else {}
    with ProcessPoolExecutor(arguments.cores, mp_context=get_context("spawn")) as pool:
        for path in PATHS:
            if arguments.only in path:
                cells[path] = cell(path, arguments.audits, pool)
                print(json.dumps(cells[path]), flush=True)
    if arguments.save:
        rows = [cells[path] for path in PATHS if path in cells]
        stored.write_text(json.dumps(rows, indent=1) + "\n")
        write_page(rows)


if __name__ == "__main__":
    main()
