from __future__ import annotations

import math

import pytest

from discreet.accounting.costs import Gaussian
from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.analyses.shuffled import shuffled_lower
from discreet.accounting.tight.lattice.bracket import epsilon_bracket
from discreet.accounting.tight.lattice.pair import Composition
from discreet.units import Adjacency


@pytest.mark.parametrize(
    ("batches", "noise", "delta", "published", "poisson", "unamplified"),
    [
        (200, 1.0, 1e-6, 4.512181303, 0.5867884, 4.886554124),
        (200, 0.5, 1e-6, 10.99715090, 6.498767451, 10.99715122),
        (1000, 0.6, 1e-6, 8.833375011, 2.106667697, 8.840530292),
        (100, 0.8, 1e-5, 5.623979880, 1.510838018, 5.679586858),
        (10_000, 0.4, 1e-6, 14.45071246, 5.344475348, 14.45077697),
    ],
)
def test_one_epoch_against_the_formula_of_its_authors(
    batches: int, noise: float, delta: float, published: float, poisson: float, unamplified: float
) -> None:
    # Formula and grid of google-research/dpsgd_batch_sampler_accounting; ours searches another grid
    # of thresholds.
    found = shuffled_lower(batches=batches, noise_multiplier=noise, epochs=1, delta=delta)
    assert math.isclose(found, published, rel_tol=2e-5)
    assert found <= unamplified
    assert found > poisson * 1.5  # Poisson accounting of shuffled batches (P26) is refuted


def test_replace_one_is_further_apart_and_still_below_the_unamplified_pair() -> None:
    zero_out = shuffled_lower(batches=200, noise_multiplier=1.0, epochs=1, delta=1e-6)
    replace = shuffled_lower(
        batches=200, noise_multiplier=1.0, epochs=1, delta=1e-6, adjacency=Adjacency.REPLACE_ONE
    )
    assert zero_out < replace <= _unamplified(0.5, 1)


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
def test_epochs_add_and_stay_below_the_upper_bound(adjacency: Adjacency) -> None:
    factor = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
    last = 0.0
    for epochs in (1, 2, 5):
        found = shuffled_lower(
            batches=50, noise_multiplier=1.0, epochs=epochs, delta=1e-5, adjacency=adjacency
        )
        assert last < found <= _unamplified(1.0 / factor, epochs, 1e-5)
        last = found


def _unamplified(noise: float, epochs: int, delta: float = 1e-6) -> float:
    return epsilon_bracket(
        Composition(((directions(Gaussian(noise))[0], epochs),)), delta, 1e-3
    ).upper


def test_one_batch_is_no_shuffling_at_all() -> None:
    found = shuffled_lower(batches=1, noise_multiplier=1.0, epochs=1, delta=1e-6)
    assert 4.5 < found <= 4.886554125


def test_nothing_is_said_about_add_or_remove() -> None:
    args = {"batches": 10, "noise_multiplier": 1.0, "epochs": 1, "delta": 1e-6}
    assert shuffled_lower(**args, adjacency=Adjacency.ADD_OR_REMOVE) == 0.0  # type: ignore[arg-type]
