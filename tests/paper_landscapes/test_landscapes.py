"""Landscapes: bounded, smooth between their edges, readable from a file, and refused when wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpaudit.errors import InvalidInput
from dpaudit_paper.landscapes import (
    SHAPES,
    Constant,
    Landscape,
    LandscapeProcess,
    PiecewiseLinear,
    Scaling,
    Threshold,
    accountant_mu,
    exact_privacy,
    from_file,
    named_landscape,
    wells,
)

EVERY: list[Landscape] = [
    Constant(),
    Threshold(at=1.5),
    Threshold(away=False),
    wells(3.0),
    wells(0.7, edge=0.1),
    PiecewiseLinear(knots=np.array([-3.0, -1.0, -1.0, 2.0]), moves=np.array([0.2, -0.9, 0.9, 3.0])),
]
by_name = pytest.mark.parametrize("landscape", EVERY, ids=lambda shape: type(shape).__name__)


@by_name
@settings(max_examples=40, deadline=None)
@given(reach=st.floats(0.05, 200), x=st.floats(-300, 300))
def test_the_drift_never_exceeds_the_reach(landscape: Landscape, reach: float, x: float) -> None:
    drift = landscape.drift(np.array([x, x + 0.1]), reach)
    assert drift.shape == (2,)
    assert (np.abs(drift) <= reach * (1 + 1e-12)).all()


@by_name
@pytest.mark.parametrize("reach", [0.8, 5.0, 500.0])
def test_between_two_edges_the_drift_is_a_straight_line(landscape: Landscape, reach: float) -> None:
    low, high = -31.7, 43.3
    edges = np.concatenate([[low], landscape.edges(low, high, reach), [high]])
    assert (np.diff(edges) > 0).all()
    # Stay clear of the ends, where rounding decides the side.
    pad = 1e-6 * np.diff(edges)
    inside = np.linspace(edges[:-1] + pad, edges[1:] - pad, 7)
    drift = landscape.drift(inside, reach)
    bend = np.abs(np.diff(drift, n=2, axis=0)).max()
    assert bend < 1e-7 * max(1.0, reach)


def test_wells_pull_to_the_centre() -> None:
    x = np.linspace(-9, 9, 37)
    assert np.allclose(np.mod(x + wells(3.0).drift(x, 10.0) - 0.5, 3.0), 1.5)


def test_a_move_jumps_where_a_knot_stands_twice() -> None:
    landscape = PiecewiseLinear(
        knots=np.array([0.0, 1.0, 1.0, 2.0]), moves=np.array([-2.0, -2.0, 2.0, 2.0])
    )
    drift = landscape.drift(np.array([-5.0, 0.5, 1.0 - 1e-12, 1.0, 5.0]), 2.0)
    assert drift.tolist() == [-2.0, -2.0, -2.0, 2.0, 2.0]


def process(batch: int = 4) -> LandscapeProcess:
    return LandscapeProcess(noise_multiplier=1, batch_size=batch, steps=6, landscape=Threshold())


@pytest.mark.parametrize("scaling", ["paper", "dpsgd"])
def test_a_file_can_describe_a_named_landscape(tmp_path: Path, scaling: Scaling) -> None:
    path = tmp_path / "landscape.csv"
    path.write_text("-1,4\n0.5,4\n0.5,-4\n1,-4\n")
    named = replace(process(), scaling=scaling)
    read = exact_privacy(named.with_landscape(from_file(path, named)))
    np.testing.assert_allclose(read.epsilon, exact_privacy(named).epsilon, rtol=1e-9)


def test_a_smooth_landscape_from_a_file(tmp_path: Path) -> None:
    grid = np.linspace(-9, 10, 191)
    path = tmp_path / "landscape.csv"
    rows = zip(grid, -4 * np.tanh(4 * (grid - 0.5)), strict=True)
    path.write_text("position,gradient\n" + "".join(f"{x},{g}\n" for x, g in rows))
    sharp = exact_privacy(process())
    result = exact_privacy(process().with_landscape(from_file(path, process())))
    assert result.error < 1e-3
    # A smoothed threshold leaks about what the sharp one does.
    assert result.epsilon[-1] == pytest.approx(sharp.epsilon[-1], rel=0.05)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("position,gradient\n0,1\n", "at least 2 rows"),
        ("0,1\n1,two\n", "row 2"),
        ("0,1\n1\n", "row 2"),
        ("1,0\n0,0\n", "ascending"),
        ("0,0\n1,9\n", r"\[-4, 4\].*got 9"),
        ("0,nan\n1,0\n", "row 1"),
        ("", "at least 2 rows"),
    ],
)
def test_bad_files_are_refused_by_row(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        from_file(path, process())


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        from_file(tmp_path / "absent.csv", process())
    giant = tmp_path / "giant.csv"
    giant.write_text(f"position,gradient\n0,{'9' * 200_000}\n")
    with pytest.raises(InvalidInput, match="cannot be read"):
        from_file(giant, process())
    with (tmp_path / "sparse.csv").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(InvalidInput, match="at most 16,000,000 bytes"):
        from_file(tmp_path / "sparse.csv", process())


def test_a_period_longer_than_the_process_is_refused():
    with pytest.raises(InvalidInput, match="period must be at most the number of steps, 10"):
        LandscapeProcess(
            noise_multiplier=4, batch_size=8, steps=10, landscape=Constant(), period=11
        )


PER_BATCH = {"moving-threshold", "reading-wells"}  # they have no single drift


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape not in PER_BATCH])
def test_every_name_makes_a_landscape_within_reach(shape: str) -> None:
    process = LandscapeProcess(
        noise_multiplier=1,
        batch_size=600,
        steps=40,
        landscape=Constant(),
        scaling="dpsgd",
        period=5,
    )
    drift = named_landscape(shape, process).drift(np.linspace(-50, 50, 1001), process.reach)
    assert (np.abs(drift) <= 600).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise_multiplier": 0}, "noise_multiplier must be above 0, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"period": 0}, "period must be at least 1, got 0; use 1 for every step"),
        ({"scaling": "both"}, "scaling must be one of paper, dpsgd, got 'both'"),
        ({"landscape": "threshold"}, "landscape must be a Landscape"),
    ],
)
def test_a_process_checks_itself(options: dict[str, object], message: str) -> None:
    settings = {"noise_multiplier": 1, "batch_size": 1, "steps": 1, "landscape": Threshold()}
    with pytest.raises(InvalidInput, match=message):
        LandscapeProcess(**{**settings, **options})  # type: ignore[arg-type]


def test_insertion_schedule() -> None:
    process = LandscapeProcess(
        noise_multiplier=1, batch_size=1, steps=10, landscape=Constant(), period=4
    )
    assert [step for step in range(1, 11) if process.inserts(step)] == [1, 5, 9]
    assert [process.insertions(step) for step in (1, 4, 5, 10)] == [1, 1, 2, 3]
    assert accountant_mu(process, 10) == pytest.approx(math.sqrt(3))
