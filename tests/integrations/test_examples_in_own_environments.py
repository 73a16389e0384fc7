"""Examples of libraries whose dependencies conflict with ours, each in an environment of its own.

The tests do not need our fixtures. Install ``dpaudit flwr pytest`` for Flower, ``dpaudit pfl
pytest`` for pfl-research, ``dpaudit nvflare pytest`` for NVFlare, or ``dpaudit tensorflow-privacy
tensorflow==2.15.1 'numpy<2' pytest`` for TensorFlow Privacy. For FedML, install ``fedml==0.9.6``
without its dependencies beside ``dpaudit torch multiprocess dill pytest``. Then run

    python -m pytest --noconftest tests/integrations/test_examples_in_own_environments.py
"""

import functools
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import dpaudit
from dpaudit.pipelines import batch, public, with_and_without

pytestmark = pytest.mark.filterwarnings("ignore")


def example(name):
    path = Path(__file__).parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_canary_changes_the_predictions_of_tensorflow_privacy():
    pytest.importorskip("tensorflow_privacy")
    module = example("tensorflow_privacy_training")
    without, with_it = (
        module.train(module.CANARY, inserted, 1, noise_multiplier=1e-3).log_likelihood()
        for inserted in (False, True)
    )
    assert with_it > without + 0.5


DATA = np.random.default_rng(1).normal(size=(16, 3)).astype(np.float32)


def summed(data, seed, *, poisson, divisor=8.0):
    """A training loop with the sums of TensorFlow Privacy."""
    import tensorflow as tf
    from tensorflow_privacy import GaussianSumQuery

    random, theta = np.random.default_rng(seed), tf.zeros(3)
    tf.random.set_seed(seed)
    query = GaussianSumQuery(1.0, 1.0)
    state = query.initial_global_state()
    order = random.permutation(len(data))
    for step in range(2):
        drawn = random.random(len(data)) < 0.5
        places = np.flatnonzero(drawn) if poisson else order[8 * step : 8 * step + 8]
        batch(places)
        total = query.initial_sample_state(theta)
        for row in data[places]:
            total = query.accumulate_record(query.derive_sample_params(state), total, row)
        noisy, state, _ = query.get_noised_result(total, state)
        theta -= noisy / divisor
        public(divisor=divisor)
    return theta.numpy()


def replaced(data):
    other = data.copy()
    other[-1] = 0
    return data, other


@pytest.mark.parametrize("poisson", [True, False])
def test_a_correct_loop_with_tensorflow_privacy_has_no_finding(poisson):
    pytest.importorskip("tensorflow_privacy")
    pair = with_and_without(DATA, 4) if poisson else replaced(DATA)
    result = dpaudit.check_pipeline(functools.partial(summed, poisson=poisson), pair)
    assert result.passed, result
    assert not result.warnings
    assert result["number of steps"].measured == "2"
    assert result["returned values"].verdict == "passed"


def test_a_loop_with_tensorflow_privacy_that_divides_by_the_number_of_records():
    pytest.importorskip("tensorflow_privacy")

    def train(data, seed):
        return summed(data, seed, poisson=True, divisor=len(data) / 2)

    broken = dpaudit.check_pipeline(train, with_and_without(DATA)).broken
    assert [finding.rule.name for finding in broken] == ["divisor"]


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_keras_training_with_tensorflow_privacy_has_no_finding(shuffle):
    pytest.importorskip("tensorflow_privacy")
    module, labels = example("tensorflow_privacy_training"), np.arange(16) % 2

    def train(data, seed):
        return module.fit(*data, seed=seed, batch_size=8, shuffle=shuffle)

    pair = tuple((inputs, labels) for inputs in replaced(DATA))
    result = dpaudit.check_pipeline(train, pair)
    assert not result.broken
    assert not result.warnings
    for quantity in ("number of steps", "divisor", "clip norm", "noise scale", "learning rate"):
        assert result[quantity].verdict == "passed"


def test_a_client_of_flower_with_too_little_noise_is_found():
    pytest.importorskip("flwr")
    result = example("flower_clients").audit(runs=40, noise_multiplier=0.5)
    assert result.verdict == "violation"
    assert result.threat_model is dpaudit.ThreatModel.HIDDEN_STATE


def test_a_client_of_flower_with_more_data_than_the_others_is_found():
    pytest.importorskip("flwr")
    module = example("flower_clients")
    assert module.audit(runs=40, examples=module.EQUAL).verdict != "violation"
    assert module.audit(runs=40, examples=module.UNEQUAL).verdict == "violation"


