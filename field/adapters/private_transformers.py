"""private-transformers: its engine on a model that is a single layer."""

import torch
from field.kit import case
from field.parts import BATCH, CLIP, SIGMA, check_step, flat, linear_model, seed_everything
from private_transformers import PrivacyEngine


def step_with(clipping_mode):
    def step(gradients, seed):
        seed_everything(seed)
        model = linear_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        engine = PrivacyEngine(
            model,
            batch_size=BATCH,
            sample_size=1000,
            epochs=1,
            max_grad_norm=CLIP,
            noise_multiplier=SIGMA,
            clipping_mode=clipping_mode,
            skip_checks=True,
        )
        engine.attach(optimizer)
        rows = torch.as_tensor(gradients, dtype=torch.float32)
        optimizer.step(loss=model(rows)[:, 0])
        return flat(model.parameters())

    return step


@case("per-example gradients", claims="noise multiplier 1, clip norm 1")
def default():
    return check_step(step_with("default"))


@case("ghost clipping", claims="noise multiplier 1, clip norm 1")
def ghost():
    return check_step(step_with("ghost"))
