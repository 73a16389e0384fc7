"""The figures of docs/choosing-a-bound.md: all methods on the same scores, and the power of a test.

    OMP_NUM_THREADS=1 python benchmarks/choosing_a_bound.py

The first figure takes half a minute on one core; the others draw what benchmarks/coverage.py
stored.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from dpaudit import Scores, estimate, upper_bound
from dpaudit.lower_bounds import ErrorCounts

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "mathematics"))
from families import Gaussian

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"
COVERAGE = ROOT / "benchmarks" / "coverage.json"
DELTA, CANARIES, AUDITS = 1e-5, 5000, 50

# What clopper-pearson proves when 2,500 scores a side are separated without one error.
SEPARATED = ErrorCounts.given(
    true_positives=CANARIES // 2, false_negatives=0, false_positives=0, true_negatives=CANARIES // 2
)
CEILING = estimate(SEPARATED, delta=DELTA, method="clopper-pearson").epsilon
CEILING_WORDS = "most that clopper-pearson can prove, 2,500 a side"

# Okabe and Ito's colours; markers say the same again.
BLUE, ORANGE, GREEN, PINK, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555"


@final
@dataclass(frozen=True)
class Kind:
    """What a group of methods rests on, and how it is drawn."""

    words: str
    colour: str
    marker: str


FREE = Kind("no assumption on the scores", BLUE, "o")
NORMAL = Kind("assumes a Gaussian trade-off curve", ORANGE, "s")
APPROXIMATE = Kind("credible or asymptotic", GREEN, "^")
INVALID = Kind("threshold chosen on the same scores", PINK, "x")

CONTESTANTS: tuple[tuple[str, str, Kind], ...] = (
    ("gaussian-fit", "pilot", NORMAL),
    ("gaussian-dp", "pilot", NORMAL),
    ("gaussian-dp", "simultaneous", NORMAL),
    ("one-run-fdp", "pilot", NORMAL),
    ("profile", "simultaneous", FREE),
    ("clopper-pearson", "simultaneous", FREE),
    ("clopper-pearson", "pilot", FREE),
    ("one-run", "pilot", FREE),
    ("joint-beta", "pilot", APPROXIMATE),
    ("jeffreys", "pilot", APPROXIMATE),
    ("bailey", "pilot", APPROXIMATE),
    ("katz-log", "pilot", APPROXIMATE),
    ("adjusted-log", "pilot", APPROXIMATE),
    ("inverse-sinh", "pilot", APPROXIMATE),
    ("gaussian-dp", "best", INVALID),
    ("clopper-pearson", "best", INVALID),
)
# (mu, noise multiplier and steps that give it)
MECHANISMS = ((1.0, 1.0, 1), (250**0.5 / 4, 4.0, 250))


def label(method: str, rule: str) -> str:
    plain = method.startswith("one-run") or method in ("gaussian-fit", "profile")
    return method if plain else f"{method}, {rule}"


def measure(mu: float) -> dict[str, np.ndarray]:
    """Every contestant's bounds on the same audits: fair coins, so that one-run is valid too."""
    random = np.random.default_rng(20)
    values: dict[str, list[float]] = {}
    for audit in range(AUDITS):
        coins = random.random(CANARIES) < 0.5
        scores = Scores(score=Gaussian(mu).draw(coins, random), inserted=coins)
        for method, rule, _ in CONTESTANTS:
            bound = estimate(scores, delta=DELTA, method=method, threshold=rule, seed=audit)
            values.setdefault(label(method, rule), []).append(bound.epsilon)
    return {name: np.array(each) for name, each in values.items()}


