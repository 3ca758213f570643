"""A plan as a table for people."""

from typing import Any

import discreet as dp
from discreet.mechanisms import Gaussian, Groups
from discreet.sampling import Sampler

SAMPLER = Sampler(dp.Poisson(0.01), records=1_000, steps=10)


def plan(mechanism: Any = None, **fields: Any) -> dp.Plan:
    chosen: dict[str, Any] = {"sampler": SAMPLER, "mechanism": mechanism or Gaussian(1.0, 1.1)}
    return dp.Plan(**chosen | fields)


def test_a_large_delta_is_named_in_words() -> None:
    made = dp.Plan.dpsgd(records=1_000, expected_batch_size=100, steps=5, epsilon=2.0, delta=1e-3)
    assert "is not below 1/records" in made.notes[0]
    assert made.notes[0] in made.explain()
    assert dp.Plan.dpsgd(records=1_000, expected_batch_size=100, steps=5, epsilon=2.0).notes == ()


def test_a_unit_that_the_sampler_cannot_check_is_named() -> None:
    assert "everything of one user" in plan(unit=dp.Unit.USER).notes[0]


def test_explain_shows_every_number_and_no_epsilon_unasked() -> None:
    made = plan(Groups({"grad/*": Gaussian(0.5, 2.0), "metric/*": Gaussian(1.0, 40.0)})).for_leaves(
        {"grad/w": 30, "metric/a": 1}
    )
    text = made.explain()
    for word in (
        "grad/w",
        "metric/a",
        "30",
        "0.5",
        "40",
        "99.8 %",
        "Poisson with probability 0.01",
        "10 steps",
        "0.1 passes",
    ):
        assert word in text
    assert "epsilon" not in text
    assert str(dp.account(made, delta=1e-5)) in made.explain(delta=1e-5)
