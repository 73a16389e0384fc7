"""Every figure and table of the paper keeps the contract: it measures, it draws, it tells."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from dpaudit.adversaries import StartDistribution
from dpaudit.errors import InvalidInput
from dpaudit.threat_models import CraftedDimensions, HiddenStateView
from dpaudit_paper import FIGURES, Setting, Table, redraw, start_distributions
from dpaudit_paper.testing import check_figure
from dpaudit_paper.trainings import Trainings

RESULTS = Path(__file__).parent.parent.parent / "results"

# The paper's figures and tables by their LaTeX labels, in its order; its algorithms are not here.
LABELS = (
    "fig:k1_sub1",
    "fig:k1_sub2",
    "fig:low_dim_k=1",
    "fig:k5_sub1",
    "fig:k25_sub2",
    "fig:auditing_t=2",
    "fig:amplification_rate",
    "tabel:related_work",
    "fig:low_dim_k=1_all_techniques",
    "fig:a_gc_s_vs_a_gc_r",
    "table:hyperparameters",
    "fig:ourapproximationsection5",
    "fig:approximation",
    "fig:threshold_search",
    "fig:a_cots_sparse",
    "fig:sensitivity_of_anomalies",
    "fig:adg_syntethic_example",
    "fig:privacy_profile",
    "fig:unknown_init",
    "fig:finetuning",
    "fig:detailed_results_6",
)
TRAINED = (
    "F1a",
    "F1b",
    "F1c",
    "F2a",
    "F2b",
    "A1",
    "A2",
    "A3a",
    "A5",
    "A6",
    "A8",
    "A9",
    "A10",
    "P1",
)
PARTLY_ON_A_GPU = ("F1a", "F2a", "F2b", "A2", "A6", "A9")
CASES = [
    *((name, "full", True) for name in TRAINED),
    *((name, "quick", False) for name in TRAINED if name != "F1b"),
    *((name, "full", False) for name in PARTLY_ON_A_GPU),
]
THINNED = ("A3a",)  # the number of its rows depends on the scores
CHEAP = ("T1", "T2", "A7")


def test_every_figure_of_the_paper_is_here_in_its_order():
    assert tuple(figure.label for figure in FIGURES.values() if figure.label) == LABELS


def test_names_titles_and_costs_are_complete():
    for name, figure in FIGURES.items():
        assert figure.id == name
        assert re.fullmatch(r"[FATPH]\d+[a-c]?", name)
        assert figure.title
        for cost in (figure.quick, figure.full):
            assert cost.gpu > 0
            assert cost.cpu is None or cost.cpu > 0


def test_all_at_full_scale_fit_in_ninety_minutes_of_a_gpu():
    assert sum(figure.full.gpu for figure in FIGURES.values()) <= 90 * 60


def test_all_that_need_no_gpu_fit_in_twenty_five_minutes_of_two_cores():
    quick = [figure.quick.cpu for figure in FIGURES.values() if figure.quick.cpu is not None]
    assert sum(quick) <= 25 * 60


@pytest.mark.parametrize(("name", "scale", "gpu"), CASES)
def test_figures_of_trainings_are_measured_and_drawn(name, scale, gpu, not_trained, monkeypatch):
    monkeypatch.setattr(Setting, "on_gpu", property(lambda self: gpu))
    figure = FIGURES[name]
    setting = Setting(scale=scale)
    table = Table.from_csv(figure.measure(setting).to_csv())
    check_figure(figure, table)
    assert bool(setting.ledger.audits)
    # What is left out is said; with a GPU nothing is.
    left_out = scale == "full" and not gpu
    assert bool(setting.ledger.left_out) == left_out or (scale == "quick" and not gpu)


@pytest.mark.parametrize("name", TRAINED)
def test_committed_rows_are_those_that_the_command_makes(name, not_trained, monkeypatch):
    monkeypatch.setattr(Setting, "on_gpu", property(lambda self: True))
    made = Table.from_csv(FIGURES[name].measure(Setting(scale="full")).to_csv())
    there = Table.read(RESULTS / f"{name}.csv")
    assert there.columns == made.columns
    facts = {"panel", "series", "protocol", "period", "clip_norm", "runs", "canaries", "steps"}
    rows = [
        sorted(str([row[fact] for fact in sorted(facts & set(table.columns))]) for row in table)
        for table in (there, made)
    ]
    assert name in THINNED or rows[0] == rows[1]


@pytest.mark.parametrize("name", CHEAP)
def test_the_cheapest_are_really_measured(name):
    check_figure(FIGURES[name], FIGURES[name].measure(Setting(scale="quick")))


def committed():
    return sorted(path.stem for path in RESULTS.glob("*.csv"))


def test_results_of_every_figure_are_committed():
    assert set(committed()) == set(FIGURES)


@pytest.mark.parametrize("name", committed())
def test_committed_results_can_be_drawn_again(name, tmp_path):
    for ending in ("csv", "json"):
        source = RESULTS / f"{name}.{ending}"
        (tmp_path / source.name).write_bytes(source.read_bytes())
    made = redraw(FIGURES[name], tmp_path)
    assert made.outcome == "redrawn"
    assert {path.suffix for path in made.files} == {".csv", ".json", ".pdf", ".png", ".svg"}


@pytest.mark.parametrize("name", committed())
def test_committed_results_say_how_they_were_made(name):
    facts = json.loads((RESULTS / f"{name}.json").read_text("utf8"))
    assert facts["id"] == name
    assert {"seed", "seconds", "device", "versions", "audits", "left_out_without_gpu"} <= set(facts)
    assert {"dpaudit", "python", "numpy"} <= set(facts["versions"])
    assert facts["scale"] == "full"
    assert not facts["left_out_without_gpu"]


def test_a_name_in_the_store_distinguishes_trainings():
    from dpaudit.adversaries import RandomDimension, SimulatedDimension

    base = Trainings(preset="convnet", adversary=RandomDimension(), runs=2)
    others = (
        dataclasses.replace(base, **{name: value})
        for name, value in {
            "preset": "resnet18",
            "adversary": SimulatedDimension(),
            "runs": 4,
            "canaries": 7,
            "period": 5,
            "clip_norm": 2.0,
            "seed": 1,
            "insertions": 100,
            "weights": "xavier",
            "known_start": False,
            "examples": 10,
        }.items()
    )
    names = [base.name_at("float32"), base.name_at("tf32"), *(o.name_at("float32") for o in others)]
    assert len(set(names)) == len(names)


def with_unknown_start(rule):
    trainings = Trainings(
        preset="convnet",
        adversary=start_distributions.RandomBias(),
        runs=1,
        weights=rule,
        known_start=False,
    )
    return trainings.mechanism(None)


@pytest.mark.parametrize("rule", ["xavier", "kaiming"])
def test_canaries_on_biases_start_at_zero_under_every_seed(rule, not_trained):
    from dpaudit.engine.starting_points import initial_parameters
    from dpaudit.mechanisms.dpsgd import Insertion

    mechanism = with_unknown_start(rule)
    crafted = start_distributions.RandomBias().craft(mechanism, Insertion(), canaries=236, seed=0)
    assert len(set(crafted.dimensions.tolist())) == 236
    starts = initial_parameters(mechanism, seed=0, runs=torch.arange(3))
    assert not starts[:, crafted.dimensions].any()
    assert not torch.equal(starts[0], starts[1])
    with pytest.raises(InvalidInput, match="236"):
        start_distributions.RandomBias().craft(mechanism, Insertion(), canaries=237, seed=0)


def largest_layer(mechanism):
    """The places of the weights of the ConvNet's largest layer in the flat model."""
    from dpaudit.engine.starting_points import known_model

    first = 0
    for _, value in known_model(mechanism).named_parameters():
        if value.shape == start_distributions.FANS[::-1]:
            return np.arange(first, first + value.numel())
        first += value.numel()
    raise AssertionError("no such layer")


