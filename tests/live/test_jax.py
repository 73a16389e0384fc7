"""Live audits of trainings with optax and jax-privacy, jitted and not."""

import numpy as np
import pytest

from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput
from dpaudit.live import live_audit
from dpaudit.mechanisms import CorrelatedNoise

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
noise_addition = pytest.importorskip("jax_privacy.noise_addition")
toeplitz = pytest.importorskip("jax_privacy.matrix_factorization.toeplitz")

from dpaudit.live.jax import watched  # noqa: E402 - needs the libraries above

CLIP, NOISE, BATCH = 0.5, 1.5, 4
WEIGHTS = {"bias": jax.numpy.zeros(20), "weight": jax.numpy.zeros((60, 20))}


def audit(**settings):
    return live_audit(
        WEIGHTS,
        canaries=400,
        clip_norm=CLIP,
        noise_multiplier=NOISE,
        **{"sampling_rate": 0.5, **settings},
        seed=0,
        on_violation=lambda _: None,
    )


def by_privatizer(live, share):
    private = noise_addition.gaussian_privatizer(stddev=share * NOISE * CLIP, prng_key=1)
    # What a user's clipped_grad returns: a sum that is not zero.
    return watched(live, private), jax.tree.map(lambda leaf: leaf + 7.0, WEIGHTS)


def by_optax(live, share):
    private = optax.contrib.differentially_private_aggregate(CLIP, share * NOISE, jax.random.key(1))
    rows = jax.tree.map(lambda leaf: jax.numpy.ones((BATCH, *leaf.shape)), WEIGHTS)
    return watched(live, private), rows


@pytest.mark.parametrize("made", [by_privatizer, by_optax])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_noise_is_judged_in_a_scan(made, share):
    live = audit()
    private, gradients = made(live, share)
    optimizer = optax.chain(private, optax.adam(1e-2))

    @jax.jit
    def train(parameters, state):
        def step(carry, _):
            parameters, state = carry
            updates, state = optimizer.update(gradients, state)
            return (optax.apply_updates(parameters, updates), state), None

        return jax.lax.scan(step, (parameters, state), length=60)[0]

    with live:
        train(WEIGHTS, optimizer.init(WEIGHTS))
    assert live.steps == 60
    assert (live.e_value > 2000) == (share < 1)
    assert live.result.verdict == ("violation" if share < 1 else "consistent")


@pytest.mark.parametrize("made", [by_privatizer, by_optax])
def test_what_is_observed_is_the_canary_and_the_noise(made):
    live, seen, taken = audit(), [], []
    take_part, observe = live.evidence.take_part, live.evidence.observe
    live.evidence.take_part = lambda rate: taken.append(take_part(rate)) or taken[-1]
    live.evidence.observe = lambda observed, **rest: (
        seen.append(observed) or observe(observed, **rest)
    )
    private, gradients = made(live, 1.0)
    state = private.init(WEIGHTS)
    with live:
        for _ in range(20):
            _, state = private.update(gradients, state)
    noise = np.array(seen) - np.array(taken)
    assert noise.std() == pytest.approx(NOISE, rel=5 / np.sqrt(2 * noise.size))
    assert abs(noise.mean()) < 5 * NOISE / np.sqrt(noise.size)


def test_an_update_without_canaries_is_the_same():
    live = audit()
    live.evidence.coins[:] = False
    private, gradients = by_optax(live, 1.0)
    plain = optax.contrib.differentially_private_aggregate(CLIP, NOISE, jax.random.key(1))
    with live:
        updates, _ = private.update(gradients, private.init(WEIGHTS))
    expected, _ = plain.update(gradients, plain.init(WEIGHTS))
    assert jax.tree.all(jax.tree.map(np.array_equal, updates, expected))


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_correlated_noise_is_judged(share):
    strategy = jax.numpy.array([1.0, 0.5, 0.3])
    correlation = CorrelatedNoise(coefficients=tuple(strategy.tolist()))
    live = audit(sampling_rate=1.0, correlation=correlation)
    private = watched(
        live,
        noise_addition.matrix_factorization_privatizer(
            toeplitz.inverse_as_streaming_matrix(strategy),
            stddev=share * NOISE * CLIP * float(jax.numpy.linalg.norm(strategy)),
            prng_key=0,
        ),
    )
    sums = jax.tree.map(lambda leaf: leaf + 7.0, WEIGHTS)
    with live:
        jax.lax.scan(
            lambda state, _: (private.update(sums, state)[1], None),
            private.init(WEIGHTS),
            length=8,
        )
    assert live.result.verdict == ("violation" if share < 1 else "consistent"), live.result
    assert live.result.claimed_epsilon == pytest.approx(
        Claim.from_matrix_factorisation(
            noise_multiplier=NOISE, coefficients=correlation.coefficients, steps=8
        ).epsilon(1e-5)
    )


def test_correlated_noise_without_its_correlation_and_chains_are_refused():
    for strategy in ([1.0, 0.5], [1.0]):
        inverse = toeplitz.inverse_as_streaming_matrix(jax.numpy.array(strategy))
        for matrix in (inverse, inverse.materialize(5)):
            private = noise_addition.matrix_factorization_privatizer(matrix, stddev=1.0, prng_key=0)
            if strategy == [1.0]:  # one band is DP-SGD
                watched(audit(), private)
                continue
            with pytest.raises(InvalidInput, match="correlated between steps"):
                watched(audit(), private)
    chain = optax.chain(
        optax.contrib.differentially_private_aggregate(CLIP, NOISE, jax.random.key(1)),
        optax.sgd(0.1),
    )
    with pytest.raises(InvalidInput, match="got a chain"):
        watched(audit(), chain)
