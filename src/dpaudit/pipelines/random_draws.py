"""Random generators of Python, NumPy, torch and JAX, replaced by coupled ones while a run lasts."""

from __future__ import annotations

import functools
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, final

import numpy as np

from dpaudit.pipelines.recording import Recording


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Replace an attribute of a module or a class, and restore it.

    Arguments:
        owner: The module or class.
        name: The attribute.
        make: A function of the original that returns the replacement.
    """
    original, own = getattr(owner, name), name in vars(owner)
    replacement = make(original)
    if inspect.isfunction(replacement):  # libraries ask for the signature
        functools.update_wrapper(replacement, original)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)


@contextmanager
def coupled_generators(recording: Recording) -> Iterator[None]:
    """Couple the draws of all libraries that are loaded, also where they are imported by name."""
    before = [(owner, vars(owner).copy()) for owner in map(sys.modules.get, _OWNERS) if owner]
    with ExitStack() as stack:
        for couple in (_numpy, _python):
            stack.enter_context(couple(recording))
        if "torch" in sys.modules:
            stack.enter_context(_torch(recording))
        now = {
            id(original): getattr(owner, name)
            for owner, originals in before
            for name, original in originals.items()
            if getattr(owner, name) is not original
        }
        stack.enter_context(_imported_by_name(now))
        yield


_OWNERS = ("numpy.random", "random", "torch")


@contextmanager
def _imported_by_name(replacements: dict[int, Any]) -> Iterator[None]:
    """Replace functions in all modules that imported them by name, by the identity of each."""
    changed = []
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        for name, value in list(names.items()):
            if id(value) in replacements:
                changed.append((names, name, value))
    for names, name, value in changed:
        names[name] = replacements[id(value)]
    try:
        yield
    finally:
        for names, name, value in changed:
            names[name] = value


# --- NumPy. ---------------------------------------------------------------------------------------


@final
class CoupledGenerator(np.random.Generator):
    """A generator of NumPy whose draws about records are coupled.

    Arguments:
        bits: The bit generator that other draws use.
        recording: The run.
        stream: The name of its draws, from its seed.
    """

    def __init__(self, bits: Any, recording: Recording, stream: object) -> None:
        super().__init__(bits)
        self._recording, self._draws, self._stream = recording, recording.draws, stream
        self._poisson: tuple[int, float, int] | None = None

    def _per_record(self, size: Any) -> tuple[int, tuple[int, ...]] | None:
        """The number of records and the further shape, of a draw of one number per record."""
        shape = (size,) if isinstance(size, int | np.integer) else tuple(size or ())
        if shape and shape[0] == self._draws.count and shape[0] > 1:
            return int(shape[0]), shape[1:]
        return None

    def random(self, size: Any = None, *more: Any, **options: Any) -> Any:
        each = self._per_record(size)
        if each is None or more or options:
            return super().random(size, *more, **options)
        return self._draws.uniform(self._stream, *each)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        each = self._per_record(size)
        if each is None:
            return super().uniform(low, high, size)
        return low + (high - low) * self._draws.uniform(self._stream, *each)

    def permutation(self, x: Any, axis: int = 0) -> Any:
        if isinstance(x, int | np.integer):
            return self._draws.permutation(self._stream, int(x))
        values = np.asarray(x)
        return np.take(values, self._draws.permutation(self._stream, values.shape[axis]), axis)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        order = self._draws.permutation(self._stream, np.shape(x)[axis] if axis else len(x))
        if isinstance(x, np.ndarray):
            x[...] = np.take(x, order, axis)
        else:
            x[:] = [x[place] for place in order]

    def binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        """The size of a Poisson batch is drawn here, and its records by the next `choice`."""
        each = self._per_record(size)
        if each is not None and np.ndim(n) == 0 and n == 1:
            return (self._draws.uniform(self._stream, *each) < p).astype(np.int64)
        if size is None and np.ndim(n) == 0 and np.ndim(p) == 0 and n == self._draws.count:
            key = self._draws.key_of_records("poisson", self._stream)
            self._recording.add("sampling rate", float(p))
            self._poisson = key, float(p), int(n)
            return int((self._draws.uniform_of(key, self._draws.ids) < p).sum())
        return super().binomial(n, p, size)

    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
    ) -> Any:
        values = np.arange(a) if isinstance(a, int | np.integer) else np.asarray(a)
        poisson, self._poisson = self._poisson, None
        if p is not None or values.ndim != 1 or not isinstance(size, int | np.integer):
            return super().choice(a, size, replace, p, axis, shuffle)
        count, chosen = len(values), int(size)
        places = np.arange(count)
        if np.array_equal(np.sort(values), places):  # places of records, perhaps permuted
            values = places
        if poisson is not None and not replace and count == poisson[2]:
            uniform = self._draws.uniform_of(poisson[0], self._draws.numbers(count))
            below = np.flatnonzero(uniform < poisson[1])
            return values[below[np.argsort(uniform[below])][:chosen]]
        if replace:
            return values[self._draws.indices(self._stream, count, chosen)]
        return values[self._draws.subset(self._stream, count, chosen)]

    def integers(
        self, low: Any, high: Any = None, size: Any = None, *more: Any, **named: Any
    ) -> Any:
        start, stop = (0, low) if high is None else (low, high)
        every = start == 0 and np.ndim(stop) == 0 and stop == self._draws.count
        if every and isinstance(size, int | np.integer) and not more:
            return self._draws.indices(self._stream, int(stop), int(size))
        return super().integers(low, high, size, *more, **named)

    def standard_normal(self, size: Any = None, *more: Any, **options: Any) -> Any:
        return self.normal(0.0, 1.0, size)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return self._noise("standard_normal", loc, scale, size)

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return self._noise("laplace", loc, scale, size)

    def _noise(self, kind: str, loc: Any, scale: Any, size: Any) -> Any:
        if size is None:
            size = np.broadcast_shapes(np.shape(loc), np.shape(scale)) or None
        shape = () if size is None else size
        own = np.random.Generator(np.random.Philox(self._draws.key(kind, self._stream, shape)))
        drawn = own.laplace(size=size) if kind == "laplace" else own.standard_normal(size)
        factor = self._recording.scaled(int(np.size(drawn)), float(np.mean(scale)))
        return loc + np.asarray(scale) * drawn * factor


@contextmanager
def _numpy(recording: Recording) -> Iterator[None]:
    made = [0]

    def default_rng(original: Any) -> Any:
        def make(seed: Any = None) -> Any:
            if isinstance(seed, CoupledGenerator):
                return seed
            if isinstance(seed, np.random.Generator):
                return original(seed)  # made before the run: its draws are not coupled
            made[0] += seed is None
            # A generator without a seed is frozen as well.
            name = ("unseeded", made[0]) if seed is None else _name(seed)
            bits = seed if isinstance(seed, np.random.BitGenerator) else np.random.PCG64(seed)
            return CoupledGenerator(bits, recording, ("numpy", name))

        return make

    shared = CoupledGenerator(np.random.PCG64(recording.draws.seed), recording, "numpy.random")
    functions = {
        "permutation": shared.permutation,
        "shuffle": shared.shuffle,
        "choice": shared.choice,
        "binomial": shared.binomial,
        "uniform": shared.uniform,
        "normal": shared.normal,
        "laplace": shared.laplace,
        "standard_normal": shared.standard_normal,
        "random": shared.random,
        "random_sample": shared.random,
        "rand": lambda *size: shared.random(size or None),
        "randn": lambda *size: shared.standard_normal(size or None),
        "randint": lambda low, high=None, size=None, dtype=int: shared.integers(low, high, size),
    }
    with ExitStack() as stack:
        stack.enter_context(replaced(np.random, "default_rng", default_rng))
        for name, function in functions.items():
            stack.enter_context(replaced(np.random, name, functools.partial(_instead, function)))
        yield


def _instead(function: Any, original: Any) -> Any:
    return function


def _name(seed: Any) -> object:
    """A seed as part of a key; two bit generators of one class differ by their state."""
    if isinstance(seed, np.random.BitGenerator | np.random.SeedSequence):
        return repr(seed.state)
    return tuple(np.ravel(seed).tolist())


@contextmanager
def _python(recording: Recording) -> Iterator[None]:
    draws = recording.draws

    def shuffle(x: Any) -> None:
        x[:] = [x[place] for place in draws.permutation("random", len(x))]

    def sample(population: Any, k: int, *, counts: Any = None) -> list[Any]:
        if counts is not None:
            return original_sample(population, k, counts=counts)
        return [population[place] for place in draws.subset("random", len(population), k)]

    original_sample = random.sample
    with (
        replaced(random, "shuffle", lambda _: shuffle),
        replaced(random, "sample", lambda _: sample),
    ):
        yield


# --- torch. ---------------------------------------------------------------------------------------


@contextmanager
def _torch(recording: Recording) -> Iterator[None]:
    torch: Any = sys.modules["torch"]
    draws = recording.draws

    def stream(generator: Any) -> object:
        return ("torch", None if generator is None else generator.initial_seed())

    def shape_of(size: Any) -> tuple[int, ...]:
        size = size[0] if len(size) == 1 and isinstance(size[0], tuple | list) else size
        return tuple(map(int, size))

    def rand(original: Any) -> Any:
        def draw(*size: Any, generator: Any = None, **options: Any) -> Any:
            shape = shape_of(size) if size else ()
            if options.get("out") is not None or len(shape) < 1 or shape[0] != draws.count:
                return original(*size, generator=generator, **options)
            numbers = draws.uniform(stream(generator), shape[0], shape[1:])
            options.setdefault("dtype", torch.get_default_dtype())
            return torch.tensor(numbers, **options)

        return draw

    def randperm(original: Any) -> Any:
        def draw(n: int, *, generator: Any = None, **options: Any) -> Any:
            options.pop("out", None)
            return torch.tensor(draws.permutation(stream(generator), n), **options)

        return draw

    def randint(original: Any) -> Any:
        def draw(*args: Any, generator: Any = None, **options: Any) -> Any:
            low, high, size = _randint(args, options)
            if size is None or low != 0 or high != draws.count or len(size) != 1:
                return original(*args, generator=generator, **options)
            return torch.tensor(draws.indices(stream(generator), high, size[0]))

        return draw

    def fresh(generator: Any, shape: object, device: Any = None) -> Any:
        """A generator of the next normal draw of a shape."""
        device = "cpu" if device is None else torch.device(device)
        made = torch.Generator(device=device)
        made.manual_seed(draws.key("normal", stream(generator), shape) % 2**63)
        return made

    def normal(original: Any) -> Any:
        def draw(mean: Any = 0.0, std: Any = 1.0, *rest: Any, **options: Any) -> Any:
            size = rest[0] if rest else options.pop("size", None)
            if size is None or options.get("out") is not None:
                return original(mean, std, **({} if size is None else {"size": size}), **options)
            entries = int(np.prod(tuple(size), dtype=np.int64))
            factor, given = recording.scaled(entries, float(std)), options.pop("generator", None)
            own = fresh(given, tuple(size), options.get("device"))
            return original(mean, float(std), size, generator=own, **options) * factor

        return draw

    def randn(original: Any) -> Any:
        def draw(*size: Any, generator: Any = None, **options: Any) -> Any:
            shape = shape_of(size or (options.pop("size"),))
            factor = recording.scaled(int(np.prod(shape, dtype=np.int64)), 1.0)
            own = fresh(generator, shape, options.get("device"))
            return original(*shape, generator=own, **options) * factor

        return draw

    def randn_like(original: Any) -> Any:
        def draw(like: Any, **options: Any) -> Any:
            options = {"dtype": like.dtype, "device": like.device, **options}
            options.pop("memory_format", None)
            return torch.randn(*like.shape, **options)

        return draw

    def normal_(original: Any) -> Any:
        def draw(self: Any, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
            factor = recording.scaled(self.numel(), float(std))
            own = fresh(generator, tuple(self.shape), self.device)
            return original(self, mean, std * factor, generator=own)

        return draw

    with ExitStack() as stack:
        for owner, name, make in (
            (torch, "rand", rand),
            (torch, "randperm", randperm),
            (torch, "randint", randint),
            (torch, "normal", normal),
            (torch, "randn", randn),
            (torch, "randn_like", randn_like),
            (torch.Tensor, "normal_", normal_),
        ):
            stack.enter_context(replaced(owner, name, make))
        yield


def _randint(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Lowest value, limit and shape of a call of ``torch.randint``."""
    given = list(args)
    size = options.get("size")
    if size is None and given:
        size = given.pop() if isinstance(given[-1], tuple | list) else None
    low = given[0] if len(given) == 2 else options.get("low", 0)
    high = given[-1] if given else options.get("high")
    return low, high, size
