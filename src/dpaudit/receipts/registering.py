"""Plans that are written before the first run, so that an audit can be shown to be the planned one.

A plan names the claim, the training with the digest of its code, the adversary, the number of runs,
the seed, and the levels of the test. The receipt names the digest of the plan. By itself a plan
proves no date: sign it with a trusted time, or hand it to somebody, before the audit begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, final

from dpaudit._version import __version__
from dpaudit.audits.assessment import policy_of
from dpaudit.audits.games import game_of
from dpaudit.audits.identity import LIVE_CANARIES, Description, Question
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput
from dpaudit.live import LiveAudit
from dpaudit.receipts.form import (
    Document,
    Given,
    InvalidReceipt,
    Plain,
    as_plain,
    parse,
    read_bytes,
)
from dpaudit.scores.store import canonical_json
from dpaudit.trainings.importing import Named

CHOSEN_LATER = ("tile_size", "compile", "convolutions")
"""Settings of speed that depend on the machine: they may differ from the plan."""


@final
class RegisteredPlan(Document, frozen=True, kw_only=True):
    """An audit as it was planned.

    Arguments:
        format: Always ``dpaudit-plan``.
        version: Version of the form.
        created: When it was written, by the clock of that machine (UTC).
        configuration: Training, code digest, adversary, runs and seed.
        question: The claim and what is asked of the scores.
        policy: The levels of the test.
    """

    format: Literal["dpaudit-plan"] = "dpaudit-plan"
    version: Literal[1] = 1
    created: str
    configuration: Plain
    question: Plain
    policy: Plain


def register(
    training: Any,
    adversary: Any = None,
    *,
    claim: Claim | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    confirm: bool = True,
    detect: float | None = None,
    power: float | None = None,
    **settings: Any,
) -> RegisteredPlan:
    """The plan of an audit. Nothing is trained.

    Arguments:
        training: As for `dpaudit.audit`, like all that follow; or a live audit before its block,
            which has all of it.
        adversary: The adversary.
        claim: The privacy claim.
        delta: Delta at which bounds are computed.
        confidence: Confidence of the lower bounds.
        confirm: Whether fresh runs must confirm a violation.
        detect: Noise of this fraction must be detectable.
        power: Probability of detection.
        **settings: runs, canaries, canary, insertion, seed, horizons, initial, until_violation,
            speed.
    """
    if isinstance(training, LiveAudit):
        if adversary is not None or claim is not None or settings:
            raise InvalidInput("claim and settings are those of the live audit; omit them")
        return _of_live(training)
    optional = {"detect": detect, "power": power}
    question = Question(
        claim=claim,
        delta=delta,
        confidence=confidence,
        confirm=confirm,
        **{name: value for name, value in optional.items() if value is not None},
    )
    names = (
        "runs", "canaries", "canary", "insertion", "seed", "horizons", "initial",
        "until_violation", "speed",
    )  # fmt: skip
    chosen = dict.fromkeys(names) | {"seed": 0, "until_violation": False}
    chosen |= {name: value for name, value in settings.items() if value is not None}
    game = game_of(
        training,
        adversary,
        **{name: chosen[name] for name in names},
        workers=None,
        timeout=None,
        # A training that is named is imported in a process of its own, which its end cannot end.
        isolated=isinstance(training, Named) or None,
        capacity=None,
    )
    game.close()
    return _planned(game.description, question)


def _of_live(live: LiveAudit) -> RegisteredPlan:
    """The plan of a live audit: the script, the number of canaries, the claim, and no seed."""
    if live.steps:
        raise InvalidInput(
            f"training must be a live audit before its first step, and it has {live.steps:,} steps"
        )
    if live.question.claim is None:
        raise InvalidInput(
            "training must be a live audit with a claim to be registered, such as live_audit(..., "
            "claim=Claim.from_dpsgd(...)); without one, its claim are the steps that are reported"
        )
    return _planned(live.description, live.question)


def _planned(description: Description, question: Question) -> RegisteredPlan:
    return RegisteredPlan(
        dpaudit=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        configuration=as_plain(description.to_dict()),
        question=as_plain(question.to_dict()),
        policy=as_plain(policy_of(description, question)),
    ).sealed()


def read_plan(path: str | Path) -> RegisteredPlan:
    """Read a plan; `InvalidReceipt` if the file is none, or was changed."""
    plan = parse(read_bytes(path), RegisteredPlan, name=str(path))
    if plan.digest != plan.correct_digest:
        raise InvalidReceipt(f"the plan {path} was changed after it was written")
    return plan


def compare_with_plan(given: Given, plan: RegisteredPlan) -> Iterator[tuple[bool | None, str]]:
    """Whether an audit is the one that was planned, in words."""
    if given.plan != plan.digest:
        yield False, "the receipt does not name this plan"
        return
    differences = differences_from(plan, given.configuration, given.question)
    if differences or given.asked_afterwards:
        what = "; ".join(differences) or "the claim was chosen afterwards"
        yield False, f"the audit is not the one that was planned: {what}"
        return
    live = given.facts.get("live", {})
    which = "script, canaries" if live else "code, adversary, runs, seed"
    yield True, f"claim, {which} and test are those of the plan"
    began = str(live.get("began") or given.created)
    if _time(plan.created) > _time(began):
        yield False, f"the plan was written at {plan.created}, after the audit began"
    else:
        yield (
            None,
            (
                f"the plan states {plan.created}, before the audit began ({began}); "
                "both are clocks of the auditor"
            ),
        )


def differences_from(plan: RegisteredPlan, configuration: Plain, question: Plain) -> list[str]:
    """What differs from the plan, in words."""
    planned = [_comparable(plan.configuration), dict(plan.question)]
    played = [_comparable(configuration), dict(question)]
    return [
        f"{'the training or its code' if name == 'mechanism' else name} differs"
        for before, after in zip(planned, played, strict=True)
        for name in sorted({*before, *after})
        if canonical_json({"": before.get(name)}) != canonical_json({"": after.get(name)})
    ]


def _comparable(configuration: Plain) -> dict[str, Any]:
    """The configuration without what depends on the machine, or is drawn by a live audit."""
    plain = dict(configuration)
    adversary, mechanism = plain.get("adversary", {}), plain.get("mechanism", {})
    if adversary.get("name") == LIVE_CANARIES:
        plain["mechanism"] = {**mechanism, "canary": ""}
    speed = plain.get("speed")
    if isinstance(speed, dict):
        plain["speed"] = {key: value for key, value in speed.items() if key not in CHOSEN_LATER}
    return plain


def _time(text: str) -> datetime:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidReceipt(f"a time must be in ISO format, got {text[:40]!r}") from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)
