"""OpenDP: its Gaussian and Laplace mechanisms, audited from samples."""

import opendp.prelude as dp
from field.kit import case

import dpaudit
from dpaudit.scores import Scores

dp.enable_features("contrib")
RUNS = 4000


def audited(measurement, distance, claim):
    with_it = [measurement(distance) for _ in range(RUNS)]
    without = [measurement(0.0) for _ in range(RUNS)]
    return dpaudit.test_claim(Scores.from_samples(with_it, without), claim)


@case("Gaussian measurement, scale 1, distance 1", claims="1-GDP (zCDP 1/2)")
def gaussian():
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    return audited(dp.m.make_gaussian(*space, scale=1.0), 1.0, dpaudit.Claim.from_mu(1.0))


@case("Laplace measurement, scale 1, distance 1", claims="epsilon 1")
def laplace():
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    return audited(dp.m.make_laplace(*space, scale=1.0), 1.0, dpaudit.Claim.from_epsilon(1.0, 0.0))
