from __future__ import annotations

import math

import pytest

from discreet.accounting import rdp
from discreet.accounting.costs import PoissonGaussian
from discreet.accounting.tuning import PoissonTrials, TruncatedNegativeBinomial, selection_epsilon
from discreet.errors import AccountingError, ParameterError

ONE_EPOCH = [(PoissonGaussian(0.005, 1.0), 200)]  # the guide, appendix C


@pytest.mark.parametrize(
    ("trials", "stored", "published"),
    # stored: dp-accounting 0.6.0, RepeatAndSelectDpEvent with its list of orders; published: the
    # guide, appendix C.4.
    [
        (TruncatedNegativeBinomial.with_mean(0, 100), 2.411803385456922, 2.42),
        (TruncatedNegativeBinomial(1, 0.01), 2.7402732468361837, 2.76),
        (TruncatedNegativeBinomial(1, 0.001), 3.441932485512738, 3.45),
        (PoissonTrials(100.0), 4.17913680324559, 4.18),
    ],
)
def test_published_table(
    trials: TruncatedNegativeBinomial | PoissonTrials, stored: float, published: float
) -> None:
    found = selection_epsilon(ONE_EPOCH, trials, delta=1e-6).value
    assert stored * (1 - 1e-3) <= found <= stored * (1 + 1e-6)  # our search of orders is finer
    assert found <= published


def test_delta_hat_from_a_tighter_analysis_helps() -> None:
    # Stored: PLD delta-hat (dx 1e-4) gives 2.4872; any valid delta-hat is allowed, zero would be
    # the (invalid) limit.
    rough = selection_epsilon(ONE_EPOCH, PoissonTrials(100.0), delta=1e-6).value
    limit = selection_epsilon(
        ONE_EPOCH, PoissonTrials(100.0, delta_of=lambda _: 0.0), delta=1e-6
    ).value
    assert limit < 2.487 < rough


def test_distribution_of_the_number_of_runs() -> None:
    logarithmic = TruncatedNegativeBinomial.with_mean(0, 100)
    assert logarithmic.gamma == pytest.approx(0.0015421150741167368, rel=1e-6)
    assert logarithmic.probability(1) == pytest.approx(0.154, abs=5e-4)
    assert sum(logarithmic.probability(k) for k in range(1, 50)) == pytest.approx(
        0.6804, abs=1e-4
    )  # the guide says 60 %
    for shape in (-0.5, 0.0, 0.3, 1.0, 4.0):
        trials = TruncatedNegativeBinomial.with_mean(shape, 20.0)
        chances = [trials.probability(k) for k in range(1, 6000)]
        assert sum(chances) == pytest.approx(1.0, abs=1e-3)
        assert sum(k * p for k, p in enumerate(chances, 1)) == pytest.approx(20.0, rel=0.02)
    geometric = TruncatedNegativeBinomial(1, 0.001)
    assert sum(geometric.probability(k) for k in range(1, 10)) == pytest.approx(0.00896, abs=1e-5)


def test_tuning_costs_more_than_one_run_and_less_than_all_of_them() -> None:
    """P39: the best of many runs is not charged as one."""
    one = rdp.epsilon(ONE_EPOCH, delta=1e-6).value
    everything = rdp.epsilon([(cost, 100 * count) for cost, count in ONE_EPOCH], delta=1e-6).value
    assert (
        one
        < selection_epsilon(ONE_EPOCH, TruncatedNegativeBinomial(1, 0.01), delta=1e-6).value
        < everything
    )


def test_theorem_six_needs_the_exponential_of_epsilon_hat() -> None:
    # The guide prints epsilon-hat = 1 + 1/(order-1), which is larger, so its delta-hat is smaller:
    # too good to be true.
    seen = []

    def delta_of(epsilon: float) -> float:
        seen.append(epsilon)
        return 1e-9

    selection_epsilon(ONE_EPOCH, PoissonTrials(10.0, delta_of=delta_of), delta=1e-6)
    assert max(seen[1:]) < 40.0
    order = selection_epsilon(ONE_EPOCH, PoissonTrials(10.0, delta_of=delta_of), delta=1e-6).order
    assert seen[-1] == pytest.approx(math.log1p(1 / (order - 1)), rel=1e-12)


def test_refusals() -> None:
    with pytest.raises(ParameterError):
        TruncatedNegativeBinomial(-1.0, 0.1)
    with pytest.raises(ParameterError):
        TruncatedNegativeBinomial(0.0, 1.0)
    with pytest.raises(ParameterError):
        TruncatedNegativeBinomial.with_mean(0.0, 1.0)
    with pytest.raises(ParameterError):
        PoissonTrials(0.5)
    with pytest.raises(AccountingError):
        selection_epsilon([], PoissonTrials(5.0), delta=1e-6)
