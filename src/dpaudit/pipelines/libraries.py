"""What each library is asked while a run lasts. No library is imported here, and none is edited.

Methods of classes and functions of modules are replaced for the time of a run, and restored after
it, also after an exception.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np

from dpaudit.pipelines.coupling import seed_of
from dpaudit.pipelines.random_draws import replaced
from dpaudit.pipelines.recording import Recording

Observer = Callable[[Recording, ExitStack], None]


@contextmanager
def observing(recording: Recording) -> Iterator[None]:
    """Observe what the run prints, logs and writes, and all libraries that are loaded."""
    with ExitStack() as stack:
        _observe_output(recording, stack)
        for name, observe in OBSERVERS.items():
            if name in sys.modules:
                recording.libraries.add(name)
                observe(recording, stack)
        yield


def _observe_output(recording: Recording, stack: ExitStack) -> None:
    """Lines that are printed or logged, and files that are written."""
    printed = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
    handler = _Lines(recording)
    logging.getLogger().addHandler(handler)
    stack.callback(logging.getLogger().removeHandler, handler)
    stack.callback(lambda: recording.lines.extend(printed.getvalue().splitlines()))

    def opening(original: Any) -> Any:
        def call(file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
            if set(mode) & set("wax+") and not isinstance(file, int):
                recording.files.setdefault(str(file), "")
            return original(file, mode, *more, **options)

        return call

    stack.enter_context(replaced(builtins, "open", opening))
    stack.enter_context(replaced(io, "open", opening))


@final
class _Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._lines = recording.lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


# --- torch: loaders and optimizers. ---------------------------------------------------------------


def _observe_torch(recording: Recording, stack: ExitStack) -> None:
    torch: Any = sys.modules["torch"]
    from torch.optim.optimizer import register_optimizer_step_post_hook as after_steps
    from torch.optim.optimizer import register_optimizer_step_pre_hook as before_steps
    from torch.utils.data import Subset
    from torch.utils.data._utils.fetch import _MapDatasetFetcher
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    draws = recording.draws

    def number(dataset: Any, place: int) -> int:
        """The number of the record at a place of a data set, or of a part of one."""
        while isinstance(dataset, Subset):
            dataset, place = dataset.dataset, int(dataset.indices[place])
        if len(dataset) == draws.count:
            return int(draws.ids[place])
        recording.by_place = True  # of a list that the training has made of the data
        return place

    def next_index(original: Any) -> Any:
        def call(self: Any) -> Any:
            index = original(self)
            if torch.is_grad_enabled():  # other loops only evaluate
                places = index if isinstance(index, list | tuple) else [index]
                if all(isinstance(place, int | np.integer) for place in places):
                    recording.add_batch(number(self._dataset, int(place)) for place in places)
            return index

        return call

    def fetch(original: Any) -> Any:
        def call(self: Any, index: Any) -> Any:
            single = not self.auto_collation or getattr(self.dataset, "__getitems__", None)
            if single or not torch.is_grad_enabled():
                return original(self, index)
            items = []
            for place in index:
                record = number(self.dataset, int(place))
                # Augmentations of a record do not depend on the other records of its batch.
                key = draws.key("item", record)
                torch.default_generator.manual_seed(key % 2**63)
                random.seed(key)
                items.append(self.dataset[place])
                recording.add_content(record, items[-1])
            return self.collate_fn(items)

        return call

    def before(optimizer: Any, *call: Any) -> None:
        recording.add("optimizer steps", type(optimizer).__name__)
        for group in optimizer.param_groups:
            recording.add("learning rate", group["lr"])

    def after(optimizer: Any, *call: Any) -> None:
        # Draws as large as a batch have shifted the generator: start it again.
        step = len(recording.series["optimizer steps"])
        torch.default_generator.manual_seed(seed_of(draws.seed, "step", step) % 2**63)

    def save(original: Any) -> Any:
        def call(value: Any, file: Any, *more: Any, **options: Any) -> Any:
            if isinstance(file, str) or hasattr(file, "__fspath__"):
                recording.files.setdefault(str(file), "")
            return original(value, file, *more, **options)

        return call

    stack.enter_context(replaced(_BaseDataLoaderIter, "_next_index", next_index))
    stack.enter_context(replaced(_MapDatasetFetcher, "fetch", fetch))
    stack.enter_context(replaced(torch, "save", save))
    stack.callback(before_steps(before).remove)
    stack.callback(after_steps(after).remove)


# --- Opacus: sampler, optimizer, accountant. ------------------------------------------------------


def _observe_opacus(recording: Recording, stack: ExitStack) -> None:
    from opacus import accountants
    from opacus.optimizers.optimizer import DPOptimizer
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    private: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def made(original: Any) -> Any:
        def call(self: Any, optimizer: Any, *more: Any, **options: Any) -> None:
            original(self, optimizer, *more, **options)
            private[self.original_optimizer] = self

        return call

    def before(optimizer: Any, *call: Any) -> None:
        own = private.get(optimizer)
        if own is None:
            return
        parameters = [p for p in own.params if p.grad is not None]
        released = {"gradients": [p.grad for p in parameters]}
        if hasattr(own, "unclipped_num_std"):  # the clip norm follows a noisy count
            released["clip norm"] = own.max_grad_norm
        replayed = recording.release(released)
        for parameter, gradient in zip(parameters, replayed["gradients"], strict=True):
            parameter.grad = gradient
        if "clip norm" in replayed:
            own.max_grad_norm = replayed["clip norm"]
        recording.add("noise multiplier", own.noise_multiplier)
        recording.add("clip norm", own.max_grad_norm)
        if own.loss_reduction == "mean":
            recording.add("divisor", own.expected_batch_size * own.accumulated_iterations)
        recording.sizes |= {p.numel() for p in parameters}

    def sampling(original: Any) -> Any:
        def call(self: Any, *more: Any, **options: Any) -> None:
            original(self, *more, **options)
            recording.add("sampling rate", self.sample_rate)
            recording.add("batches per epoch", self.steps)

        return call

    def accounting(original: Any) -> Any:
        def call(self: Any, *, noise_multiplier: float, sample_rate: float) -> None:
            recording.add("accounted sampling rate", sample_rate)
            recording.add("accounted noise multiplier", noise_multiplier)
            original(self, noise_multiplier=noise_multiplier, sample_rate=sample_rate)

        return call

    stack.enter_context(replaced(DPOptimizer, "__init__", made))
    stack.enter_context(replaced(UniformWithReplacementSampler, "__init__", sampling))
    for name in ("RDPAccountant", "GaussianAccountant", "PRVAccountant"):
        stack.enter_context(replaced(getattr(accountants, name), "step", accounting))
    stack.callback(register_optimizer_step_pre_hook(before).remove)


# --- jax-privacy, with or without Keras. ----------------------------------------------------------


def _observe_jax_privacy(recording: Recording, stack: ExitStack) -> None:
    import jax
    from jax_privacy import batch_selection, noise_addition

    draws = recording.draws

    def batches(original: Any) -> Any:
        def call(self: Any, num_examples: int, *more: Any, **options: Any) -> Iterator[Any]:
            for name in ("sampling_prob", "batch_size", "truncated_batch_size", "iterations"):
                if getattr(self, name, None) is not None:
                    recording.add(_JAX_PRIVACY[name], getattr(self, name))
            whole = num_examples == draws.count and getattr(self, "cycle_length", 1) == 1
            for indices in original(self, num_examples, *more, **options):
                if whole:
                    recording.add_batch(draws.ids[np.asarray(indices)])
                yield indices

        return call

    def privatizer(original: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if "stddev" in options:
                recording.add("noise scale", options["stddev"])
            made = original(*arguments, **options)

            def update(total: Any, *more: Any, **further: Any) -> Any:
                noisy, state = made.update(total, *more, **further)
                leaves, structure = jax.tree.flatten(noisy)
                if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
                    return noisy, state  # inside of jit, where nothing can be replaced
                recording.sizes |= {leaf.size for leaf in leaves}
                recording.add("optimizer steps", "privatizer")
                return jax.tree.unflatten(structure, recording.release(leaves)), state

            return made._replace(update=update)

        return call

    for strategy in vars(batch_selection).values():
        if isinstance(strategy, type) and "batch_iterator" in vars(strategy):
            stack.enter_context(replaced(strategy, "batch_iterator", batches))
    for name in ("gaussian_privatizer", "matrix_factorization_privatizer"):
        stack.enter_context(replaced(noise_addition, name, privatizer))


_JAX_PRIVACY = {
    "sampling_prob": "sampling rate",
    "batch_size": "batch size",
    "truncated_batch_size": "largest batch",
    "iterations": "number of batches",
}


def _observe_keras(recording: Recording, stack: ExitStack) -> None:
    import keras

    draws = recording.draws

    def fit(original: Any) -> Any:
        def call(self: Any, x: Any = None, *more: Any, **options: Any) -> Any:
            if hasattr(x, "shape") and len(x) == draws.count:
                for number, row in zip(draws.ids, np.asarray(x), strict=True):
                    recording.add_content(int(number), row)
            result = original(self, x, *more, **options)
            made = int(self.optimizer.iterations)
            recording.series["optimizer steps"].extend(["keras"] * made)
            recording.add("learning rate", float(self.optimizer.learning_rate))
            if (microbatches := getattr(self.optimizer, "_num_microbatches", None)) is not None:
                recording.add("divisor", microbatches)  # of an optimizer of TensorFlow Privacy
            return result

        return call

    def private(original: Any) -> Any:
        def call(model: Any, params: Any) -> Any:
            recording.add("sampling rate", params.effective_batch_size / params.train_size)
            recording.add("divisor", params.effective_batch_size)
            recording.add("clip norm", params.clipping_norm)
            recording.add("noise multiplier", params.noise_multiplier)
            recording.add("planned steps", params.train_steps)
            return original(model, params)

        return call

    stack.enter_context(replaced(keras.Model, "fit", fit))
    if "jax_privacy.keras_api" in sys.modules:
        stack.enter_context(replaced(sys.modules["jax_privacy.keras_api"], "make_private", private))


# --- TensorFlow Privacy: its sums, by which both its optimizers and training loops add noise. -----


def _observe_tensorflow_privacy(recording: Recording, stack: ExitStack) -> None:
    import tensorflow as tf
    from tensorflow_privacy import GaussianSumQuery

    def made(original: Any) -> Any:
        def call(self: Any, l2_norm_clip: float, stddev: float) -> None:
            recording.add("clip norm", l2_norm_clip)
            recording.add("noise scale", stddev)
            original(self, l2_norm_clip, stddev)

        return call

    def noised(original: Any) -> Any:
        def call(self: Any, *sums: Any) -> Any:
            noisy, *state = original(self, *sums)
            if tf.executing_eagerly():  # while a graph is traced there are no values yet
                noisy = recording.release(noisy)
            return noisy, *state

        return call

    stack.enter_context(replaced(GaussianSumQuery, "__init__", made))
    stack.enter_context(replaced(GaussianSumQuery, "get_noised_result", noised))


OBSERVERS: dict[str, Observer] = {
    "torch": _observe_torch,
    "opacus": _observe_opacus,
    "jax_privacy": _observe_jax_privacy,
    "keras": _observe_keras,
    "tensorflow_privacy": _observe_tensorflow_privacy,
}
"""Libraries that are observed where they are loaded: by module, in this order.

Flower draws its noise from NumPy's global generator, which is coupled and recorded like any other;
the trainer of Hugging Face uses loaders and optimizers of torch.
"""
