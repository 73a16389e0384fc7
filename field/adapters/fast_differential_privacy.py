"""fast-differential-privacy: book-keeping in its modes, shared weights and empty batches."""

import torch
from fastDP import PrivacyEngine
from field.kit import case
from field.parts import (
    BATCH,
    CLIP,
    PARAMETERS,
    SIGMA,
    check_step,
    flat,
    linear_model,
    seed_everything,
)


class TwoUses(torch.nn.Module):
    """One weight, used twice: the gradient of an example is the sum of both uses."""

    def __init__(self):
        super().__init__()
        self.first = linear_model()
        self.second = linear_model()
        self.second.weight = self.first.weight

    def forward(self, rows):
        return self.first(rows / 2) + self.second(rows / 2)


def step_with(model_of=linear_model, **options):
    def step(gradients, seed):
        seed_everything(seed)
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        settings = {"clipping_fn": "Abadi", "clipping_mode": "MixOpt", "loss_reduction": "sum"}
        engine = PrivacyEngine(
            model,
            batch_size=BATCH,
            sample_size=1000,
            epochs=1,
            noise_multiplier=SIGMA,
            max_grad_norm=CLIP,
            **(settings | options),
        )
        engine.attach(optimizer)
        rows = torch.as_tensor(gradients, dtype=torch.float32)
        model(rows).sum().backward()
        optimizer.step()
        return flat([next(iter(model.parameters()))])

    return step


@case("MixOpt, clipping of Abadi et al.", claims="noise multiplier 1, clip norm 1")
def mixed():
    return check_step(step_with())


@case("ghost clipping of Abadi et al.", claims="noise multiplier 1, clip norm 1")
def ghost():
    return check_step(step_with(clipping_mode="ghost"))


@case("MixOpt, automatic clipping", claims="noise multiplier 1, contributions of norm below 1")
def automatic():
    return check_step(step_with(clipping_fn="automatic"))


@case(
    "a weight that two layers share (tied embeddings)",
    claims="noise multiplier 1, clip norm 1",
    expected="broken",
    cause="fastDP/supported_layers_grad_samplers.py:109 and its other rules: each use of a weight "
    "sets `weight.norm_sample`, so that the norm of an example is that of the last use only, "
    "while its clipped gradient is the sum over all uses.",
    class_of_bug="a clipping library: the norm of a shared weight is that of its last use",
)
def tied():
    return check_step(step_with(TwoUses))


@case(
    "a Poisson batch without records",
    claims="every step of the accountant adds noise",
    expected="broken",
    cause="fastDP/privacy_engine.py:377: noise is added where the first clipped gradient of a "
    "parameter is made; without a backward pass there is no `private_grad`, and `step` moves "
    "nothing (it also removes the parameters from its list for all later steps).",
    class_of_bug="a clipping library: a step with an empty batch adds no noise",
)
def empty_batch():
    """What `step` releases if no record was drawn, under two seeds."""

    def released(seed):
        seed_everything(seed)
        model = linear_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        PrivacyEngine(
            model, batch_size=BATCH, sample_size=1000, epochs=1, noise_multiplier=SIGMA,
            max_grad_norm=CLIP, clipping_fn="Abadi", loss_reduction="sum",
        ).attach(optimizer)  # fmt: skip
        optimizer.step()
        return flat(model.parameters())

    moved = float(abs(released(1)).max()), float(abs(released(2)).max())
    silent = moved == (0.0, 0.0)
    return {
        "status": "broken" if silent else "kept",
        "verdict": "noise of an empty batch",
        "by": f"two steps without records, {PARAMETERS} parameters",
        "broken": [{"rule": "noise in every parameter", "explanation": "No parameter moved."}]
        if silent
        else [],
    }
