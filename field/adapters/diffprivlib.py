"""diffprivlib: logistic regression with objective perturbation, audited with a record replaced."""

import warnings

import numpy as np
from diffprivlib.mechanisms import GaussianAnalytic, Laplace
from diffprivlib.models import LogisticRegression
from field.kit import case

import dpaudit
from dpaudit.scores import Scores

EPSILON, RUNS = 4.0, 4000


def audited(release, claim, runs=RUNS):
    """``release(inserted, seed)`` returns one number."""
    with_it = [release(True, seed) for seed in range(runs)]
    without = [release(False, runs + seed) for seed in range(runs)]
    return dpaudit.test_claim(Scores.from_samples(with_it, without), claim)


@case("logistic regression, data_norm given", claims="epsilon 4, for replacing a record")
def logistic_regression():
    """Ten public records; one record of the largest norm is replaced by its opposite."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    features = rng.normal(size=(10, 2))
    features /= 2 * np.linalg.norm(features, axis=1, keepdims=True)
    classes = (features[:, 0] > 0).astype(int)

    def release(inserted, seed):
        record = np.array([[1.0 if inserted else -1.0, 0.0]])
        model = LogisticRegression(epsilon=EPSILON, data_norm=1.0, random_state=seed)
        model.fit(np.vstack([features, record]), np.append(classes, 1))
        return float(model.coef_[0, 0])

    return audited(release, dpaudit.Claim.from_epsilon(EPSILON, 0.0), runs=1000)


@case("Laplace mechanism", claims="epsilon 4")
def laplace():
    mechanism = Laplace(epsilon=EPSILON, sensitivity=1.0)
    return audited(
        lambda inserted, seed: mechanism.randomise(float(inserted)),
        dpaudit.Claim.from_epsilon(EPSILON, 0.0),
    )


@case("analytic Gaussian mechanism", claims="epsilon 4, delta 1e-5")
def gaussian():
    mechanism = GaussianAnalytic(epsilon=EPSILON, delta=1e-5, sensitivity=1.0)
    return audited(
        lambda inserted, seed: mechanism.randomise(float(inserted)),
        dpaudit.Claim.from_epsilon(EPSILON, 1e-5),
    )
