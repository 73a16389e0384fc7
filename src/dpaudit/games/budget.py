"""How many runs to train together, and whether compilation and several processes are worthwhile.

These are estimates: a tile that does not fit in memory is halved while it is played.
"""

from __future__ import annotations

import functools
import math
import os
import pickle
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary

from dpaudit._cores import cores
from dpaudit.engine.checking import Checked
from dpaudit.engine.clipped_sums import ClippedSums, Taps
from dpaudit.engine.fused import can_build, fused_widths
from dpaudit.engine.layer_rules import rule_for
from dpaudit.engine.speed import Speed
from dpaudit.engine.starting_points import as_tensor, known_model, trainable
from dpaudit.engine.training import batch_table, fastest_convolutions
from dpaudit.errors import InvalidInput
from dpaudit.executors import Capacity
from dpaudit.games.game import Game
from dpaudit.mechanisms.dpsgd import DPSGD
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

EAGER_RATE = {"cpu": 0.39e9, "cuda": 4e12}
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
    """The estimated cost of one run."""

    bytes: int
    operations: float  # multiplications and additions of the whole training, in matrix products
    fused: bool = False  # whether the fused step can be used


def cost(game: Game, checked: Checked, speed: Speed) -> Cost:
    """Estimate the cost of one run."""
    mechanism = game.mechanism
    rows, *_ = batch_table(mechanism.batches, mechanism.steps, len(mechanism.data))
    columns = rows.shape[1]
    if isinstance(game.canaries, CanaryPoints):
        columns += game.canaries.count
    views = 1 if mechanism.augmentation is None else mechanism.augmentation.views
    held = min(columns, speed.virtual_batch or columns) * views
    convolutions: Literal["library", "product", "kernels"] = "library"
    if torch.cuda.is_available():
        convolutions = fastest_convolutions(known_model(mechanism), game.runs, speed)
    numbers, operations = _measure(mechanism, checked.taps, held, convolutions)
    slots = mechanism.optimizer.slots + (mechanism.averaging is not None)
    slots += 0 if mechanism.correlation is None else mechanism.correlation.memory
    states = 7 + 2 * slots  # with the sums that a compiled step returns
    if isinstance(game.adversary, StandardAdversary):
        states += 2 * (game.horizons[-1] + 1)
    bits = torch.finfo(speed.product_dtype).bits * numbers
    bits += torch.finfo(speed.dtype).bits * states * checked.parameters
    return Cost(
        bytes=bits // 8,
        operations=operations * columns * views * game.horizons[-1],
        fused=not isinstance(game.adversary, AdaptiveAdversary)
        and fused_widths(mechanism, speed, checked.taps) is not None,
    )


def settle(game: Game, speed: Speed, price: Cost, capacity: Capacity | None = None) -> Speed:
    """``speed`` with every open choice made, for runs that cost ``price`` each.

    Store the result with an audit: scores depend on the tile size by rounding, and the free memory
    may differ when the audit is resumed. Tiles fit the smallest GPU that may play.
    """
    device = device_of(speed, capacity)
    if speed.convolutions == "kernels" and device.type == "cpu":
        raise InvalidInput("convolutions='kernels' needs a GPU; use convolutions='auto'")
    if speed.precision == "tf32" and device.type == "cpu":
        raise InvalidInput(
            "precision must be auto, float32, bfloat16 or float64 on a CPU, got 'tf32', which only "
            "GPUs compute in; use precision='auto'"
        )
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
    visible = [device.strip() for device in given.split(",") if device.strip()]
    visible = visible or [str(number) for number in range(torch.cuda.device_count())]
    return tuple(visible) if device.index is None else (visible[device.index],)


def can_be_sent(game: Game) -> bool:
    """Whether another process can play the game: its functions must be importable there."""
    functions = (game.mechanism.build_model, game.mechanism.loss, type(game.adversary))
    if any(getattr(function, "__module__", None) == "__main__" for function in functions):
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
    if capacity is not None and capacity.device is not None:
        free = UNKNOWN_GPU_BYTES
    else:
        numbers = range(torch.cuda.device_count()) if device.index is None else [device.index]
        free = min(torch.cuda.mem_get_info(number)[0] for number in numbers)
    return min(GPU_BYTES, int(free * GPU_SHARE))


class _Counting:
    """Counts operations, and bytes that are allocated after each call of torch.

    It is not a subclass of `TorchDispatchMode` itself: torch would import its compiler, which takes
    a second, to keep that from the method of a subclass.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.bytes: list[int] = []
        # Bytes of each storage; 0 where it is that of a given tensor, such as a frozen parameter.
        self._allocated: Any = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self, call: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for storage in _storages((args, kwargs)):
            self._allocated.setdefault(storage, 0)
        result = call(*args, **(kwargs or {}))
        for storage in _storages(result):
            self._allocated.setdefault(storage, storage.nbytes())
        self.bytes.append(sum(self._allocated.values()))
        formula = flop_registry.get(getattr(call, "overloadpacket", None))
        if formula is not None:
            self.operations += formula(*args, **(kwargs or {}), out_val=result)
        return result


class _Counter(_Counting, TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`_Counting` as a context."""


def _storages(values: object) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _measure(
    mechanism: DPSGD,
    taps: Taps,
    examples: int,
    convolutions: Literal["library", "product", "kernels"],
) -> tuple[int, float]:
    """Numbers stored for the clipped sum of one run, and operations for one example.

    The sums of two and of three examples are computed. They are the same calls of torch, and after
    each of them the memory is linear in the number of examples. Convolutions as kernels store only
    outputs of layers and their gradients: no patches, and no gradients of single examples.
    """
    template = known_model(mechanism)
    trained = trainable(template)
    start = torch.cat([parameter.detach().flatten() for parameter in trained]).unsqueeze(0)
    counters = []
    for count in (2, 3):
        rows = np.arange(count) % len(mechanism.data)
        features = as_tensor(mechanism.data.features[rows])
        features = features.to(start.dtype) if features.is_floating_point() else features
        targets = as_tensor(mechanism.data.targets[rows])
        targets = targets.to(start.dtype) if targets.is_floating_point() else targets
        sums = ClippedSums(
            template,
            mechanism.loss,
            features,
            taps,
            rule_for=functools.partial(rule_for, products=convolutions == "product"),
            clipping=mechanism.clipping,
        )
        weights, clip_norm = start.new_ones(1, count), start.new_tensor(mechanism.clip_norm)
        counter = _Counter()
        with counter:
            sums(start, features, targets, weights, clip_norm)
        counters.append(counter)
    operations = counters[0].operations / 2
    if convolutions == "kernels":
        stored = sum(math.prod(call.shape[1:]) for call in sums.calls)
        stored += sum(sums.sizes[place] for place in sums.loose)
        return 4 * examples * stored, operations
    two, three = (np.array(counter.bytes) // start.element_size() for counter in counters)
    if len(two) == len(three):
        return int((two + (three - two) * (examples - 2)).max()), operations
    return int(three.max()) * math.ceil(examples / 3), operations  # the model's code differs
