"""H1 (ours): what the final model reveals where hiding helps, and where it does not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpaudit.curves import gaussian_epsilon
from dpaudit.report.palette import ADVERSARIES
from dpaudit.upper_bounds import HiddenState, upper_bound
from dpaudit_paper import style
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.landscapes import ReadingWells
from dpaudit_paper.readings import DELTA, mu_by_moments, readings
from dpaudit_paper.table import Row, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.setting import Setting

PERIODS = (1, 5, 25)
SIGMA, INSERTIONS = 4.0, 250
CONVNET = {1: 23.15, 5: 8.25, 25: 3.20}
"""A_GC-R on the ConvNet: the gaussian-dp bounds of F1a, F2a and F2b."""

SERIES = {
    "logistic": ("logistic regression", "o", style.BLUE),
    "softmax-head": ("softmax head", "s", style.GREEN),
    "convnet": ("ConvNet, A_GC-R (F1a, F2a, F2b)", "v", ADVERSARIES["random-dimension"]),
    "crafted-network": ("crafted ReLU network", "D", style.RED),
}

LINES = (
    ("hidden_state", "-", "hidden-state accountant, c = 1"),
    ("accountant", "-.", "standard accountant"),
)


def measure(setting: Setting) -> Table:
    """Audits of the three presets at k = 1, 5 and 25, beside the upper bounds."""
    rows: list[Row] = [
        {"series": "convnet", "period": k, "gaussian_dp": CONVNET[k], **_upper(k, None)}
        for k in PERIODS
    ]
    for name in ("logistic", "softmax-head", "crafted-network"):
        for period in setting.choose(quick=(1, 5), full=PERIODS):
            if name != "crafted-network" or period > 1:
                rows.append(_audited(setting, name, period, 0.0))
    if setting.full:
        rows += [_audited(setting, "logistic", period, 0.01) for period in (5, 25)]
    return Table.of(rows)


def _audited(setting: Setting, name: str, period: int, decay: float) -> Row:
    import dataclasses

    from dpaudit.adversaries import RareFeature
    from dpaudit.audits import audit
    from dpaudit.engine import Speed
    from dpaudit.mechanisms.dpsgd import Insertion
    from dpaudit.presets import preset

    training = preset(name).training(steps=INSERTIONS * period, period=period)
    training = dataclasses.replace(training, weight_decay=decay)
    constant = None if training.smoothness is None else training.smoothness.step_lipschitz(training)
    canaries = setting.choose(quick=1 if constant is None else 16, full=1)
    stored = f"H1 {name} k={period} decay={decay:g} {setting.scale} seed={setting.seed}"
    with setting.playing(stored):
        result = audit(
            training,
            RareFeature(),
            runs=setting.choose(quick=400 if constant is None else 60, full=5000),
            canaries=canaries,
            insertion=Insertion(period=period),
            seed=setting.seed + 1,
            name=stored,
            store=setting.store,
            speed=Speed(device=setting.device),
            progress=setting.progress,
            executor=setting.executor,
        )
    setting.ledger.add(f"{name}, k = {period}, weight decay {decay:g}", result)
    scores = result.scores
    mu = mu_by_moments(scores) or math.nan
    return {
        "series": name,
        "period": period,
        "weight_decay": decay,
        "step_lipschitz": constant,
        "scores": len(scores),
        "mu": mu,
        "standard_error": math.sqrt(4 / len(scores) + mu**2 / (2 * len(scores))),
        **readings(scores, delta=DELTA),
        **_upper(period, constant),
        "exact_chain": _chain(period) if name == "crafted-network" else None,
    }


def _chain(period: int) -> float:
    """The exact epsilon of the cell in which the crafted network's position ends."""
    from dpaudit.models.crafted_network import CraftedDesign
    from dpaudit.presets import preset

    chosen = preset("crafted-network")
    design = CraftedDesign.fitted(
        batch_size=chosen.batch_size,
        learning_rate=chosen.learning_rate,
        clip_norm=chosen.clip_norm,
        noise_multiplier=SIGMA,
    )
    wells = ReadingWells(period=period, width=design.width, unit=design.unit, most=design.most)
    return wells.after(INSERTIONS, noise_multiplier=SIGMA).epsilon(DELTA)


