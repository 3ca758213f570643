"""Clipped sums: no record moves a group by more than its clip norm, whatever it holds."""

import math

import pytest
import torch
from torch import Tensor

import discreet as dp
from discreet.mechanisms import Group, Mechanism, Microbatches
from discreet.training.clipping import Sums, refuse_slots
from discreet.training.factors.factors import Dense
from discreet.training.passes.contributions import Contributions, Piece

CLIP = 0.5


def contributed(rows: Tensor, leaf: str = "grad/w") -> Contributions:
    size = rows.shape[1]
    piece = Piece(((size,), (1,), 0), Dense(rows))
    return Contributions({leaf: (piece,)}, len(rows), len(rows))


def sums_of(
    *passes: Contributions, mechanism: Mechanism | None = None, statistics: Tensor | None = None
) -> Sums:
    leaves = {"grad/w": 3} if statistics is None else {"grad/w": 3, "metric/m": 1}
    bound = (mechanism or dp.Gaussian(CLIP, 1.0)).bind(leaves)
    sums = Sums(bound, bound.initial_state, lambda group, _: (group, 0.0), torch.device("cpu"))
    for contributions in passes:
        sums.add(contributions, {} if statistics is None else {"metric/m": statistics})
    return sums


def norm(sums: Sums) -> float:
    return float(torch.from_numpy(sums.sum("grad/w").copy()).double().norm())


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4, 1e30])
def test_p01_one_record_moves_the_sum_by_at_most_the_clip_norm(size: float) -> None:
    sums = sums_of(contributed(torch.full((1, 3), size)))
    assert norm(sums) <= (1.0 + 1e-6) * min(1.0, math.sqrt(3.0) * size / CLIP)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_p13_a_record_that_is_not_finite_adds_nothing_and_changes_no_other(bad: float) -> None:
    rows = torch.tensor([[0.1, 0.2, 0.3], [bad, 0.0, 0.0]])
    with_it, without = sums_of(contributed(rows)), sums_of(contributed(rows[:1]))
    assert with_it.sum("grad/w").tolist() == without.sum("grad/w").tolist()


def test_passes_add_up_to_what_one_pass_gives() -> None:
    rows = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    parts = sums_of(contributed(rows[:2]), contributed(rows[2:]))
    whole = sums_of(contributed(rows))
    torch.testing.assert_close(
        torch.from_numpy(parts.sum("grad/w")).double(),
        torch.from_numpy(whole.sum("grad/w").copy()).double(),
        rtol=1e-6,
        atol=1e-7,
    )
    assert parts.sum("grad/w").dtype == "float64"


def test_p28_without_records_the_sum_is_zero() -> None:
    assert sums_of().sum("grad/w").tolist() == [0.0] * 3


def test_statistics_that_the_plan_does_not_name_are_refused_without_their_names() -> None:
    """A record may have chosen the name."""
    groups = dp.Groups({"grad/*": dp.Gaussian(CLIP, 1.0), "metric/*": dp.Gaussian(1.0, 1.0)})
    sums = sums_of(mechanism=groups, statistics=torch.zeros(2, 1))
    with pytest.raises(dp.errors.ModelError) as refused:
        sums.add(contributed(torch.zeros(2, 3)), {"secret 7": torch.zeros(2)})
    assert "secret" not in str(refused.value)


def test_statistics_of_another_size_are_refused() -> None:
    groups = dp.Groups({"grad/*": dp.Gaussian(CLIP, 1.0), "metric/*": dp.Gaussian(1.0, 1.0)})
    with pytest.raises(dp.errors.ModelError, match="rows of another size"):
        sums_of(contributed(torch.zeros(2, 3)), mechanism=groups, statistics=torch.zeros(2, 5))


def test_slots_are_for_the_numpy_engine_only() -> None:
    bound = Microbatches(dp.Gaussian(CLIP, 1.0), 2).bind({"grad/w": 3})
    groups: tuple[Group, ...] = bound.groups(bound.initial_state)
    with pytest.raises(dp.errors.ParameterError, match="slots"):
        refuse_slots(groups)
