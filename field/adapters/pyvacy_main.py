"""PyVacy's main branch: micro-batches of one record, and of several."""

import torch
from field.kit import case
from field.parts import BATCH, CLIP, SIGMA, check_step, flat, linear_model, seed_everything
from pyvacy.optim.dp_optimizer import DPSGD
from pyvacy.sampling import get_data_loaders


def step_with(microbatch):
    def step(gradients, seed):
        seed_everything(seed)
        model = linear_model()
        optimizer = DPSGD(CLIP, SIGMA, BATCH, microbatch, params=model.parameters(), lr=1.0)
        rows = torch.as_tensor(gradients, dtype=torch.float32)
        _, micro_loader = get_data_loaders(BATCH, microbatch, 1)
        optimizer.zero_grad()
        model(torch.zeros(1, rows.shape[1])).sum().backward()  # so that every gradient exists
        for piece in micro_loader(rows):
            optimizer.zero_microbatch_grad()
            model(piece).mean().backward()
            optimizer.microbatch_step()
        optimizer.step()
        return flat(model.parameters())

    return step


@case("micro-batches of one record", claims="noise multiplier 1, clip norm 1")
def one_record():
    return check_step(step_with(1))


@case(
    "micro-batches of four records",
    claims="noise multiplier 1, clip norm 1, for adding a record",
    expected="broken",
    cause="pyvacy/sampling/batch_samplers.py: records are cut into micro-batches by place, so "
    "that one more record shifts all later ones into other micro-batches; every clipped mean "
    "changes, not one. `drop_last` also drops up to three records of a batch.",
    class_of_bug="a torch optimizer: micro-batches shift when a record is added",
)
def four_records():
    return check_step(step_with(4))
