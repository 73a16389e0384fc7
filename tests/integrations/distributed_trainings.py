"""What each of two processes does in the test of distributed trainings."""

import importlib.util
import json
import os
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

EXAMPLE = Path(__file__).parents[2] / "examples" / "opacus_distributed.py"

CASES = {
    "ddp": {},
    "ddp, after clipping": {"through_clipping": False},
    "ddp per layer": {"clipping": "per_layer", "max_grad_norm": [1.0] * 4},
    "ddp ghost": {"grad_sample_mode": "ghost", "through_clipping": False},
    "fsdp": {"sharded": True, "through_clipping": False},
}
"""Options of `make_private` and of `insert_canary`."""

INSERTING = ("through_clipping",)


def process(rank: int, world: int, folder: str) -> None:
    """Run every case, and an audit of two runs, in one of ``world`` processes."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # FSDP2 would move the model to a GPU
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world
    )
    spec = importlib.util.spec_from_file_location("opacus_distributed", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    found = {name: _moved(example, dict(options)) for name, options in CASES.items()}
    for name, sharded in (("ddp", False), ("fsdp", True)):
        result = example.audit(sharded=sharded, runs=4)
        found[name]["scores"] = result.scores.score.tolist()
        found[name]["claim"] = result.test.claim.description
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()
    # FSDP keeps the group and its threads alive; ending with them running aborts now and then.
    os._exit(0)


def _moved(example, options: dict) -> dict:
    """How one step without noise differs with and without the canary."""
    from dpaudit.integrations.opacus import canary_for, insert_canary
    from dpaudit.trainings.scoring import flat_parameters

    inserting = {name: options.pop(name) for name in INSERTING if name in options}
    ends, seen = [], []
    for inserted in (False, True):
        training = example.make_private(0, noise_multiplier=0.0, **options)
        canary = canary_for(training[1], seed=2)
        with insert_canary(training[1], canary, inserted, seed=0, **inserting) as gradients:
            example.fit(*training, epochs=1)
        ends.append(flat_parameters(training[0]))
        seen.append(gradients.projections[0, 0])
    moved = (ends[0] - ends[1]) * example.EXAMPLES / 0.1
    return {
        "along": float(moved[canary.dimensions[0]]),
        "length": float((moved**2).sum() ** 0.5),
        "seen": float(seen[1] - seen[0]),
    }
