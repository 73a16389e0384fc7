r"""Noise and response of single steps of a training that takes ``steps``.

The canary is inserted in one step only, and outputs after successive numbers of steps are compared.
For a linear optimizer the increment of step :math:`t` is

.. math:: \Delta_t = \sum_{k \le t} H_{tk} (g_k + z_k),

where :math:`H_{tk}`, measured with the canary, holds the learning-rate schedule, momentum and
averaging. Solving for :math:`z_t` gives the noise of every step in units of the largest
contribution to that step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks.arithmetic import centred
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._needs import readable, same_output

STEPS = 6
"""Number of steps at the beginning of a training that are compared with each other."""

_ENOUGH = 2000  # values of noise in every step
_WEAK = 0.01  # a canary with less than this share of its largest effect is not in that step
_LONG = 10.0  # times the clip norm
_FAINT = 0.001  # a learning rate that decays this far leaves nothing to measure


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory:
    """Noise of single steps, in units of the largest contribution to each step.

    Arguments:
        steps: Number of each step, counted from 1.
        noise: Noise of each step: (step, seed, parameter), minus its mean over seeds.
        linked: For how many of the first steps the noise of earlier ones was subtracted.
        persistence: The effect of a contribution on the next step, relative to its own step.
        reaction: How far other examples react to a contribution, in other directions.
    """

    steps: tuple[int, ...]
    noise: Array
    linked: int
    persistence: float
    reaction: float

    @property
    def degrees(self) -> int:
        """Degrees of freedom of the noise of one step."""
        return int((self.noise.shape[1] - 1) * self.noise.shape[2])

    def sizes(self) -> Array:
        """Standard deviation of the noise of each step, in those units."""
        sizes: Array = np.sqrt((self.noise**2).sum(axis=(1, 2)) / self.degrees)
        return sizes

    def correlations(self) -> Array:
        """Correlation of the noise of every two steps."""
        flat = self.noise.reshape(len(self.steps), -1)
        lengths = np.linalg.norm(flat, axis=1)
        return (flat @ flat.T) / np.outer(lengths, lengths)

    def largest_shifted_correlation(self) -> tuple[float, int, int, int]:
        """The largest correlation of two steps at a fixed distance between parameters, cyclically.

        Returns it with the positions of the two steps and the distance.
        """
        size = self.noise.shape[2]
        spectra = np.fft.rfft(self.noise, axis=2)
        lengths = np.sqrt((self.noise**2).sum(axis=(1, 2)))
        best = (0.0, 0, 0, 0)
        for first in range(len(self.steps)):
            for second in range(first + 1, len(self.steps)):
                product = (spectra[first].conj() * spectra[second]).sum(axis=0)
                values = np.fft.irfft(product, size) / (lengths[first] * lengths[second])
                values[0] = 0.0
                place = int(np.abs(values).argmax())
                if abs(values[place]) > abs(best[0]):
                    best = (float(values[place]), first, second, place)
        return best


def trajectory(measured: Measurements) -> Trajectory | str:
    """Measure the first steps and the last one; the reason, as a sentence, if that is impossible.

    The last one is that of the user's own number of steps.
    """
    reason = _cannot(measured)
    if reason:
        return reason
    found: Trajectory | str = measured.once("trajectory", lambda: _measured(measured))
    return found


def _measured(measured: Measurements) -> Trajectory | str:
    last = max(measured.subject.steps, 4)
    first = list(range(1, min(last, STEPS) + 1))
    watched = measured.watched
    late = [step for step in (last // 2, last) if step > len(first) + 1]
    count = max(2, min(8, len(measured.seeds), 1 + -(-_ENOUGH // len(watched))))
    outputs = {
        steps: np.stack(
            [measured.subject.output(None, seed, steps)[watched] for seed in measured.seeds[:count]]
        )
        for steps in {*first, *late, *(step - 1 for step in late)} - {0}
    }
    start = np.zeros_like(outputs[1])
    probe = _Probe(measured)
    effects = np.array([[probe.effect(step, of) for of in first] for step in first])
    own = np.abs(np.diag(effects))
    if own.min() < _WEAK * own.max() or own.max() == 0:
        return (
            "The canary does not take part in every step with a comparable effect, so the noise of "
            "single steps cannot be measured against it."
        )
    noises: list[Array] = []
    for place, step in enumerate(first):
        increment = centred(outputs[step] - outputs.get(step - 1, start))
        for earlier in range(place):
            increment = increment - effects[place, earlier] * noises[earlier]
        noises.append(increment / effects[place, place])
    kept = list(first)
    for step in late:
        effect = probe.effect(step, step)
        if abs(effect) > _FAINT * own.max():
            kept.append(step)
            noises.append(centred(outputs[step] - outputs[step - 1]) / effect)
    return Trajectory(
        steps=tuple(kept),
        noise=np.stack(noises),
        linked=len(first),
        persistence=float(effects[1, 0] / effects[1, 1]),
        reaction=probe.reaction(first[-1]) / float(own.min()),
    )


def _cannot(measured: Measurements) -> str:
    subject = measured.subject
    if not subject.steps_can_vary:
        return "Let train take one more argument, `steps`, and train that many steps."
    if not measured.noise_is_there:
        return "There is no noise in one step."
    reason = same_output(measured) or readable(measured)
    if reason:
        return reason
    if subject.places_per_step is None:
        return (
            "The training does not read the canary in every step: call canary.rows(inserted) "
            "inside the loop, once per step."
        )
    return ""


@final
class _Probe:
    """A dense canary in a single step, long enough to contribute as much as it can."""

    def __init__(self, measured: Measurements) -> None:
        self._measured = measured
        self._gradient = measured.dense(_LONG * measured.subject.clip_norm)
        along = self._gradient[measured.watched]
        self._along = along / np.linalg.norm(along)
        self._moved: dict[tuple[int, int], float] = {}
        self._changes: dict[tuple[int, int], Array] = {}

    def effect(self, step: int, of: int) -> float:
        """Effect on the increment of ``step`` of the largest contribution to step ``of``."""
        if of > step:
            return 0.0
        return self._after(step, of) - (self._after(step - 1, of) if step > of else 0.0)

    def _after(self, steps: int, of: int) -> float:
        if (steps, of) not in self._moved:
            seed = self._measured.seeds[0]
            plus, minus = self._measured.subject.pair(self._gradient, seed, steps, only=of - 1)
            self._changes[steps, of] = (plus - minus)[self._measured.watched] / 2
            self._moved[steps, of] = float(self._changes[steps, of] @ self._along)
        return self._moved[steps, of]

    def reaction(self, last: int) -> float:
        """The largest change of a step by an earlier contribution, across its direction."""
        across = []
        for step in range(2, last + 1):
            for of in range(1, step):
                change = self._changes[step, of] - self._changes[step - 1, of]
                across.append(float(np.linalg.norm(change - (change @ self._along) * self._along)))
        return max(across, default=0.0)
