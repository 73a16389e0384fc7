"""The examples run as they are, and the audits in them decide rightly."""

import dataclasses
import functools
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import dpaudit
from dpaudit.integrations import integration_of

EXAMPLES = Path(__file__).parents[2] / "examples"


@functools.cache
def example(name):
    """The example as a module; tests share it, and what it has compiled."""
    return fresh_example(name)


def fresh_example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings(
    "ignore:Secure RNG turned off:UserWarning",
    "ignore:Full backward hook is firing:UserWarning",
)
class TestOpacus:
    pytest.importorskip("opacus")

    @pytest.mark.parametrize(("true_share", "verdict"), [(0.7, "violation"), (1.0, "consistent")])
    @pytest.mark.filterwarnings("ignore:after .* the live audit has proven:UserWarning")
    def test_the_training_that_is_shipped(self, true_share, verdict):
        result = example("opacus_training").live(true_share=true_share)
        assert result.verdict == verdict
        assert result.description.live

    @pytest.mark.parametrize(("true_share", "verdict"), [(0.8, "violation"), (1.0, "consistent")])
    def test_noise_a_fifth_too_small_is_proven_by_the_final_model(self, true_share, verdict):
        """At epsilon 8, in one training of a ConvNet with 10,000 canaries."""
        result = example("opacus_training").final_model(true_share=true_share)
        assert result.verdict == verdict
        assert result.threat_model is dpaudit.ThreatModel.HIDDEN_STATE
        assert (result.runs, result.canaries) == (1, 10_000)
        assert (result.test.p_value < 1e-4) == (verdict == "violation")


@pytest.fixture(scope="module")
def jax_canary():
    """One for all audits: the training is compiled for each canary."""
    return dpaudit.GradientCanary.draw(18, clip_norm=example("jax_training").CLIP)


class TestJax:
    pytest.importorskip("jax")
    pytest.importorskip("optax")

    def test_the_page_runs(self, capsys):
        """All blocks of the section on JAX, one after the other."""
        pytest.importorskip("jax_privacy")
        page = (EXAMPLES.parent / "docs" / "libraries.md").read_text(encoding="utf8")
        section = page.partition("\n## JAX\n")[2].partition("\n## ")[0]
        blocks = re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
        assert len(blocks) > 5
        names: dict = {}
        exec(compile("\n".join(blocks), "docs/libraries.md", "exec"), names)
        assert names["result"].runs == 20
        assert names["claim_of"](names["config"], every_step=True).mu == pytest.approx(4**0.5 / 2)

    @pytest.mark.parametrize(("true_share", "verdict"), [(0.5, "violation"), (1.0, "consistent")])
    def test_audit(self, true_share, verdict, jax_canary):
        jax_training = example("jax_training")
        noise = true_share * jax_training.NOISE
        result = dpaudit.audit(
            functools.partial(jax_training.train, noise_multiplier=noise),
            canary=jax_canary,
            claim=dpaudit.Claim.from_dpsgd(
                noise_multiplier=jax_training.NOISE, steps=jax_training.STEPS
            ),
            initial=jax_training.INITIAL,
            runs=200,
        )
        assert result.verdict == verdict
        assert result.adversary == "parameters"

    def test_one_step_moves_by_the_clip_norm(self):
        jax_training = fresh_example("jax_training")
        canary = dpaudit.GradientCanary.draw(18, clip_norm=jax_training.CLIP, seed=3)
        jax_training.INPUTS = jax_training.INPUTS[:1]
        jax_training.LABELS = jax_training.LABELS[:1]
        ends = [
            dpaudit.trainings.scoring.flat_parameters(jax_training.train(canary, inserted, seed=1))
            for inserted in (False, True)
        ]
        rows = jax_training.BATCH + 1
        expected = jax_training.RATE * canary.clipped_sum(True) / rows
        assert ends[0] - ends[1] == pytest.approx(expected, abs=1e-7)


