"""The scores of a seed do not change between versions.

Each adversary plays the easy training at noise multiplier 1, 20 runs and seed 3 on the CPU. The sum
of all scores and the first score are those of version 0.1. On one machine they are equal bit for
bit; another processor may round differently.
"""

from __future__ import annotations

import pytest

from dpaudit import audit
from dpaudit.adversaries import ADVERSARIES
from dpaudit.engine import Speed
from dpaudit.testing import easy_training

SCORES = {
    "random-dimension": (10.402182817459106, 0.6219860315322876),
    "simulated-dimension": (3.942548304796219, 0.21255674958229065),
    "random-direction": (7.629908114671707, 0.4438946545124054),
    "flipped-label": (-19.338245153427124, -0.6594843864440918),
    "clipbkd": (8.907865270972252, 0.6671731472015381),
    "api-access": (-6.515850141644478, -0.2033032923936844),
    "static-poisoning": (-75.20109343528748, -3.0822412967681885),
    "intermediate-poisoning": (-44.234612345695496, -1.7935669422149658),
    "adaptive-poisoning": (-13.27859878540039, -0.22358238697052002),
    "gradient-attack": (250.42629754543304, 16.816804885864258),
    "malicious-data": (195.93846425414085, 22.343517303466797),
    "canife": (326.9750556945801, 16.752099990844727),
    "dirac-gradient": (213.63856506347656, 17.58919906616211),
    "one-shot-iterates": (10.268416196107864, 0.5809003114700317),
    "one-run-black-box": (4.736714601516724, 0.5442636013031006),
    "one-run-white-box": (624.1309604644775, 37.31916046142578),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_of_a_seed(name: str) -> None:
    speed = Speed(device="cpu", compile=False, workers=1)
    training = easy_training(noise_multiplier=1.0)
    scores = audit(training, ADVERSARIES[name], runs=20, seed=3, speed=speed).scores.score
    assert (scores.sum(), scores[0]) == pytest.approx(SCORES[name], rel=1e-4)
