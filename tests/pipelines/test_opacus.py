"""Whole pipelines with Opacus: what N decides (opacus#571), and correct trainings."""

import pytest

pytest.importorskip("opacus")
torch = pytest.importorskip("torch")

from helpers import rule_names, two_classes  # noqa: E402
from opacus import PrivacyEngine  # noqa: E402
from opacus.optimizers import DPOptimizer  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import dpaudit  # noqa: E402
from dpaudit import check_pipeline  # noqa: E402
from dpaudit.pipelines import with_and_without, with_zeros  # noqa: E402


def start():
    torch.manual_seed(0)
    return nn.Linear(4, 2)


def pipeline(batch, *, epochs=1, optimizer=torch.optim.SGD, after=None, **options):
    """The pipeline of the Opacus tutorials."""

    def train(data, seed):
        model = start()
        torch.manual_seed(seed)
        model, private, loader = PrivacyEngine(accountant="rdp").make_private(
            module=model,
            optimizer=optimizer(model.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(*data), batch_size=batch, shuffle=True),
            max_grad_norm=1.0,
            **{"noise_multiplier": 1.0, **options},
        )
        for _ in range(epochs):
            for inputs, labels in loader:
                private.zero_grad()
                nn.functional.cross_entropy(model(inputs), labels).backward()
                private.step()
        return model if after is None else after(model, data)

    return train


def bites(records, batch):
    """Whether one more record changes what Opacus 1.6 computes from the number of records."""

    def settings(count):
        batches = -(-count // batch)
        return batches, int(count * (1 / batches))

    return settings(records) != settings(records + 1)


PAIRS = [(64, 64), (160, 16), (65, 16), (69, 16)]
PAIRS += [(count, batch) for batch in (4, 7) for count in range(batch, 3 * batch + 1)]


@pytest.mark.parametrize(("count", "batch"), PAIRS)
def test_opacus_571_is_found_in_two_runs_exactly_where_it_bites(count, batch):
    """Of the whole table of ``benchmarks/opacus_571.py``, all pairs with small batches."""
    result = check_pipeline(pipeline(batch), with_and_without(two_classes(count + 1)))
    assert result.calls == 2
    assert bool(result.broken) == bites(count, batch)
    if bites(count, batch):
        assert "divisor" in rule_names(result.broken)
        assert result["divisor"].epsilon > 0


def test_every_quantity_of_opacus_571_is_named_with_its_epsilon():
    result = check_pipeline(pipeline(64, epochs=5), with_and_without(two_classes(65)))
    assert rule_names(result.broken) == {"number of steps", "sampling rate", "divisor"}
    assert result["number of steps"].measured == "5 and 10"
    assert result["number of steps"].epsilon == float("inf")
    assert result["divisor"].measured == "64 and 32"
    assert "No finite epsilon holds for these data sets." in result.note


def test_a_divisor_alone_leaves_a_claim_of_at_least_its_own_epsilon():
    result = check_pipeline(pipeline(8), with_and_without(two_classes(35)))
    assert rule_names(result.broken) == {"divisor"}
    assert "must be at least 10.56 at delta 1e-05" in result.note


def test_a_record_of_zeros_is_found_too():
    result = check_pipeline(pipeline(64), with_zeros(two_classes(65)))
    assert "number of steps" in rule_names(result.broken)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_correct_poisson_sampling_has_no_finding(optimizer):
    train = pipeline(16, epochs=2, optimizer=optimizer)
    result = check_pipeline(train, with_and_without(two_classes(66), 7))
    assert result.passed
    assert not result.warnings
    assert result["returned values"].verdict == "passed"


def test_correct_shuffling_with_a_replaced_record_has_no_finding():
    data = two_classes(48)
    other = data[0].clone(), data[1]
    other[0][-1] = 0
    result = check_pipeline(pipeline(16, poisson_sampling=False), (data, other))
    assert result.passed
    assert not result.warnings


def test_an_added_record_of_a_shuffled_training_displaces_another():
    result = check_pipeline(pipeline(16, poisson_sampling=False), with_and_without(two_classes(66)))
    assert result.passed
    assert rule_names(result.warnings) == {"batches of other records"}


def test_normalisation_by_private_statistics():
    train = pipeline(16)

    def normalised(data, seed):
        inputs, labels = data
        return train(((inputs - inputs.mean(0)) / inputs.std(0), labels), seed)

    result = check_pipeline(normalised, with_and_without(two_classes(66)))
    assert rule_names(result.broken) == {"features of other records"}
    assert result["features of other records"].epsilon > 10


def test_a_private_loss_that_is_returned_or_printed():
    def after(model, data):
        loss = nn.functional.cross_entropy(model(data[0]), data[1]).item()
        print(f"loss {loss}")
        return model, loss

    result = check_pipeline(pipeline(16, after=after), with_and_without(two_classes(66)))
    assert rule_names(result.broken) == {"returned values", "logs"}


def test_a_loss_on_public_data_is_post_processing():
    public = two_classes(20)

    def after(model, data):
        return model, nn.functional.cross_entropy(model(public[0]), public[1]).item()

    assert check_pipeline(pipeline(16, after=after), with_and_without(two_classes(66))).passed


def test_early_stopping_by_a_private_loss():
    def train(data, seed):
        model = nn.Linear(4, 2)
        private = DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            expected_batch_size=16,
        )
        from opacus import GradSampleModule

        model = GradSampleModule(model)
        for _ in range(1 + int(data[0][:, 0].sum() > 100)):
            private.zero_grad()
            nn.functional.cross_entropy(model(data[0]), data[1]).backward()
            private.step()
        return model

    data = two_classes(20)
    data[0][-1] = 200
    result = check_pipeline(train, with_and_without(data))
    assert "number of steps" in rule_names(result.broken)


def test_nothing_of_the_user_changes():
    from opacus.accountants import RDPAccountant
    from torch.utils.data._utils.fetch import _MapDatasetFetcher

    places = [
        (torch, "randperm"), (torch, "rand"), (torch, "normal"), (DPOptimizer, "__init__"),
        (RDPAccountant, "step"), (_MapDatasetFetcher, "fetch"), (torch.Tensor, "normal_"),
    ]  # fmt: skip
    before = [getattr(*place) for place in places]
    state, data = torch.get_rng_state(), two_classes(33)
    kept = [part.clone() for part in data]

    def failing(given, seed):
        given[0].zero_()
        pipeline(8)(given, seed)
        raise ValueError("the disk is full")

    with pytest.raises(Exception, match="the disk is full"):
        check_pipeline(failing, with_and_without(data))
    assert before == [getattr(*place) for place in places]
    assert torch.equal(state, torch.get_rng_state())
    assert all(map(torch.equal, kept, data))


@pytest.mark.filterwarnings("ignore")  # Opacus warns in every training
def test_opacus_571_is_suspected_after_20_trainings_and_confirmed_within_60():
    data, without = two_classes(65), (two_classes(65)[0][:64], two_classes(65)[1][:64])
    data[0][-1] = 0
    claim = dpaudit.Claim.from_dpsgd(noise_multiplier=4.0, steps=5)
    train = pipeline(64, epochs=5, noise_multiplier=4.0)
    result = dpaudit.audit(
        train, "length", neighbours=(without, data), claim=claim, runs=20, initial=start()
    )
    assert result.verdict == "violation"
    assert result.runs == 20
    assert result.test.p_value <= 1e-5
