"""APPFL: its output perturbation of a model, as its trainers call it after a round."""

import math

import torch
from appfl.privacy import gaussian_mechanism_output_perturb
from field.kit import case
from field.parts import check_step, flat, linear_model, seed_everything

EPSILON, DELTA = 1.0, 1e-5
MULTIPLIER = math.sqrt(2 * math.log(1.25 / DELTA)) / EPSILON


def step_with(clip):
    def step(updates, seed):
        seed_everything(seed)
        model = linear_model()
        (update,) = updates
        with torch.no_grad():
            model.weight += torch.as_tensor(update, dtype=torch.float32)
            if clip:
                model.weight *= min(1.0, 1.0 / max(float(model.weight.norm()), 1e-12))
        state = gaussian_mechanism_output_perturb(model, 1.0, EPSILON, DELTA)
        return flat(state.values())

    return step


@case(
    "Gaussian output perturbation of an update that the user clipped",
    claims="the noise of the classical formula at epsilon 1, delta 1e-5",
)
def clipped_by_the_user():
    return check_step(
        step_with(clip=True), batch_size=1, noise_multiplier=MULTIPLIER, fixed_batch_size=True,
        finite_gradients=True,
    )  # fmt: skip
