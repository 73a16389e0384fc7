"""The comparison of `make bench` with the committed benchmark."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
BENCH = runpy.run_path(str(BENCHMARKS / "bench.py"))


def test_only_a_clear_loss_counts_as_worse() -> None:
    then = {"same": 10.0, "noise": 10.0, "lost": 10.0, "gone": 4.0}
    now = {"same": 10.0, "noise": 7.6, "lost": 7.4, "new": 3.0}
    changes = {change.name: change for change in BENCH["compare"](then, now)}
    assert list(changes) == ["same", "noise", "lost", "new", "gone"]
    assert [name for name, change in changes.items() if change.worse] == ["lost"]
    assert changes["new"].relative is None
    assert changes["gone"].relative is None
    text = BENCH["table"](list(changes.values()))
    assert text.count("WORSE") == 1
    assert "-26%" in text


def test_committed_benchmarks_say_where_they_come_from() -> None:
    for path in BENCHMARKS.glob("bench-*.json"):
        content = json.loads(path.read_text())
        assert {"device", "torch", "commit", "ratios"} <= set(content), path
        assert all(value > 0 for value in content["ratios"].values()), path