def draw_all_methods(plt: Any) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 5.4), sharey=True, layout="constrained")
    places = np.arange(len(CONTESTANTS))[::-1]
    for axis, (mu, noise, steps) in zip(axes, MECHANISMS, strict=True):
        values = measure(mu)
        for place, (method, rule, kind) in zip(places, CONTESTANTS, strict=True):
            low, middle, high = np.quantile(values[label(method, rule)], (0.05, 0.5, 0.95))
            print(f"mu = {mu:.4f}, {label(method, rule)}: {low:.2f} {middle:.2f} {high:.2f}")
            axis.plot([low, high], [place, place], color=kind.colour, lw=2, alpha=0.5)
            axis.plot(middle, place, kind.marker, color=kind.colour, ms=6, mew=1.8)
        for accountant, style, name in (
            ("gaussian", "-", "exact = accountant (Gaussian, PLD)"),
            ("rdp", ":", "accountant (RDP)"),
        ):
            above = upper_bound(
                noise_multiplier=noise, steps=steps, delta=DELTA, accountant=accountant
            ).epsilon
            axis.axvline(above, color=GREY, linestyle=style, lw=1.2, label=name)
            print(f"mu = {mu:.4f}, {accountant}: {above:.4f}")
        highest = above  # RDP's
        if highest > CEILING:
            axis.axvline(CEILING, color=BLUE, linestyle="-.", lw=1, label=CEILING_WORDS)
        axis.set_title(f"mu = {mu:.4g}", fontsize=10)
        axis.set_xlabel("epsilon at delta = 1e-5")
        axis.set_xlim(0, 1.03 * highest)
        axis.grid(axis="x", color="#dddddd", lw=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(left=False)
    axes[0].set_yticks(places, [label(method, rule) for method, rule, _ in CONTESTANTS])
    for text, (_, _, kind) in zip(axes[0].get_yticklabels(), CONTESTANTS, strict=True):
        text.set_color(kind.colour)
    handles = [
        plt.Line2D([], [], color=kind.colour, marker=kind.marker, lw=2, label=kind.words)
        for kind in (NORMAL, FREE, APPROXIMATE, INVALID)
    ]
    handles += axes[1].get_legend_handles_labels()[0]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    save(figure, "all_methods")


def draw_power(plt: Any) -> None:
    """Power of the test of a claim against the number of scores, from the stored benchmark."""
    rows = json.loads(COVERAGE.read_text())["claims"]
    claims = ("1-GDP", "2-GDP", "3.95-GDP")
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
    for axis, claim in zip(axes, claims, strict=True):
        for noise, colour in ((0.9, BLUE), (0.8, ORANGE), (0.7, GREEN)):
            for test, style in (("test_claim", "-"), ("gaussian-dp", ":")):
                epsilons = sorted(
                    (row["each"], 100 * row["alarms"] / row["audits"])
                    for row in rows
                    if (row["claim"], row["noise"], row["test"]) == (claim, noise, test)
                )
                axis.plot(
                    *zip(*epsilons, strict=True), style, color=colour, marker=".", ms=5, lw=1.6
                )
        axis.set_xscale("log")
        axis.set_title(f"claim: {claim}", fontsize=10)
        axis.set_xlabel("scores a side")
        axis.grid(color="#dddddd", lw=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("alarms, per cent")
    handles = [
        plt.Line2D([], [], color=colour, label=f"noise {words} % too small")
        for words, colour in (("10", BLUE), ("20", ORANGE), ("30", GREEN))
    ]
    handles += [
        plt.Line2D([], [], color=GREY, label="test_claim, no assumption"),
        plt.Line2D(
            [], [], color=GREY, linestyle=":", label="gaussian-dp bound above the claimed epsilon"
        ),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    save(figure, "claim_power")


def draw_false_claims(plt: Any) -> None:
    """False claims of the threshold rules, from the stored benchmark."""
    rows = json.loads(COVERAGE.read_text())["rows"]
    panels = (
        ("gaussian-dp, Gaussian, mu = 1", "Gaussian, mu = 1", "gaussian-dp"),
        ("gaussian-dp, Gaussian, mu = 3.95", "Gaussian, mu = 3.95", "gaussian-dp"),
        (
            "clopper-pearson, two-point mixture",
            "two-point mixture, epsilon = 1",
            "clopper-pearson",
        ),
    )
    rules = (("best", PINK, "x"), ("pilot", BLUE, "o"), ("simultaneous", ORANGE, "s"))
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
    for axis, (title, family, method) in zip(axes, panels, strict=True):
        for rule, colour, marker in rules:
            name = {"pilot": method, "simultaneous": f"{method}, simultaneous"}.get(
                rule, f"{method}, {rule}"
            )
            if method == "clopper-pearson" and rule == "simultaneous":
                name = "profile"  # the same number
            cells = sorted(
                (row["each"], row["false_claims"] / row["audits"], row["audits"])
                for row in rows
                if (row["family"], row["contestant"], row["delta"]) == (family, name, DELTA)
            )
            sizes, rates, audits = (np.array(column) for column in zip(*cells, strict=True))
            errors = 3 * np.sqrt(rates * (1 - rates) / audits)
            axis.errorbar(
                sizes, 100 * rates, 100 * errors, color=colour, marker=marker, label=rule, lw=1.4,
                capsize=2,
            )  # fmt: skip
        axis.axhline(5, color=GREY, linestyle="--", lw=1.2)
        axis.set_xscale("log")
        axis.set_xticks([50, 500, 2500], ["50", "500", "2,500"])
        axis.minorticks_off()
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("scores a side")
        axis.grid(axis="y", color="#dddddd", lw=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("false claims, per cent")
    axes[0].set_ylim(bottom=0)
    handles, labels = axes[0].get_legend_handles_labels()
    handles.append(plt.Line2D([], [], color=GREY, linestyle="--"))
    labels.append("5 %: what 95 % confidence allows")
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    save(figure, "false_claims")


def save(figure: Any, name: str) -> None:
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / f"{name}.png", dpi=150, facecolor="white")
    figure.savefig(FIGURES / f"{name}.svg", facecolor="white", metadata={"Date": None})


def main() -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "dpaudit"  # the same figure gives the same file
    import matplotlib.pyplot as plt

    draw_all_methods(plt)
    if COVERAGE.exists():
        draw_power(plt)
        draw_false_claims(plt)


if __name__ == "__main__":
    main()