@pytest.mark.parametrize("sampled", [4, 2])
def test_flower_through_the_whole_pipeline(sampled):
    """Equal numbers have no finding, whether all clients take part or some."""
    pytest.importorskip("flwr")
    module = example("flower_clients")

    def pipeline(clients, seed):
        def update(client, weights):
            return clients[client - 1] - weights

        return module.federate(update, seed=seed, sampled=sampled)

    clients = list(np.random.default_rng(0).normal(size=(module.CLIENTS, module.PARAMETERS)))
    other = [*clients[:-1], np.full(module.PARAMETERS, 1e-9)]
    result = dpaudit.check_pipeline(pipeline, (clients, other))
    assert not result.broken
    assert not result.warnings
    assert result["noise of the result"].verdict == "passed"


@pytest.mark.parametrize("place", [-1, 3])
@pytest.mark.parametrize("divisor", [3.0, None])
def test_poisson_samples_of_clients_of_flower_through_the_whole_pipeline(place, divisor):
    """A client that is added has no finding if the sum of a sample has a fixed divisor."""
    pytest.importorskip("flwr")
    from flwr.app import ArrayRecord, MessageType, RecordDict
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

    module = example("flower_clients")

    class PoissonSamples(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            (self.start,) = arrays.to_numpy_ndarrays()
            nodes = np.array(list(grid.get_node_ids()))
            nodes = nodes[np.random.random(len(nodes)) < 0.5]  # noqa: NPY002
            batch(nodes - 1)
            record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
            return self._construct_messages(record, nodes.tolist(), MessageType.TRAIN)

        def aggregate_train(self, server_round, replies):
            (updates,) = zip(
                *(r.content["arrays"].to_numpy_ndarrays() for r in replies), strict=True
            )
            total = np.sum([update - self.start for update in updates], axis=0)
            return ArrayRecord([self.start + total / self.divisor]), None

    def pipeline(clients, seed):
        np.random.seed(seed)  # noqa: NPY002
        module.CLIENTS = len(clients)
        samples = PoissonSamples()
        samples.divisor = len(clients) / 2 if divisor is None else divisor
        strategy = DifferentialPrivacyServerSideFixedClipping(
            samples, noise_multiplier=2.0, clipping_norm=1.0, num_sampled_clients=samples.divisor
        )
        grid = module.ClientsInThisProcess(
            lambda client, weights: clients[client - 1] - weights, (1,) * len(clients)
        )
        start = ArrayRecord([module.INITIAL.copy()])
        result = strategy.start(grid=grid, initial_arrays=start, num_rounds=module.ROUNDS)
        return result.arrays.to_numpy_ndarrays()[0]

    clients = np.random.default_rng(0).normal(size=(7, module.PARAMETERS))
    result = dpaudit.check_pipeline(pipeline, with_and_without(clients, place))
    assert result["batches of other records"].verdict == "passed"
    assert not result.warnings
    expected = {"noise of the result"} if divisor is None else set()
    assert {finding.rule.name for finding in result.broken} == expected


def test_strategies_of_flower_are_checked_over_several_rounds():
    pytest.importorskip("flwr")
    module = example("flower_strategies")
    assert not module.check(module.fixed).broken
    for wrong in (
        module.check(module.fixed, weights=[1.0] * 7 + [7.0]),
        module.check(module.adaptive),  # its clip norm changes between clipping and noise
        module.check(module.adaptive_at_clients, mod=module.adaptiveclipping_mod),
        module.check(module.fixed, weights=[1.0] * 6),  # two of eight clients drop out
    ):
        assert wrong.broken
    assert not module.check(module.fixed_at_clients, mod=module.fixedclipping_mod).broken


def test_local_noise_and_sums_of_secure_aggregation_are_checked():
    pytest.importorskip("flwr")
    module = example("flower_strategies")
    assert module.check_local().passed
    assert module.check_secure_sum().passed
    names = [finding.rule.name for finding in module.check_secure_sum(share=0.7).broken]
    assert names == ["noise size"]


@pytest.mark.parametrize("library", ["pfl", "fedml", "nvflare"])
def test_the_aggregation_of_a_federated_library_is_checked_in_ten_lines(library):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    module = example("federated_libraries")
    step = getattr(module, library)
    assert module.check(step).passed
    wrong = module.check(step, share=0.7)
    assert [finding.rule.name for finding in wrong.broken] == ["noise size"]


def test_a_site_of_nvflare_with_more_data_than_the_others_is_found():
    pytest.importorskip("nvflare")
    module = example("federated_libraries")
    assert module.check(module.nvflare, weights=[1.0] * 15 + [7.0]).broken


def test_a_client_of_flower_shows_nine_tenths_of_the_claimed_mu():
    pytest.importorskip("flwr")
    result = example("flower_clients").audit(runs=1000)
    (bound,) = (own for own in result.final.lower if own.method == "gaussian-fit")
    assert 0.9 * result.test.claim.mu <= bound.mu <= result.test.claim.mu
