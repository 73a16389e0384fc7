"""Audits of two neighbouring data sets: pipelines and mechanisms, learned scores."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

from dpaudit import Claim, audit
from dpaudit.audits.games import game_of
from dpaudit.errors import InvalidInput, TrainingFailed
from dpaudit.pipelines import neighbours_of
from dpaudit.pipelines.scores import LearnedScore, Released, UpdateLength

WITHOUT, WITH = np.zeros((5, 1)), np.concatenate([np.zeros((5, 1)), np.ones((1, 1))])
PAIR = WITHOUT, WITH


def gaussian(noise, numbers=4):
    def mechanism(data, seed):
        drawn = np.random.default_rng(seed).normal(0, noise, numbers)
        return drawn + data.sum() * np.eye(numbers)[1]

    return mechanism


def divided(data, seed):
    """Noise for the sum, divided by the number of records: a record of zeros is visible."""
    return np.random.default_rng(seed).normal(0, 1, 400) / (1 if len(data) == 6 else 2)


def test_noise_that_is_too_small_is_found_by_a_learned_score():
    result = audit(gaussian(0.3), neighbours=PAIR, claim=Claim.from_mu(1.0), runs=400)
    assert result.verdict == "violation"
    assert any("300 other runs" in notice for notice in result.notices)


def test_a_correct_mechanism_is_not_accused():
    result = audit(gaussian(1.0), neighbours=PAIR, claim=Claim.from_mu(1.0), runs=400)
    assert result.verdict != "violation"
    assert result.runs == 300


@pytest.mark.parametrize("adversary", ["length", "learned"])
def test_noise_that_depends_on_the_number_of_records(adversary):
    result = audit(divided, adversary, neighbours=PAIR, claim=Claim.from_mu(1.0), runs=80)
    assert result.verdict == "violation"


def test_a_check_names_the_cause_in_the_report(tmp_path):
    result = audit(
        divided, "length", neighbours=PAIR, claim=Claim.from_mu(1.0), runs=80, check=True
    )
    assert result.verdict == "violation"
    words = "finds the rule 'noise of the result' broken: The noise of the result is 2 times"
    assert words in " ".join(result.test.doubts)
    page = tmp_path / "audit.html"
    result.report(page)
    assert "noise of the result" in page.read_text()


def test_a_score_of_the_user_sees_the_words_and_the_result():
    seen = []

    def score(words, returned):
        seen.append(words)
        return returned[1]

    audit(gaussian(1.0), score, neighbours=PAIR, claim=Claim.from_mu(1.0), runs=40)
    assert set(seen) == {"record 6 of 6 is added"}


def test_a_user_with_all_records_needs_a_claim_for_a_user():
    pair = neighbours_of((np.zeros((5, 1)), np.concatenate([WITH, WITH[-1:]])), unit="user")
    claim = Claim.from_mu(1.0)  # of one record; the user has two

    def never(data, seed):
        raise AssertionError(data, seed)

    with pytest.raises(InvalidInput, match="claim must be for the unit"):
        audit(never, neighbours=pair, claim=claim, runs=400)
    with pytest.raises(InvalidInput, match="for a user with 2 records"):
        audit(never, neighbours=pair, claim=claim.per("user", records=1), runs=400)
    with pytest.raises(InvalidInput, match="runs must be large enough"):
        audit(never, neighbours=pair, claim=Claim.from_mu(3.0).per("user"), runs=20)
    result = audit(gaussian(1.0), neighbours=pair, claim=claim.per("user"), runs=800)
    assert result.verdict == "violation"


def test_categories_are_learned_one_by_one():
    """Randomised response over four answers, where the middle ones differ."""

    def answer(data, seed):
        return np.random.default_rng(seed).choice(
            4, p=[0.4, 0.1, 0.4, 0.1][:: 1 if len(data) == 5 else -1]
        )

    claim = Claim.from_points([(0.5, 0.0)])
    assert audit(answer, neighbours=PAIR, claim=claim, runs=1200).verdict == "violation"


def test_the_pilot_is_no_part_of_the_test():
    game = game_of(gaussian(1.0), neighbours=PAIR, runs=200, seed=3)
    assert game.description.runs == 152
    again = game_of(gaussian(1.0), neighbours=PAIR, runs=200, seed=3)
    assert game.description == again.description
    assert (
        game_of(gaussian(1.0), neighbours=PAIR, runs=200, seed=4).description != again.description
    )


def test_features_of_large_and_of_varying_results():
    random = np.random.default_rng(0)
    pilot = [
        Released.of({"a": random.normal(size=500), "b": random.normal(size=2)}) for _ in range(40)
    ]
    score = LearnedScore.learn(pilot, np.arange(40) % 2 == 1)
    assert np.isfinite(score(None, {"a": np.zeros(500), "b": np.full(2, 1e200)}))
    with pytest.raises(InvalidInput, match="the same shape"):
        score(None, np.zeros(3))
    assert UpdateLength(initial=np.ones(2))(None, np.ones(2)) == 0


def test_a_large_pilot_learns_bent_log_likelihood_ratios_of_the_steps_of_a_sum():
    random = np.random.default_rng(0)
    labels = np.arange(4000) % 2 == 1
    steps = random.laplace(labels[:, None], 1.0, (4000, 3))
    pilot = [Released.of(row) for row in steps.cumsum(axis=1)]
    fresh = random.laplace(0.5, 1.0, (2000, 3))
    true = (np.abs(fresh) - np.abs(fresh - 1)).sum(axis=1)

    def agreement(runs):
        score = LearnedScore.learn(pilot[:runs], labels[:runs])
        learned = [score(None, row) for row in fresh.cumsum(axis=1)]
        return np.corrcoef(learned, true)[0, 1]

    assert agreement(4000) > 0.97
    assert agreement(4000) > agreement(900) + 0.1


def test_outcomes_that_repeat_are_ordered_by_how_often_they_occur():
    """Where three answers agree says more than any of them, and no sum of them shows it."""
    random = np.random.default_rng(0)
    labels = np.arange(20_000) % 2 == 1
    votes = random.integers(0, 2, (20_000, 3)).astype(float)
    agree = labels & (random.random(20_000) < 0.2)
    votes[agree] = votes[agree, :1]
    score = LearnedScore.of_pilot(votes, np.linalg.norm(votes, axis=1)[:, None], labels)
    scores = {
        outcome: score(None, np.array(outcome))
        for outcome in itertools.product((0.0, 1.0), repeat=3)
    }
    best = sorted(scores, key=scores.get)[-2:]
    assert set(best) == {(0.0, 0.0, 0.0), (1.0, 1.0, 1.0)}
    assert scores[best[0]] > max(scores[own] for own in scores if own not in best) + 0.3
    unseen = score(None, np.array([5.0, 0.0, 0.0]))
    assert min(scores.values()) <= unseen <= max(scores.values())


def fails(data, seed):
    raise ZeroDivisionError("no")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ({"training": lambda data: data}, InvalidInput, r"train\(data, seed\)"),
        ({"training": fails}, TrainingFailed, "pilot runs failed"),
        ({"adversary": "best"}, InvalidInput, "'learned', 'length'"),
        ({"neighbours": (WITH, WITH + 1)}, InvalidInput, "differ in one record"),
        ({"canary": 3}, InvalidInput, "canary cannot be given"),
        ({"runs": 16}, InvalidInput, "runs must be more than 16"),
        ({"training": "housing"}, InvalidInput, "neighbours cannot be given"),
    ],
)
def test_calls_that_do_not_fit(call, error, words):
    arguments = {"training": gaussian(1.0), "neighbours": PAIR, **call}
    with pytest.raises(error, match=words):
        audit(claim=Claim.from_mu(1.0), **{"runs": 60, **arguments})


def test_the_command(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def neighbours():\n    return np.zeros(5), np.append(np.zeros(5), 1.0)\n"
        "def pipeline(data, seed):\n"
        "    return np.random.default_rng(seed).normal(data.sum(), 0.2, 1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "dpaudit", "audit", "mine.py:pipeline", "--neighbours",
         "mine.py:neighbours", "--claimed-epsilon", "1", "--runs", "200", "--json"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["verdict"] == "violation"