def _upper(period: int, constant: float | None) -> dict[str, str | int | float | None]:
    accountant = gaussian_epsilon(DELTA, math.sqrt(INSERTIONS) / SIGMA)
    if constant is None:
        return {"accountant": accountant, "hidden_state": None, "hidden_state_mu": None}
    bound = upper_bound(
        noise_multiplier=SIGMA,
        steps=INSERTIONS * period,
        delta=DELTA,
        hidden_state=HiddenState(period=period, step_lipschitz=constant),
        accountant="hidden-state-lipschitz",
    )
    return {"accountant": accountant, "hidden_state": bound.epsilon, "hidden_state_mu": bound.mu}


def draw(table: Table) -> Drawing:
    """Lower bounds over the period, between the two upper bounds."""
    figure, (axis,) = style.new_figure(width=style.PAGE, height=3.2)
    plain = [row for row in table if not row["weight_decay"]]
    for place, (name, (label, marker, colour)) in enumerate(SERIES.items()):
        shown = [row for row in plain if row["series"] == name]
        at = [PERIODS.index(int(str(row["period"]))) + 0.08 * (place - 1.5) for row in shown]
        values = [float(str(row["gaussian_dp"])) for row in shown]
        axis.plot(at, values, marker, color=colour, ms=6, linestyle="none", label=label)
    exact = [row for row in plain if row.get("exact_chain") is not None]
    axis.plot(
        [PERIODS.index(int(str(row["period"]))) + 0.12 for row in exact],
        [float(str(row["exact_chain"])) for row in exact],
        "_",
        color=style.RED,
        ms=12,
        label="crafted network, exact chain",
    )
    for place, period in enumerate(PERIODS):
        bounds = _upper(period, 1.0)
        for column, line, label in LINES:
            axis.plot(
                [place - 0.3, place + 0.3],
                [float(str(bounds[column]))] * 2,
                color=style.GREY,
                linestyle=line,
                label=label if place == 0 else None,
                zorder=1,
            )
    axis.set_xticks(range(len(PERIODS)), [f"k = {period}" for period in PERIODS])
    axis.set(ylabel="epsilon at delta = 1e-5", ylim=(0, 26))
    axis.set_title("lower bounds of the audits (gaussian-dp, 95 %) and upper bounds")
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def findings(table: Table) -> str:
    """The audits beside the bounds."""
    parts = []
    for row in table:
        if row["mu"] is None:
            continue
        decay = f" with weight decay {row['weight_decay']:g}" if row["weight_decay"] else ""
        text = (
            f"{row['series']} at k = {row['period']}{decay} proves {row['gaussian_dp']:.2f} "
            f"(assumption-free {row['clopper_pearson']:.2f}, mu {row['mu']:.3f} ± "
            f"{row['standard_error']:.3f}"
        )
        if row.get("exact_chain") is not None:
            text += f"; exact value of its Markov chain {row['exact_chain']:.2f}"
        if row["hidden_state_mu"] is not None:
            ratio = float(str(row["mu"])) / float(str(row["hidden_state_mu"]))
            text += (
                f"; upper bound {row['hidden_state']:.2f}, mu {row['hidden_state_mu']:.3f}, "
                f"ratio {ratio:.3f}"
            )
        parts.append(text + ")")
    upper = table.numbers("accountant")[0]
    return (
        f"The standard accountant says {upper:.3f} at every k. "
        + "; ".join(parts)
        + ". What follows the plus-minus sign is one standard error. For the convex presets the "
        "audit agrees with the hidden-state accountant, so that this bound is tight. For the "
        "crafted network hiding hardly helps."
    )


FIGURE = Figure(
    id="H1",
    title="does hiding help? convex presets and a crafted network",
    label="",
    quick=Cost(cpu=110, gpu=60),
    full=Cost(cpu=None, gpu=180),
    measure=measure,
    draw=draw,
    findings=findings,
)
