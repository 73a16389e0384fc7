"""An audit in ten lines: a DP-SGD training, an adversary, and what the final models prove.

python examples/ten_lines.py
"""

import dpaudit


def main(runs: int = 500) -> None:
    training = dpaudit.presets.housing(noise_multiplier=4.0, steps=250)
    adversary = dpaudit.adversaries.SimulatedDimension()
    result = dpaudit.audit(training, adversary, runs=runs, delta=1e-5)
    print(result.summary())
    result.plot().savefig("audit.png")


if __name__ == "__main__":
    main()
