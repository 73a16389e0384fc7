"""An audit in ten lines: a DP-SGD training, an adversary, and what the final models prove.

python examples/ten_lines.py
"""

from dpaudit.adversaries import SimulatedDimension
from dpaudit.audits import audit
from dpaudit.presets import housing


def main(runs: int = 500) -> None:
    training = housing(noise_multiplier=4.0, steps=250)
    result = audit(training, SimulatedDimension(), runs=runs, delta=1e-5)
    print(result.summary())
    result.plot().savefig("audit.png")


if __name__ == "__main__":
    main()
