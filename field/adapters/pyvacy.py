"""PyVacy as it is on the package index: one clipping for the whole batch."""

import torch
from field.kit import case
from field.parts import BATCH, CLIP, SIGMA, check_step, flat, linear_model, seed_everything
from pyvacy.optim.dp_optimizer import DPSGD


@case(
    "DPSGD",
    claims="differentially private SGD with noise multiplier 1 and clip norm 1",
    expected="broken",
    cause="pyvacy/optim/dp_optimizer.py: `step` clips the gradient of the whole batch, not that "
    "of each example, and the deviation of the noise is divided by the root of the batch size.",
    class_of_bug="a torch optimizer: the gradient of the batch is clipped, not of each example",
)
def batch_is_clipped():
    def step(gradients, seed):
        seed_everything(seed)
        model = linear_model()
        optimizer = DPSGD(CLIP, SIGMA, BATCH, params=model.parameters(), lr=1.0)
        model(torch.as_tensor(gradients, dtype=torch.float32)).mean().backward()
        optimizer.step()
        return flat(model.parameters())

    return check_step(step)