class TestJaxPrivacy:
    """One step is exact; the audit of few runs finds that there is hardly any noise."""

    pytest.importorskip("jax_privacy")

    @pytest.mark.parametrize("name", ["DP_SGD", "BANDED"])
    def test_audit(self, name):
        module = example("jax_privacy_training")
        config = dataclasses.replace(getattr(module, name), iterations=12)
        result = module.audit(config, runs=40, true_share=0.05)
        assert result.verdict == "violation"
        assert result.adversary == "parameters"

    @pytest.mark.parametrize(("true_share", "verdict"), [(0.6, "violation"), (1.0, "consistent")])
    @pytest.mark.filterwarnings("ignore:after .* the live audit has proven:UserWarning")
    def test_the_training_that_is_shipped(self, true_share, verdict):
        result = example("jax_privacy_training").live(true_share=true_share)
        assert result.verdict == verdict
        assert result.description.live

    def test_check(self):
        config = example("jax_privacy_training").BANDED
        found = integration_of(config).check(config, clip_norm=None, noise_multiplier=2.0, runs=8)
        assert found.passed
        assert not found.not_tested


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
class TestKeras:
    """The canary is an example; a training takes seconds, because it is compiled every time."""

    @pytest.fixture
    def module(self, monkeypatch):
        monkeypatch.setenv("KERAS_BACKEND", "jax")
        pytest.importorskip("keras")
        pytest.importorskip("jax_privacy")
        return example("keras_training")

    def test_the_canary_changes_weights_and_predictions(self, module):
        models = [
            module.train_for_weights(module.CANARY, inserted, 1, noise_multiplier=0.05)
            for inserted in (False, True)
        ]
        weights = [module.along_the_rare_feature(module.CANARY, model) for model in models]
        # Four steps of rate 1 / 16, each by a gradient of norm 1 along (-1, 1) / sqrt 2.
        moved = module.STEPS / (module.EXAMPLES + 1) * 2**0.5
        assert weights[1] - weights[0] == pytest.approx(moved, rel=0.05)
        seen = [
            dpaudit.Predictions(logits=model(module.CANARY["features"][None]), target=1)
            for model in models
        ]
        assert seen[1].log_likelihood() > seen[0].log_likelihood()

    def test_the_claim(self, module):
        claim = module.claim_of(module.private_settings())
        assert claim.mu == pytest.approx(module.STEPS**0.5 / 2)


@pytest.mark.filterwarnings("ignore")
class TestUsers:
    """Fifty users with four records each are the canaries."""

    pytest.importorskip("jax_privacy")
    pytest.importorskip("opacus")

    @pytest.mark.parametrize("name", ["train_jax", "train_opacus_by_user"])
    def test_users_who_are_clipped_as_a_whole_keep_the_claim(self, name):
        module = example("users")
        result = module.audit(getattr(module, name))
        assert result.verdict == "consistent"

    @pytest.mark.parametrize("name", ["train_jax_by_record", "train_opacus"])
    def test_accounting_per_record_is_found_within_50_trainings(self, name):
        module = example("users")
        for seed in range(3):
            result = module.audit(getattr(module, name), seed=seed)
            assert result.verdict == "violation"
            assert result.runs + result.fresh_runs <= 50

    def test_the_sampler_draws_users_with_all_their_records(self):
        torch = pytest.importorskip("torch")
        module = example("users")
        owners, generator = np.repeat([0, 1, 2], 4), torch.Generator().manual_seed(1)
        for places in module.UserSampler(owners, rate=0.5, steps=20, generator=generator):
            assert set(np.bincount(owners[places])) <= {0, 4}


class TestShuffledEpochs:
    """One canary in each epoch, at a random place; without it, an empty place shows."""

    def test_a_poisson_claim_is_refuted_in_100_trainings(self):
        module = example("shuffled_training")
        result = module.audit(module.POISSON, runs=100)
        assert result.verdict == "violation"
        # Its batches may be wrong: no bound takes the sampling of the refuted claim for granted.
        assert "dpsgd" not in [bound.method for bound in result.lower]
        assert result.leading.epsilon < module.SHUFFLED.epsilon(1e-5)
        assert "batches" in result.statement.advice

    def test_what_is_proven_for_shuffling_is_kept(self):
        module = example("shuffled_training")
        result = module.audit(module.SHUFFLED, runs=200)
        assert result.verdict == "consistent"
        assert result.test.p_value > 0.05


class TestFederatedAveraging:
    """The same audit without any library."""

    @pytest.mark.parametrize(("true_share", "verdict"), [(0.4, "violation"), (1.0, "consistent")])
    def test_audit(self, true_share, verdict):
        module = example("federated_clients")
        assert module.audit(runs=200, true_share=true_share).verdict == verdict

    def test_a_client_in_every_round_shows_nine_tenths_of_the_claimed_mu(self):
        result = example("federated_clients").audit(runs=2000)
        (bound,) = (own for own in result.final.lower if own.method == "gaussian-fit")
        assert 0.9 * result.test.claim.mu <= bound.mu <= result.test.claim.mu
