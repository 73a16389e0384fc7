"""``dpaudit landscape``: what it prints, what it draws, how it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

PAPER = ["--noise-multiplier", "1", "--batch-size", "16", "--steps", "25"]
SMALL = ["--noise-multiplier", "2", "--batch-size", "2", "--steps", "4"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "landscape")


def test_json_has_epsilon_at_every_step(run: Run) -> None:
    code, out, err = run(*PAPER, "--delta", "1e-5", "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert {"exact", "gdp_rule", "accountant", "error"} <= set(printed)
    assert len(printed["exact"]) == len(printed["gdp_rule"]) == 25
    assert printed["exact"][0] == pytest.approx(4.377178, abs=1e-5)
    assert printed["exact"][-1] == pytest.approx(4.1562, abs=1e-3)
    assert printed["gdp_rule"][-1] == pytest.approx(4.3771, abs=1e-3)
    assert printed["accountant"] == pytest.approx(4.377178, abs=1e-5)
    assert 0 <= printed["error"] < 1e-3


@pytest.mark.parametrize(
    ("options", "last"),
    [
        (["--shape", "literal"], 0.0178),
        (["--shape", "constant"], 4.1562),
        (["--scaling", "dpsgd"], 1.1038),
        (["--scaling", "dpsgd", "--shape", "decision"], 4.3772),
        (["--scaling", "dpsgd", "--shape", "moving-threshold"], 4.3772),
    ],
)
def test_shapes_and_scalings(run: Run, options: list[str], last: float) -> None:
    code, out, _ = run(*PAPER, *options, "--json")
    assert code == 0
    assert json.loads(out)["exact"][-1] == pytest.approx(last, abs=1e-3)


def test_periodic_insertion(run: Run) -> None:
    arguments = ["--noise-multiplier", "4", "--batch-size", "128", "--steps", "1250"]
    arguments += ["--period", "5", "--scaling", "dpsgd", "--json"]
    kept = json.loads(run(*arguments, "--shape", "reading-wells")[1])
    assert kept["exact"][-1] >= 23
    assert kept["accountant"] == pytest.approx(23.995359, abs=1e-5)


def test_a_landscape_from_a_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "landscape.csv"
    path.write_text("position,gradient\n-1,16\n0.5,16\n0.5,-16\n1,-16\n")
    code, out, _ = run(*PAPER, "--shape", str(path), "--json")
    assert code == 0
    assert json.loads(out)["exact"][-1] == pytest.approx(4.1562, abs=1e-3)


def test_simulation_is_audited_by_every_bound(run: Run) -> None:
    code, out, _ = run(*SMALL, "--simulate", "4000", "--json")
    assert code == 0
    printed = json.loads(out)
    methods = [bound["method"] for bound in printed["simulated"]["bounds"]]
    methods += [entry["method"] for entry in printed["simulated"]["unavailable"]]
    assert {"clopper-pearson", "gaussian-dp"} <= set(methods)
    assert "gaussian-dp, best" in methods
    valid = {b["method"]: b["epsilon"] for b in printed["simulated"]["bounds"]}["clopper-pearson"]
    assert valid <= printed["exact"][-1]


def test_people_get_a_table_and_a_sentence(run: Run) -> None:
    code, out, err = run(*SMALL, "--simulate", "2000")
    assert (code, err) == (0, "")
    assert "exact epsilon" in out
    assert "of the accountant's 1.9931" in " ".join(out.split())
    assert "clopper-pearson" in out


@pytest.mark.parametrize(
    "shape",
    [["threshold"], ["constant"], ["reading-wells", "--period", "2", "--batch-size", "200"]],
)
def test_plot_writes_a_picture(run: Run, tmp_path: Path, shape: list[str]) -> None:
    path = tmp_path / "figure.png"
    arguments = [*SMALL, "--scaling", "dpsgd", "--shape", *shape, "--plot", str(path)]
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert str(path) in out.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*SMALL, "--shape", "valley"], "shape must be one of threshold"),
        ([*SMALL, "--delta", "0"], "delta must be in (0, 1), got 0.0"),
        ([*SMALL, "--delta", "2"], "delta must be in (0, 1), got 2.0"),
        ([*SMALL, "--scaling", "none"], "scaling must be one of paper, dpsgd"),
        ([*SMALL, "--period", "0"], "period must be at least 1, got 0"),
        ([*SMALL, "--simulate", "1"], "runs must be at least 2, got 1"),
        ([*SMALL, "--plot", "figure.txt"], "plot must be a .png"),
        ([*SMALL, "--plot", "/nonexistent/x.png"], "folder that is there, got '/nonexistent/x"),
        ([*SMALL, "--plot", "/dev/null/x.png"], "folder that is there, got '/dev/null/x.png'"),
        ([*SMALL, "--shape", "reading-wells"], "period must be at least 2"),
        (["--noise-multiplier", "0", *SMALL[2:]], "noise_multiplier must be above 0"),
        ([*SMALL[:4], "--steps", "0"], "steps must be at least 1, got 0"),
        (SMALL[:4], "steps"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    run: Run, arguments: list[str], message: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_figure_that_cannot_be_written_costs_no_computation(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dpaudit_paper.landscapes.exact_privacy", lambda *_, **__: pytest.fail("computed")
    )
    (tmp_path / "folder.png").mkdir()
    places = [tmp_path / "folder.png"]
    if Path("/proc/self").is_dir():  # Linux: a folder in which no user can create a file
        places.append(Path("/proc/y.svg"))
    for place in places:
        code, out, err = run(*SMALL, "--plot", str(place))
        assert (code, out) == (2, "")
        assert f"plot must be a file that can be written, got '{place}'" in err
    assert [left.name for left in tmp_path.iterdir()] == ["folder.png"]


def test_the_heading_is_not_cut_off(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = run(*SMALL)
    heading = "threshold landscape, sigma 2, B 2, paper scaling, delta 1e-05"
    assert " ".join(out.split()).startswith(heading)


def test_the_command_imports_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys; sys.argv = ['dpaudit', 'landscape', '--noise-multiplier', '1', "
        "'--batch-size', '2', '--steps', '2', '--json']\n"
        "from dpaudit.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'matplotlib', 'pandas', 'scipy.stats') "
        "if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
