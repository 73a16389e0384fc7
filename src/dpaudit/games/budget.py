"""How many runs to train together, and whether compilation and several processes are worthwhile.

These are estimates: a tile that does not fit in memory is halved while it is played.
"""

from __future__ import annotations

import math
import os
import pickle
from dataclasses import dataclass, replace
from typing import final

import torch

from dpaudit._cores import cores
from dpaudit.engine.checking import Checked
from dpaudit.engine.clipped_sums import Call, ClippedSums
from dpaudit.engine.fused import can_build, fused_widths
from dpaudit.engine.layer_rules import rules
from dpaudit.engine.speed import Speed
from dpaudit.engine.starting_points import as_tensor, known_model, trainable
from dpaudit.engine.training import batch_table, fastest_convolutions
from dpaudit.errors import InvalidInput
from dpaudit.executors import Capacity
from dpaudit.games.game import Game
from dpaudit.threat_models import AdaptiveAdversary, CanaryPoints, StandardAdversary

CACHE = 4 * 2**20
"""Bytes of one tile on a CPU, so that it fits in the cache, which is several times faster."""

GPU_SHARE = 0.5
GPU_BYTES = 32 * 2**30
UNKNOWN_GPU_BYTES = 8 * 2**30
MOST_RUNS = 8192

TILES_PER_WORKER = 16
"""Tiles on a cluster: with fewer, workers wait for stragglers; with more, tiles cost too much.

See ``benchmarks/scale.py simulate``.
"""

EAGER_RATE = {"cpu": 0.6e9, "cuda": 5e12}
"""Operations per second without compilation, measured on the paper's models; one core of a CPU."""

WORTH_COMPILING = {"cpu": 60.0, "cuda": 20.0}
"""Seconds of uncompiled training from which compilation is worthwhile."""

FUSED_TILES = 10
"""Tiles of a game with the fused step, which needs little memory: enough to show progress."""

WORTH_WORKERS = 60.0
"""Seconds of uncompiled training on one core from which several processes are worthwhile."""


@final
@dataclass(frozen=True, kw_only=True)
class Cost:
    """The estimated cost of one run.

    Arguments:
        bytes: Memory during the training.
        operations: Multiplications and additions of the whole training.
        fused: Whether the fused step can be used.
    """

    bytes: int
    operations: float
    fused: bool = False


def cost(game: Game, checked: Checked, speed: Speed) -> Cost:
    """Estimate the cost of one run."""
    mechanism = game.mechanism
    plan = batch_table(mechanism.batches, mechanism.steps, len(mechanism.data))
    examples = plan.width
    if isinstance(game.canaries, CanaryPoints):
        examples += game.canaries.count
    examples *= 1 if mechanism.augmentation is None else mechanism.augmentation.views
    held = min(examples, speed.virtual_batch or examples)
    template = known_model(mechanism)
    probe = as_tensor(mechanism.data.features[:1])
    probe = probe.to(trainable(template)[0].dtype) if probe.is_floating_point() else probe
    model = ClippedSums(
        template, mechanism.loss, probe, rules(convolutions="library"), checked.taps
    )
    # The kernels need no patches.
    kernels = (
        torch.cuda.is_available() and fastest_convolutions(template, game.runs, speed) == "kernels"
    )
    numbers = sum(_numbers(model, call, patches=not kernels) for call in model.calls) * held
    operations = sum(_operations(model, call) for call in model.calls) * examples
    unruled = sum(model.sizes[place] for place in model.loose)
    numbers += 4 * unruled * held
    operations += 6 * unruled * examples
    bits = torch.finfo(speed.product_dtype).bits * numbers
    slots = mechanism.optimizer.slots + (mechanism.averaging is not None)
    slots += 0 if mechanism.correlation is None else mechanism.correlation.memory
    states = 6 + 2 * slots
    if isinstance(game.adversary, StandardAdversary):
        states += 2 * (game.horizons[-1] + 1)
    bits += torch.finfo(speed.dtype).bits * states * sum(model.sizes)
    return Cost(
        bytes=bits // 8,
        operations=float(operations) * game.horizons[-1],
        fused=not isinstance(game.adversary, AdaptiveAdversary)
        and fused_widths(mechanism, speed, checked.taps) is not None,
    )


