"""What a crafted loss landscape keeps of one gradient: three landscapes, one process.

python examples/landscape.py
"""

from __future__ import annotations

from dpaudit.lower_bounds import estimate
from dpaudit_paper.landscapes import (
    LandscapeProcess,
    Threshold,
    decision_point,
    exact_privacy,
    fitted_wells,
    simulate,
)


def main() -> None:
    process = LandscapeProcess(
        noise_multiplier=1, batch_size=8, steps=25, scaling="paper", landscape=Threshold()
    )
    shapes = {
        "threshold at C/2": Threshold(),
        "threshold at the decision point": Threshold(at=decision_point(process)),
        "wells": fitted_wells(process),
    }
    print(f"{'landscape':<34}{'exact':>8}{'GDP rule':>10}{'audited':>9}")
    for name, landscape in shapes.items():
        chosen = process.with_landscape(landscape)
        exact = exact_privacy(chosen, delta=1e-5)
        scores = simulate(chosen, runs=100_000)
        audited = estimate(scores, delta=1e-5)
        print(
            f"{name:<34}{exact.epsilon[-1]:>8.4f}{exact.gdp_rule[-1]:>10.4f}{audited.epsilon:>9.4f}"
        )
    print(f"{'accountant':<34}{exact.accountant:>8.4f}")


if __name__ == "__main__":
    main()