@pytest.mark.parametrize("rule", ["xavier", "kaiming"])
def test_the_distribution_of_the_start_is_that_of_torch(rule, not_trained):
    from dpaudit.engine.starting_points import initial_parameters

    mechanism = with_unknown_start(rule)
    width = start_distributions.half_width(rule, *start_distributions.FANS)
    starts = initial_parameters(mechanism, seed=0, runs=torch.arange(2))
    weights = starts[:, largest_layer(mechanism)].abs()
    assert 0.999 * width < weights.max() <= width + 1e-7


def test_the_score_of_an_unknown_start_is_the_exact_likelihood_ratio(not_trained):
    """The adversary learns the distribution from drawn models; here it is known in closed form."""
    mechanism = with_unknown_start("xavier")
    width = start_distributions.half_width("xavier", *start_distributions.FANS)
    moved, noise = start_distributions.moved_and_noise(250)
    values = np.array([0.0, width, width + moved, -width - noise, width + moved + 2 * noise])
    weight = int(largest_layer(mechanism)[7])
    size = sum(value.numel() for value in mechanism.build_model().parameters())
    final = torch.zeros(len(values), size)
    final[:, weight] = -torch.from_numpy(values).float()  # descent moves a parameter down
    view = HiddenStateView(mechanism=mechanism, steps=250, initial=None, final=final)
    canaries = CraftedDimensions(dimensions=torch.tensor([weight]), norm=1.0)
    found = StartDistribution().score(view, canaries)[:, 0].numpy()

    def log_density(at):
        return np.log(ndtr((width - np.abs(at)) / noise) - ndtr((-width - np.abs(at)) / noise))

    assert found == pytest.approx(log_density(values - moved) - log_density(values), abs=0.3)


def test_the_exact_epsilon_of_a_weight_with_a_known_start_is_the_accountants(monkeypatch):
    monkeypatch.setattr(start_distributions, "FANS", (10**10, 1))
    assert start_distributions.exact_epsilon("xavier", 250) == pytest.approx(23.995, abs=0.01)
    monkeypatch.setattr(start_distributions, "FANS", (400, 120))
    # Counted from simulated weights: the share beyond the edge, less what noise alone puts there.
    random = np.random.default_rng(0)
    moved, noise = start_distributions.moved_and_noise(250)
    width = start_distributions.half_width("xavier", 400, 120)
    drawn = random.uniform(-width, width, 10**6) + random.normal(0, noise, 10**6)
    delta = 0.05
    monkeypatch.setattr(start_distributions, "DELTA", delta)
    epsilon = start_distributions.exact_epsilon("xavier", 250)
    thresholds = np.linspace(width, width + 2 * noise, 50)
    found = max(
        np.log(max((drawn + moved > at).mean() - delta, 1e-9) / (drawn > at).mean())
        for at in thresholds
    )
    assert found == pytest.approx(epsilon, abs=0.15)


def test_h1_shows_the_bounds_of_the_convnet_in_the_other_figures():
    shown = Table.read(RESULTS / "H1.csv").where(series="convnet")
    for name, period in (("F1a", 1), ("F2a", 5), ("F2b", 25)):
        table = Table.read(RESULTS / f"{name}.csv")
        rows = table.where(model="convnet", adversary="A_GC-R", clip_norm=1.0, steps=250 * period)
        bound = shown.where(period=period).number("gaussian_dp")
        assert rows.number("gaussian_dp") == pytest.approx(bound, abs=0.005)
