"""Arguments that are wrong are refused with an error of dpaudit that names them."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpaudit
from dpaudit import _validate, receipts
from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.scores import Scores, Store, read_scores, write_scores
from dpaudit.trainings import DirectionCanary, GradientCanary, command

SCORES = Scores.from_samples([3.0, 2.0, 2.5] * 9, [0.1, 0.3, -1.0] * 9)
ITSELF: list[Any] = []
ITSELF.append(ITSELF)


class Loud:
    """An object whose every method raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no eq")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")


def train(canary: Any, inserted: Any, seed: int) -> float:
    return 3.0 * inserted + float(np.random.default_rng(seed).normal())


def audited(**arguments: Any) -> Any:
    usual = {"claim": dpaudit.Claim.from_mu(1.0), "runs": 4, "anyway": True}
    return dpaudit.audit(train, **{**usual, **arguments})


def gradient(**fields: Any) -> GradientCanary:
    usual = {"parameters": 5, "dimensions": np.array([1]), "clip_norm": 1.0, "norm": 10.0}
    return GradientCanary(**{**usual, **fields})


def directions(rows: Any) -> DirectionCanary:
    return DirectionCanary(directions=rows, clip_norm=1.0, norm=10.0)


def closed() -> io.StringIO:
    stream = io.StringIO("score,inserted\n1,1\n")
    stream.close()
    return stream


CALLS: list[tuple[str, Callable[[Any], Any], tuple[Any, ...]]] = [
    ("store", Store.open, (None, 3, b"x", "", "a\0b", Loud())),
    ("name", lambda v: Store.open(":memory:").begin(v, {}, {}), (3, b"x", [], " ", Loud())),
    (
        "configuration",
        lambda v: Store.open(":memory:").begin("x", v, {}),
        (3, None, {"a": ITSELF}, {"a": Loud()}, {"a": math.nan}),
    ),
    ("source", read_scores, (3, None, b"x", [], "a\0b", Loud())),
    ("scores", read_scores, (closed(),)),
    ("path", lambda v: write_scores(SCORES, v), (3, None, b"x", [], "", Loud())),
    ("scores", lambda v: write_scores(v, "unused.csv"), (3, None, [1.0], Loud())),
    ("store", lambda v: audited(store=v), (3, b"x", object(), "", Loud())),
    ("name", lambda v: audited(name=v), (3, b"x", "", Loud())),
    ("timeout", lambda v: audited(timeout=v), ("x", -1, 0, math.nan, math.inf, True, Loud())),
    (
        "timeout",
        lambda v: command(["echo", "{inserted}"], timeout=v),
        ("x", -1, math.nan, math.inf, Loud()),
    ),
    ("time_limit", lambda v: audited(time_limit=v), ("x", -1, math.nan, Loud())),
    ("max_runs", lambda v: audited(max_runs=v), ("x", 0, 1.5, Loud())),
    ("detect", lambda v: audited(detect=v), ("x", None, 0, 2, Loud())),
    ("power", lambda v: audited(power=v), ("x", None, -1, 2, Loud())),
    ("progress", lambda v: audited(progress=v), (3, print, Loud())),
    ("executor", lambda v: audited(executor=v), (3, "slurm", Loud())),
    (
        "delta",
        lambda v: dpaudit.estimate(SCORES, delta=v),
        ("x", None, 2, Loud(), np.array([1e-5, 1e-6])),
    ),
    (
        "method",
        lambda v: dpaudit.estimate(SCORES, delta=1e-5, method=v),
        ("x", 3, Loud(), np.array(["a", "b"])),
    ),
    (
        "norm",
        lambda v: GradientCanary.draw(5, clip_norm=1.0, norm=v),
        (math.inf, math.nan, "x", 0, Loud()),
    ),
    ("norm", lambda v: gradient(norm=v), (math.inf, math.nan, -1, None)),
    ("norm", lambda v: DirectionCanary.draw(5, clip_norm=v), (1e308,)),
    ("clip_norm", lambda v: gradient(clip_norm=v), (math.inf, 10**400, 0, "x")),
    (
        "dimensions",
        lambda v: gradient(dimensions=v),
        ([5], [-1], [1, 1], [1.5], [], [[1]], "x", None, Loud()),
    ),
    ("names", lambda v: gradient(names=v), (("a", "b"), "a", 3, None, (1,))),
    (
        "directions",
        directions,
        ([[2.0, 0.0]], [1.0, 0.0], [[math.nan, 0.0]], [["a"]], None, [[1.0], [1.0, 2.0]]),
    ),
    ("final parameters", gradient().score, (["a"] * 5, None, [[1], [1, 2]], [1.0], Loud())),
    ("inserted", gradient().rows, ("x", None, 2, 0.5, [True, False], Loud())),
    ("path", receipts.verify, (3, None, b"x", "", Loud())),
    ("paths", receipts.combine, (3, None, [], ["a"], "ab", Loud())),
    ("record", receipts.receipt_of, (3, None, "x", Loud())),
    ("record", dpaudit.audits.read_result, (3, None, "x", Loud())),
    ("training|function", receipts.register, (3, None, Loud())),
    (
        "claim",
        lambda v: dpaudit.audits.plan_training(train, claim=v),
        (3, None, "x", 1.0, Loud()),
    ),
    ("pages", lambda v: dpaudit.report.write_page(v, "x.html"), (3, None, [], [3], "x", Loud())),
    (
        "tensors",
        lambda v: GradientCanary.per_tensor(v, clip_norm=1.0),
        (3, {}, None, [("a", 1)]),
    ),
]


@pytest.mark.parametrize(
    ("name", "call", "value"),
    [
        pytest.param(name, call, value, id=f"{name}-{place}-{number}")
        for place, (name, call, values) in enumerate(CALLS)
        for number, value in enumerate(values)
    ],
)
def test_is_refused_by_name(
    name: str, call: Callable[[Any], Any], value: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DpauditError, match=name):
        call(value)
    assert not list(tmp_path.iterdir())


def test_tensors_that_need_gradients_are_refused_with_the_remedy() -> None:
    torch = pytest.importorskip("torch")
    given = torch.ones(5, requires_grad=True)
    for call in (
        lambda: gradient().score(given),
        lambda: gradient().score(torch.ones(5), given),
        lambda: Scores(score=given, inserted=[1, 0, 1, 0, 1]),
        lambda: Scores.from_samples(given, [0.0]),
        lambda: dpaudit.lower_bound(given, torch.zeros(4), delta=1e-5),
    ):
        with pytest.raises(InvalidInput, match=r"\.detach\(\)"):
            call()
    with pytest.raises(InvalidInput, match=r"\.float\(\)"):
        gradient().score(torch.ones(5, dtype=torch.bfloat16))


def test_a_lazy_frame_is_refused_with_the_remedy() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.LazyFrame({"score": [1.0, 2.0], "inserted": [1, 0]})
    for call in (
        lambda: Scores.from_pandas(frame),
        lambda: dpaudit.estimate(frame, delta=1e-5),
    ):
        with pytest.raises(InvalidInput, match=r"\.collect\(\)"):
            call()


def test_a_long_value_is_shown_short() -> None:
    with pytest.raises(InvalidInput) as raised:
        _validate.positive("size", "a" * 100_000)
    assert len(str(raised.value)) < 400