def settle(game: Game, speed: Speed, price: Cost, capacity: Capacity | None = None) -> Speed:
    """``speed`` with every open choice made, for runs that cost ``price`` each.

    Store the result with an audit: scores depend on the tile size by rounding, and the free memory
    may differ when the audit is resumed. Tiles fit the smallest GPU that may play.
    """
    device = device_of(speed, capacity)
    seconds = price.operations * game.runs / EAGER_RATE[device.type]
    compiled, fusable = speed.compile, price.fused and device.type == "cpu"
    if compiled == "auto":
        compiled = seconds > WORTH_COMPILING[device.type]
        # Shorter games keep torch's step, which rounds as in earlier versions, bit for bit.
        if compiled and fusable and can_build():
            compiled = "fused"
    elif compiled == "fused" and not fusable:
        raise InvalidInput(
            "compile is 'fused', which needs a small fully connected network trained by plain "
            "DP-SGD in float32 on a CPU; use compile='auto'"
        )
    if capacity is not None:
        places = workers = capacity.tiles
        fewest = TILES_PER_WORKER * places
    else:
        places = cores() if device.type == "cpu" else len(gpus(device))
        workers = speed.workers or 0
        if workers == 0:
            # The fused step has a thread for each core.
            worth = device.type != "cpu" or (seconds > WORTH_WORKERS and compiled != "fused")
            workers = places if places > 1 and worth and can_be_sent(game) else 1
        fewest = 1 if device.type == "cpu" else workers
    size = speed.tile_size
    if size is None:
        sharing = 1 if device.type == "cpu" else math.ceil(workers / places)
        room = _memory(device, capacity) // sharing // price.bytes
        # Every worker has tiles, and no tile at the end is small.
        if compiled == "fused":
            room, fewest = MOST_RUNS, max(fewest, FUSED_TILES)
        tiles = max(math.ceil(game.runs / max(1, min(MOST_RUNS, room))), fewest)
        size = math.ceil(game.runs / tiles)
    size = min(size, game.runs)
    tiles = math.ceil(game.runs / size)
    return replace(
        speed.settled(device), tile_size=size, workers=min(workers, tiles), compile=compiled
    )


def device_of(speed: Speed, capacity: Capacity | None) -> torch.device:
    """The device that plays: the one asked for, of this machine or of an executor's machines."""
    if capacity is None or capacity.device is None:
        return speed.torch_device()
    asked = capacity.device if speed.device == "auto" else speed.device
    if asked.partition(":")[0] == "cuda" and capacity.device == "cpu":
        raise InvalidInput(
            f"device is {speed.device!r}, but the executor reserves no GPU for a tile; give "
            "gpus_per_tile"
        )
    return torch.device("cpu" if asked == "cpu" else "cuda")


def gpus(device: torch.device) -> tuple[str, ...]:
    """The GPUs that a device stands for, as values of ``CUDA_VISIBLE_DEVICES``; one for cuda:N."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    visible = [one.strip() for one in given.split(",") if one.strip()]
    visible = visible or [str(number) for number in range(torch.cuda.device_count())]
    return tuple(visible) if device.index is None else (visible[device.index],)


def can_be_sent(game: Game) -> bool:
    """Whether another process can play the game: its functions must be importable there."""
    functions = (game.mechanism.build_model, game.mechanism.loss, type(game.adversary))
    if any(getattr(one, "__module__", None) == "__main__" for one in functions):
        return False
    try:
        pickle.dumps((game.mechanism.build_model, game.mechanism.loss, game.adversary))
    except Exception:  # pickle may raise anything
        return False
    return True


def _memory(device: torch.device, capacity: Capacity | None) -> int:
    """Bytes of one tile: on a CPU those of the cache, otherwise a share of the smallest GPU."""
    if device.type != "cuda":
        return CACHE
    if capacity is not None and capacity.gpu_bytes is not None:
        free = capacity.gpu_bytes
    elif capacity is not None and capacity.device is not None:
        free = UNKNOWN_GPU_BYTES
    else:
        numbers = range(torch.cuda.device_count()) if device.index is None else [device.index]
        free = min(torch.cuda.mem_get_info(number)[0] for number in numbers)
    return min(GPU_BYTES, int(free * GPU_SHARE))


def _numbers(model: ClippedSums, call: Call, *, patches: bool) -> int:
    """Numbers stored for one example: outputs and their gradients, and patches twice."""
    outputs = 4 * math.prod(call.shape[1:])
    return outputs + 2 * _places(model, call) * _columns(model, call) if patches else outputs


def _operations(model: ClippedSums, call: Call) -> int:
    weights = sum(model.sizes[place] for place in model.units[call.unit].parameters.values())
    return 6 * weights * _places(model, call)


def _places(model: ClippedSums, call: Call) -> int:
    """Number of uses of the layer's weight for one example."""
    return math.prod(call.shape[1:]) // max(1, _rows(model, call))


def _rows(model: ClippedSums, call: Call) -> int:
    layer = model.units[call.unit].layer
    if isinstance(layer, torch.nn.Linear):
        return layer.out_features
    if isinstance(layer, torch.nn.Conv1d | torch.nn.Conv2d):
        return layer.out_channels
    return math.prod(call.shape[1:])


def _columns(model: ClippedSums, call: Call) -> int:
    layer = model.units[call.unit].layer
    if isinstance(layer, torch.nn.Conv1d | torch.nn.Conv2d):
        return layer.weight[0].numel()
    return 0
