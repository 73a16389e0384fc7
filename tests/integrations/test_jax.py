"""Canaries, batches and claims of jax-privacy and optax."""

import dataclasses
import math

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
jnp = jax.numpy

import dpaudit  # noqa: E402
from dpaudit.claims import Claim  # noqa: E402
from dpaudit.errors import InvalidInput  # noqa: E402
from dpaudit.integrations import INTEGRATIONS, integration_of  # noqa: E402
from dpaudit.integrations.jax import append_rows, canary_for, record_gradient  # noqa: E402
from dpaudit.mechanisms import CorrelatedNoise  # noqa: E402
from dpaudit.trainings.scoring import PrivateGradients, flat_parameters  # noqa: E402

PARAMETERS = {"bias": jnp.ones(2), "weight": jnp.full((3, 2), 0.5)}
CLIP = 0.5


def loss(parameters, features, label):
    logits = features @ parameters["weight"] + parameters["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()


FEATURES = jax.random.normal(jax.random.key(0), (6, 3))
LABELS = jnp.array([0, 1, 0, 1, 1, 0])


class TestOptax:
    from dpaudit.integrations import jax as integration

    def private(self, noise=4.0):
        return optax.contrib.differentially_private_aggregate(CLIP, noise, jax.random.key(0))

    def test_rows_have_the_structure_of_the_gradients(self):
        canary = canary_for(PARAMETERS, clip_norm=CLIP, count=2)
        rows = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(PARAMETERS, FEATURES, LABELS)
        longer = jax.jit(append_rows, static_argnums=1)(rows, canary, jnp.array([True, False]))
        assert jax.tree.structure(longer) == jax.tree.structure(rows)
        last = [flat_parameters(jax.tree.map(lambda leaf, n=n: leaf[n], longer)) for n in (6, 7)]
        assert np.array_equal(last[0], canary.rows([True, False])[0])
        assert not last[1].any()

    @pytest.mark.parametrize(
        "wrap",
        [
            lambda private: private,
            lambda private: optax.chain(private, optax.adamw(1e-3)),
            lambda private: optax.chain(optax.chain(private, optax.clip(1.0)), optax.sgd(0.1)),
        ],
    )
    def test_the_claim_is_read_from_a_chain(self, wrap):
        claim = self.integration.claim_of(wrap(self.private()), steps=16)
        assert claim.mu == pytest.approx(1.0)
        assert integration_of(wrap(self.private())).name == "optax"

    @pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
    def test_the_claim_of_dpsgd_and_of_sampling(self):
        optimizer = optax.contrib.dpsgd(0.1, CLIP, 2.0, seed=0)
        sampled = self.integration.claim_of(optimizer, steps=4, sampling_rate=0.25)
        expected = Claim.from_dpsgd(noise_multiplier=2.0, steps=4, sampling_rate=0.25)
        assert sampled.deltas == pytest.approx(expected.deltas, abs=1e-6)

    def test_an_optimizer_without_privacy_is_refused(self):
        with pytest.raises(InvalidInput, match="differentially_private_aggregate"):
            self.integration.claim_of(optax.sgd(0.1), steps=3)
        with pytest.raises(InvalidInput, match="append_rows"):
            INTEGRATIONS["optax"]().insert_canary(self.private(), None, True, seed=0)

    def test_its_private_step_is_checked(self):
        found = INTEGRATIONS["optax"]().check(
            self.private(1.0), runs=8, parameters=16, clip_norm=None, fixed_batch_size=True
        )
        assert found["noise size"].verdict == "passed"
        assert found["bounded contribution"].verdict == "passed"


class TestJaxPrivacy:
    privacy = pytest.importorskip("jax_privacy")

    def insert(self, **options):
        from dpaudit.integrations.jax_privacy import insert_canary

        canary = canary_for(PARAMETERS, clip_norm=CLIP, count=2, seed=3)
        return insert_canary(canary, **options), canary

    @pytest.mark.parametrize("through_clipping", [True, False])
    @pytest.mark.parametrize(
        ("options", "length"),
        [
            ({}, CLIP),
            ({"rescale_to_unit_norm": True, "normalize_by": 4.0}, 1 / 4),
            ({"microbatch_size": 2, "keep_batch_dim": False}, CLIP),
        ],
    )
    def test_a_canary_adds_its_clipped_gradient(self, options, length, through_clipping):
        transform, canary = self.insert(through_clipping=through_clipping)
        options = {"l2_clip_norm": CLIP, "batch_argnums": (1, 2), **options}
        gradient = transform(loss, **options)
        compiled = jax.jit(gradient)
        plain = jax.jit(self.privacy.clipped_grad(loss, **options))(PARAMETERS, FEATURES, LABELS)
        without, one = (
            compiled(PARAMETERS, FEATURES, LABELS, present=jnp.array([False, coin]))
            for coin in (False, True)
        )
        assert flat_parameters(without) == pytest.approx(flat_parameters(plain), abs=1e-6)
        added = flat_parameters(one) - flat_parameters(without)
        expected = length / CLIP * canary.clipped_sum([False, True])
        assert added == pytest.approx(expected, abs=1e-5)
        assert gradient.sensitivity() == pytest.approx(length)

    def test_padding_auxiliary_values_and_compilation(self):
        transform, _ = self.insert()
        options = {"l2_clip_norm": CLIP, "batch_argnums": (1, 2), "return_values": True}
        gradient, padding = transform(loss, **options), jnp.arange(6) >= 4
        compiled = jax.jit(gradient)
        total, auxiliary = compiled(
            PARAMETERS,
            FEATURES,
            LABELS,
            present=jnp.array([False, False]),
            is_padding_example=padding,
        )
        plain = jax.jit(self.privacy.clipped_grad(loss, **options))(
            PARAMETERS, FEATURES[:4], LABELS[:4]
        )
        assert flat_parameters(total) == pytest.approx(flat_parameters(plain[0]), abs=1e-6)
        assert auxiliary.values.shape == (6,)

    def test_a_training_that_does_not_clip_shows_the_whole_canary(self):
        transform, canary = self.insert()
        gradient = jax.jit(transform(loss, l2_clip_norm=math.inf, batch_argnums=(1, 2)))
        found = [
            flat_parameters(gradient(PARAMETERS, FEATURES, LABELS, present=[coin, False]))
            for coin in (False, True)
        ]
        assert np.linalg.norm(found[1] - found[0]) == pytest.approx(canary.norm, rel=1e-4)

    @pytest.mark.parametrize(
        ("kind", "options", "rate"),
        [
            ("CyclicPoissonSampling", {"sampling_prob": 0.5}, 0.5),
            ("CyclicPoissonSampling", {"sampling_prob": 1.0, "cycle_length": 4}, 0.25),
            ("BallsInBinsSampling", {"cycle_length": 2}, 0.5),
            ("FixedBatchSampling", {"batch_size": 5}, 0.25),
            ("BMinSepSampling", {"sampling_prob": 1.0, "min_sep": 4}, 0.25),
            ("CyclicPoissonSampling", {"sampling_prob": 0.5, "truncated_batch_size": 4}, 0.2),
        ],
    )
    def test_canaries_are_selected_like_examples(self, kind, options, rate):
        from dpaudit.integrations.jax_privacy import select_batches

        canary = canary_for(20, clip_norm=CLIP, count=10)
        strategy = getattr(self.privacy.batch_selection, kind)(iterations=400, **options)
        coins = np.arange(10) % 2 == 0
        found = list(select_batches(strategy, 10, canary, coins, rng=0))
        shares = np.mean([present for _, present in found], axis=0)
        assert not shares[~coins].any()
        assert shares[coins].mean() == pytest.approx(rate, abs=0.05)
        assert max(indices.max(initial=0) for indices, _ in found) < 10

    def config(self, **options):
        plans = pytest.importorskip("jax_privacy.experimental.execution_plan")
        given = {"strategy": [1.0], "iterations": 12, "noise_multiplier": 2.0}
        return plans.BandMFExecutionPlanConfig(**given | options | {"epsilon": None, "delta": None})

    def test_claims_of_plans(self):
        from dpaudit.integrations.jax_privacy import claim_of

        assert claim_of(self.config()).mu == pytest.approx(math.sqrt(12) / 2)
        assert claim_of(self.config().plan).mu == pytest.approx(math.sqrt(12) / 2)
        banded = self.config(strategy=[1.0, 0.5, 0.25])
        assert claim_of(banded).mu == pytest.approx(math.sqrt(4) / 2)
        noise = CorrelatedNoise(coefficients=(1.0, 0.5, 0.25))
        assert claim_of(banded).mu == pytest.approx(noise.mu(2.0, range(0, 12, 3), steps=12))
        everywhere = claim_of(banded, every_step=True)
        assert everywhere.mu == pytest.approx(noise.mu(2.0, range(12), steps=12))

    def test_claims_with_sampling(self):
        from dpaudit.integrations.jax_privacy import claim_of

        found = claim_of(self.config(sampling_prob=0.25))
        expected = Claim.from_dpsgd(noise_multiplier=2.0, steps=12, sampling_rate=0.25)
        assert found.deltas == pytest.approx(expected.deltas, abs=1e-6)
        everywhere = claim_of(self.config(sampling_prob=0.25), every_step=True)
        assert everywhere.mu == pytest.approx(math.sqrt(12) / 2)

    def test_a_truncated_sample_is_left_to_its_accountant(self):
        from dpaudit.integrations.jax_privacy import claim_of

        config = self.config(sampling_prob=0.1, truncated_batch_size=20, num_examples=100)
        plain = claim_of(self.config(sampling_prob=0.1))
        assert claim_of(config).epsilon(1e-3) >= plain.epsilon(1e-3) - 0.1

    def test_the_private_step_of_a_plan_clips_and_adds_noise(self):
        config = self.config(strategy=[2.0, 1.5], l2_clip_norm=CLIP, normalize_by=8.0)
        step = INTEGRATIONS["jax-privacy"]().private_step(config.plan)
        rows = np.zeros((3, 4000))
        noise = step(rows, 7)
        # The columns of C have norm 2.5, and inverse(C) starts with 1 / 2.
        assert noise.std() == pytest.approx(2.0 * 2.5 / 2 / 8, rel=0.05)
        rows[0, 0], rows[1, 1] = 100.0, CLIP / 4
        moved = step(rows, 7) - noise
        assert moved[:2] * 8 == pytest.approx([1.0, 0.25], abs=1e-5)
        assert not moved[2:].any()
        assert step(rows[:0], 7) == pytest.approx(noise)
        assert not np.allclose(step(rows[:0], 8), noise)

    def test_the_claimed_noise_of_the_first_step(self, monkeypatch):
        """Sensitivity is twice the clip norm if neighbouring data sets replace a record."""
        import dp_accounting

        from dpaudit.integrations import jax_privacy

        claims = []
        monkeypatch.setattr(jax_privacy, "check_step", lambda _, **claim: claims.append(claim))
        replace, zero = (
            dp_accounting.rdp.RdpAccountant(neighboring_relation=relation)
            for relation in (
                dp_accounting.NeighboringRelation.REPLACE_ONE,
                dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
            )
        )
        config = self.config(strategy=[2.0, 1.5], l2_clip_norm=CLIP, accountant=replace)
        jax_privacy.check(config, clip_norm=None)
        assert claims[0]["clip_norm"] == CLIP
        assert claims[0]["noise_multiplier"] == pytest.approx(2.0 * 2 * 2.5 / 2)
        budget = {"noise_multiplier": None, "epsilon": 1.0, "delta": 1e-3}
        jax_privacy.check(dataclasses.replace(self.config(), accountant=zero, **budget))
        mu = math.sqrt(12) / claims[1]["noise_multiplier"]
        assert Claim.from_mu(mu).epsilon(1e-3) == pytest.approx(1.0, abs=0.2)

    def test_other_objects_have_no_private_step(self):
        plan = self.config().plan
        with pytest.raises(InvalidInput, match="DPExecutionPlan"):
            integration_of(plan).check(plan)
        with pytest.raises(InvalidInput, match="CyclicPoissonSampling"):
            integration_of(plan).private_step(plan.batch_selection_strategy)


class TestRecordedGradients:
    """Adam and Poisson sampling: no noise is found from the noisy gradients of few runs."""

    STEPS, RATE = 8, 0.5

    def audit(self, true_noise: float, runs: int = 48):
        canary = canary_for(PARAMETERS, clip_norm=CLIP)
        size = len(FEATURES) + 1

        adam = optax.adam(0.01)

        @jax.jit
        def step(parameters, state, taking_part, key):
            rows = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(parameters, FEATURES, LABELS)
            rows = append_rows(rows, canary, taking_part)
            private = optax.contrib.differentially_private_aggregate(CLIP, true_noise, key)
            gradient = private.update(rows, private.init(parameters))[0]
            updates, state = adam.update(gradient, state)
            return gradient, optax.apply_updates(parameters, updates), state

        def train(canary, inserted, seed):
            coins = np.random.default_rng(seed).random(self.STEPS) < self.RATE
            evidence = PrivateGradients(noise_multiplier=1.0, sampling_rate=self.RATE)
            parameters, state = PARAMETERS, adam.init(PARAMETERS)
            keys = jax.random.split(jax.random.key(seed), self.STEPS)
            for taking_part, key in zip(coins & np.all(inserted), keys, strict=True):
                gradient, parameters, state = step(parameters, state, taking_part, key)
                record_gradient(evidence, gradient, canary, divisor=size)
            return evidence

        claim = Claim.from_dpsgd(noise_multiplier=1.0, steps=self.STEPS, sampling_rate=self.RATE)
        return dpaudit.audit(train, canary=canary, claim=claim, runs=runs)

    def test_no_noise_is_a_violation(self):
        assert self.audit(1e-3).verdict == "violation"

    def test_the_claimed_noise_is_none(self):
        assert self.audit(1.0).verdict != "violation"
