"""``dpaudit estimate``: lower bounds from the scores or counts of an audit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dpaudit.cli._exit import decided
from dpaudit.cli._options import (
    ClaimedEpsilon,
    Json,
    PairOnly,
    claim_from,
    option,
    option_name,
)
from dpaudit.cli._output import console, print_json
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds.registry import DEFAULT_METHODS, METHODS

if TYPE_CHECKING:
    from dpaudit.claims import Claim, ClaimTest

_EVERY = "all"
_NO_NUMBER = "dpaudit: no method gave a bound; the output lists the reasons"


def estimate(
    scores: Annotated[
        str | None,
        typer.Argument(
            metavar="SCORES.csv|.parquet|.json|-",
            help="A table with columns score and inserted (0 or 1), optionally run and canary; "
            "or a JSON file of memaudit, PrivacyGuard or jax-privacy; - reads CSV from standard "
            "input. Higher scores must mean inserted.",
        ),
    ] = None,
    score_column: Annotated[str, option("Column of the scores.", "NAME")] = "score",
    label_column: Annotated[
        str, option("Column that says whether the canary was inserted (0 or 1).", "NAME")
    ] = "inserted",
    delta: Annotated[float | None, option("Bound epsilon at this delta.")] = None,
    epsilon: Annotated[float | None, option("Bound delta at this epsilon.")] = None,
    method: Annotated[
        str | None,
        option(
            f"Method: {', '.join(METHODS)}, dpsgd, or all. Without it clopper-pearson, and the "
            "family that the claim names: dpsgd with sampling, otherwise gaussian-dp.",
            "M|all",
        ),
    ] = None,
    sampling_rate: Annotated[
        float | None,
        option(
            "Poisson sampling rate: of the claim, or of method dpsgd (1 without sampling).", "q"
        ),
    ] = None,
    steps: Annotated[
        int | None, option("Number of steps: of the claim, or of method dpsgd.", "T")
    ] = None,
    threshold: Annotated[
        str | None,
        option(
            "How the threshold is chosen: pilot, simultaneous, bonferroni, best (not a valid "
            "bound), or fixed=VALUE. Not with counts.",
            "RULE",
            "pilot",
        ),
    ] = None,
    confidence: Annotated[float, option("Probability that each bound holds.")] = 0.95,
    seed: Annotated[int, option("Random seed that draws the pilot scores.")] = 0,
    true_positives: Annotated[int | None, option("Inserted canaries guessed inserted.")] = None,
    false_negatives: Annotated[
        int | None, option("Inserted canaries guessed not inserted.")
    ] = None,
    false_positives: Annotated[int | None, option("Other canaries guessed inserted.")] = None,
    true_negatives: Annotated[int | None, option("Other canaries guessed not inserted.")] = None,
    claimed_epsilon: ClaimedEpsilon = None,
    pair_only: PairOnly = False,
    claimed_mu: Annotated[float | None, option("Claimed mu of mu-GDP.", "M")] = None,
    noise_multiplier: Annotated[
        float | None, option("Claimed noise multiplier of DP-SGD, with --steps.", "s")
    ] = None,
    json: Json = False,
) -> None:
    """Lower bounds on the privacy loss from the scores or the counts of an audit.

    Scores of any audit:
    [bold]dpaudit estimate scores.csv --delta 1e-5[/]

    A table whose columns have other names:
    [bold]dpaudit estimate losses.csv --score-column loss --label-column member[/]
    [bold]  --delta 1e-5[/]

    Counts, by one method:
    [bold]dpaudit estimate --true-positives 490 --false-negatives 10[/]
    [bold]  --false-positives 20 --true-negatives 480 --delta 1e-5 --method joint-beta[/]

    The noise of DP-SGD with known sampling rate and steps:
    [bold]dpaudit estimate scores.csv --delta 1e-5 --method dpsgd[/]
    [bold]  --sampling-rate 0.1 --steps 100[/]

    Test the claim of a DP-SGD training:
    [bold]dpaudit estimate scores.csv --delta 1e-5[/]
    [bold]  --noise-multiplier 4 --steps 250[/]

    A claim is violated at p <= 0.001, and suspected up to p = 0.05. It is
    consistent with scores only if noise half as large as claimed would be found
    with probability 80 %.

    Exit code with a claim: 0 consistent, 1 violation, 3 inconclusive;
    2: no bound, or bad input.
    """
    from dpaudit.claims import test_claim
    from dpaudit.lower_bounds import estimate as estimate_one
    from dpaudit.lower_bounds import estimate_all
    from dpaudit.lower_bounds.estimating import claimed_history
    from dpaudit.lower_bounds.selection import threshold_rule
    from dpaudit.privacy import Bounds

    counts = {
        "true_positives": true_positives,
        "false_negatives": false_negatives,
        "false_positives": false_positives,
        "true_negatives": true_negatives,
    }
    claim = _claim(locals())
    evidence = _evidence(scores, counts, score_column=score_column, label_column=label_column)
    rule = _rule(threshold, has_thresholds=scores is not None)
    asked: dict[str, Any] = {
        "delta": delta,
        "epsilon": epsilon,
        "threshold": rule,
        "confidence": confidence,
        "seed": seed,
    }
    mechanism: dict[str, Any] = {"sampling_rate": sampling_rate, "steps": steps}
    if noise_multiplier is not None or (sampling_rate is None and steps is None):
        history = None if claim is None else claimed_history(claim.settings)
        mechanism = {"history": history if method in (None, _EVERY, "dpsgd") else None}
    if method is None:
        names_gaussian = claim is not None and claim.mu is not None and claim.pair is None
        order = DEFAULT_METHODS[::-1] if names_gaussian else None
        result = estimate_all(evidence, methods=order, **asked, **mechanism)
    elif method == _EVERY:
        dpsgd = () if all(value is None for value in mechanism.values()) else ("dpsgd",)
        result = estimate_all(evidence, methods=(*dpsgd, *METHODS), **asked, **mechanism)
    else:
        result = Bounds(bounds=(estimate_one(evidence, method=method, **asked, **mechanism),))
    verdict = None
    if claim is not None:
        verdict = test_claim(evidence, claim, threshold=threshold_rule(rule, seed=seed))

    code = 0 if verdict is None else decided(verdict.verdict)
    if json:
        _print_json(result, verdict)
    else:
        _print_table(result, verdict, _source(scores, evidence))
    if not result.bounds:
        print(_NO_NUMBER, file=sys.stderr)
        raise typer.Exit(2)
    raise typer.Exit(code)


def _rule(threshold: str | None, *, has_thresholds: bool) -> str:
    """The threshold rule; refused for counts, whose threshold was chosen elsewhere."""
    if threshold is not None and not has_thresholds:
        raise InvalidInput(
            f"--threshold needs scores, got {threshold!r} with counts, which have no thresholds; "
            "leave it out, or give the scores"
        )
    return "pilot" if threshold is None else threshold


def _evidence(
    scores: str | None, counts: dict[str, int | None], *, score_column: str, label_column: str
) -> Any:
    """Scores from a file or standard input, or the four counts; exactly one of the two."""
    from dpaudit.lower_bounds import ErrorCounts
    from dpaudit.scores import read_scores

    given = [name for name, value in counts.items() if value is not None]
    if scores is not None and given:
        raise InvalidInput(f"give scores or counts, not both: got {scores!r} and {given[0]}")
    if scores is not None:
        source = sys.stdin.buffer if scores == "-" else scores
        return read_scores(source, score_column=score_column, label_column=label_column)
    if not given:
        raise InvalidInput("give a file of scores, or the four counts; see --help")
    missing = [name for name in counts if name not in given]
    if missing:
        options = ", ".join(map(option_name, missing))
        raise InvalidInput(f"counts need all four numbers; missing {options}")
    return ErrorCounts.given(**{name: int(value or 0) for name, value in counts.items()})


def _claim(given: Mapping[str, Any]) -> Claim | None:
    """The claim to test; steps and rate without a noise multiplier describe the method `dpsgd`."""
    from dpaudit.claims import Claim

    described = given["noise_multiplier"] is not None
    mu, pair = given["claimed_mu"], given["claimed_epsilon"] is not None or given["pair_only"]
    if mu is not None:
        if described or pair:
            raise InvalidInput(f"give one claim, got --claimed-mu {mu:g} and another one")
        return Claim.from_mu(mu)
    if not (described or pair):
        return None
    if pair and given["delta"] is None:
        raise InvalidInput("--claimed-epsilon needs --delta")
    return claim_from(given, given["delta"])


def _source(scores: str | None, evidence: Any) -> str:
    size = evidence.sample_size if scores is None else len(evidence)
    name = "counts" if scores is None else ("standard input" if scores == "-" else scores)
    return f"{size:,} scores from {name}"


def _print_json(result: Any, verdict: ClaimTest | None) -> None:
    from dpaudit.report.words import power_dict

    printed: dict[str, Any] = {"bounds": [bound.to_dict() for bound in result]}
    if result.unavailable:
        printed["unavailable"] = [entry.to_dict() for entry in result.unavailable]
    if verdict is not None:
        printed |= {"verdict": verdict.verdict, "p_value": verdict.p_value}
        printed["claim"] = verdict.to_dict()
        printed["power"] = power_dict(verdict.power)
    print_json(printed)


def _print_table(result: Any, verdict: Any, source: str) -> None:
    from dpaudit.cli._output import print_bounds
    from dpaudit.report.palette import terminal_style
    from dpaudit.report.words import bare_line, claim_notes, power_line

    screen = console()
    if verdict is not None:
        line = Text.assemble((verdict.verdict.upper(), terminal_style(verdict.verdict)))
        line.append(f"   {source}, p = {verdict.p_value:.3g}\n")
        line.append(f"claimed   {verdict.claim.description}")
        screen.print(line)
        power = "" if verdict.refuted else power_line(verdict.power)
        for note in (*claim_notes(verdict), power, bare_line(verdict)):
            if note:
                screen.print(Text(note, style="dim"))
        screen.print()
    levels = {bound.level for bound in result.bounds}
    alike = f", {levels.pop()}" if len(levels) == 1 else ""
    print_bounds(
        screen,
        result.bounds,
        f"Lower bounds: {source}{alike}",
        unavailable=result.unavailable,
        hide=("confidence",) if alike else (),
    )
    if len(result.bounds) > 1:
        screen.print(
            "Each bound holds at its own confidence; choose the method before looking.", style="dim"
        )
