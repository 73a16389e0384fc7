"""FedML's frames of differential privacy, called as its server and its clients call them."""

import sys
from collections import OrderedDict
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import torch

# The package's own __init__ needs forty other packages; its frames of privacy need none of them.
for package in ("fedml", "fedml.core"):
    bare = ModuleType(package)
    bare.__path__ = list(find_spec(package).submodule_search_locations)
    sys.modules[package] = bare
# The client's hooks also import attacks and homomorphic encryption, which are off by default.
for module, switch in (
    ("security.fedml_attacker", "FedMLAttacker"),
    ("fhe.fhe_agg", "FedMLFHE"),
):
    off = MagicMock()
    getattr(off, switch).get_instance().is_fhe_enabled.return_value = False
    sys.modules[f"fedml.core.{module}"] = off

from fedml.core.alg_frame.client_trainer import ClientTrainer
from fedml.core.dp.fedml_differential_privacy import FedMLDifferentialPrivacy
from fedml.core.dp.frames.dp_clip import DP_Clip
from field.kit import case
from field.parts import CLIP, PARAMETERS, SHAPES, SIGMA, check_step, flat, seed_everything, split

CLIENTS = 16


def tensors(vector):
    return OrderedDict(
        (name, torch.as_tensor(piece)) for name, piece in zip(SHAPES, split(vector), strict=True)
    )


def settings(**options):
    return SimpleNamespace(
        **(
            {
                "clipping_norm": CLIP,
                "noise_multiplier": SIGMA,
                "train_data_num_in_total": CLIENTS,
                "client_num_per_round": CLIENTS,
                "client_num_in_total": CLIENTS,
            }
            | options
        )
    )


def dp_clip_step(updates, seed, clip=CLIP):
    """Clients clip, the server sums and adds noise: what `DP_Clip` returns is the release."""
    seed_everything(seed)
    frame = DP_Clip(settings(clipping_norm=clip))
    zero = tensors(np.zeros(PARAMETERS))
    total = tensors(np.zeros(PARAMETERS))
    for update in updates:
        clipped = frame.add_local_noise(tensors(update), zero)
        for name in total:
            total[name] = total[name] + clipped[name]
    divisor = CLIENTS
    mean = OrderedDict((name, value / divisor) for name, value in total.items())
    return flat(frame.add_noise(mean, divisor).values())


@case(
    "DP_Clip, one round, equal clients",
    claims="noise multiplier 1, clip norm 1 (McMahan et al. 2018)",
    expected="broken",
    cause="core/dp/frames/dp_clip.py: the clip norm is passed to `clip_local_update` as the order "
    "of the norm (line 34), and `compute_noise` divides the scale again for every tensor and "
    "every round (line 50).",
    class_of_bug="a federated library: the scale of the noise is divided again for each tensor",
)
def dp_clip():
    return check_step(dp_clip_step, batch_size=CLIENTS, tensors={"weight": 600, "bias": 20})


@case(
    "a privacy frame chosen by name, local training",
    claims="the chosen frame is applied",
    expected="broken",
    cause="ml/core: only the local frame is asked for in `on_after_local_training` "
    "(client_trainer.py:86: `is_local_dp_enabled` knows only `ldp`), so that clients under "
    "`dp_clip` or `NbAFL` send their updates as they are.",
    class_of_bug="a federated library: a frame is accepted by name and never applied",
)
def frames_never_applied():
    """The client's hook with `dp_clip` enabled: what it sends is what it trained."""

    class Client(ClientTrainer):
        def __init__(self, update):
            super().__init__(model=None, args=None)
            self.update = update

        def get_model_params(self):
            return self.update

        def set_model_params(self, parameters):
            self.update = parameters

        def train(self, train_data, device, args):
            pass

    def step(updates, seed):
        seed_everything(seed)
        FedMLDifferentialPrivacy._dp_instance = None
        FedMLDifferentialPrivacy.get_instance().init(
            settings(enable_dp=True, dp_solution_type="dp_clip", delta=1e-5, ml_engine="torch")
        )
        total = tensors(np.zeros(PARAMETERS))
        for update in updates:
            client = Client(tensors(update))
            client.on_after_local_training(None, None, None)
            for name in total:
                total[name] = total[name] + client.update[name]
        return flat(total.values())

    return check_step(step, batch_size=CLIENTS)


@case(
    "DP_Clip, one round, clip norm 4",
    claims="noise multiplier 1, clip norm 4",
    expected="broken",
    cause="core/dp/frames/dp_clip.py:34 passes the clip norm as `norm_type`: at 4 the norm of "
    "order 4 is clipped, which is smaller than the Euclidean one.",
    class_of_bug="a federated library: the clip norm is used as the order of the norm",
)
def dp_clip_order():
    return check_step(
        lambda updates, seed: dp_clip_step(updates, seed, clip=4.0), batch_size=CLIENTS,
        clip_norm=4.0,
    )  # fmt: skip
