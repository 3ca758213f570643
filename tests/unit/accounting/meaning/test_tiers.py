from __future__ import annotations

import math

import pytest

from discreet.accounting.meaning.tiers import Tier, tier
from discreet.units import Adjacency, Guarantee, Numerics, Unit


def guarantee(
    upper: float,
    *,
    unit: Unit = Unit.USER,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
    void: tuple[str, ...] = (),
) -> Guarantee:
    return Guarantee(
        lower=0.0,
        upper=upper,
        delta=1e-6,
        unit=unit,
        adjacency=adjacency,
        accountant="tight",
        sampling=("Poisson",),
        numerics=Numerics.CERTIFIED,
        assumptions=(),
        voided_by=void,
        estimate=0.0,
    )


@pytest.mark.parametrize(
    ("epsilon", "expected"),
    [
        (0.3, Tier.STRONG),
        (1.0, Tier.STRONG),
        (math.nextafter(1.0, 2.0), Tier.REASONABLE),
        (10.0, Tier.REASONABLE),
        (math.nextafter(10.0, 11.0), Tier.WEAK),
        (1e9, Tier.WEAK),
        (math.inf, Tier.NONE),
    ],
)
def test_tiers_of_the_upper_bound(epsilon: float, expected: Tier) -> None:
    assert tier(guarantee(epsilon)).tier is expected  # the estimate is 0 throughout


def test_remarks_say_when_the_tiers_do_not_apply_as_they_are() -> None:
    assert tier(guarantee(1.0)).remarks == ()
    assert "users" in tier(guarantee(1.0, unit=Unit.EXAMPLE)).remarks[0]
    assert "replace-one" in tier(guarantee(1.0, adjacency=Adjacency.REPLACE_ONE)).remarks[0]
    assert "audit" in tier(guarantee(11.0)).remarks[0]


def test_a_void_guarantee_has_no_tier() -> None:
    reading = tier(guarantee(math.inf, void=("unsafe_test_key",)))
    assert reading.tier is Tier.NONE
    assert "unsafe_test_key" in reading.remarks[0]
