"""Lower bounds from explicit data sets stand beside upper bounds that are not known to be
attained.
"""

import pytest

import discreet as dp


def account(
    sampling: dp.ledger.Sampling, count: int, adjacency: dp.Adjacency, noise: float = 1.0
) -> dp.Guarantee:
    return dp.account(
        [(dp.ledger.Step(sampling, dp.ledger.GaussianSum("g", 1.0, noise)), count)],
        delta=1e-6,
        adjacency=adjacency,
    )


def test_p26_shuffled_epochs_cost_about_the_unamplified_gaussian_and_never_the_poisson_number() -> (
    None
):
    shuffled = account(dp.ledger.Shuffled(200), 1, dp.Adjacency.ZERO_OUT)
    poisson = account(dp.Poisson(1 / 200), 200, dp.Adjacency.ZERO_OUT)
    assert shuffled.lower == pytest.approx(4.512, abs=1e-3)  # [ChuaEtAl2024], recomputed
    assert shuffled.upper == pytest.approx(4.8866, abs=1e-3)
    assert poisson.upper < 0.59 < shuffled.lower / 7


def test_fixed_size_is_bracketed_by_an_explicit_pair() -> None:
    guarantee = account(dp.FixedSize(5000, 1_000_000), 200, dp.Adjacency.REPLACE_ONE)
    assert guarantee.lower == pytest.approx(6.496, abs=5e-3)
    assert guarantee.lower <= guarantee.upper < 6.63


def test_a_mixture_of_policies_claims_no_such_lower_bound() -> None:
    steps = [
        (dp.ledger.Step(dp.ledger.Shuffled(200), dp.ledger.GaussianSum("g", 1.0, 1.0)), 1),
        (dp.ledger.Step(dp.ledger.Shuffled(100), dp.ledger.GaussianSum("g", 1.0, 1.0)), 1),
    ]
    assert dp.account(steps, delta=1e-6, adjacency=dp.Adjacency.ZERO_OUT).lower == 0.0


def test_zero_out_of_a_fixed_size_sample_claims_none() -> None:
    assert account(dp.FixedSize(50, 1000), 10, dp.Adjacency.ZERO_OUT).lower == 0.0
