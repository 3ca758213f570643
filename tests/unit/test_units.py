"""The guarantee is a sentence with everything in it, rounded to the honest side."""

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

import discreet as dp


def guarantee(**changes: Any) -> dp.Guarantee:
    values: dict[str, Any] = {
        "lower": 2.934567,
        "upper": 2.940001,
        "delta": 1e-6,
        "unit": dp.Unit.USER,
        "adjacency": dp.Adjacency.ZERO_OUT,
        "accountant": "tight",
        "sampling": ("Poisson with probability 0.01",),
        "numerics": dp.Numerics.IDEALISED,
        "assumptions": ("noise behaves as real-valued noise",),
    }
    return dp.Guarantee(**(values | changes))


def test_p48_the_sentence_has_every_item() -> None:
    text = str(guarantee())
    for item in (
        "2.941",
        "2.934",
        "1e-06",
        "user",
        "zero-out",
        "tight",
        "Poisson with probability 0.01",
        "idealised",
        "real-valued",
    ):
        assert item in text


def test_p48_no_item_may_be_left_out() -> None:
    for name in ("unit", "adjacency", "sampling", "delta", "accountant", "numerics", "assumptions"):
        complete = {
            field: getattr(guarantee(), field) for field in dp.Guarantee.__dataclass_fields__
        }
        del complete[name]
        with pytest.raises(TypeError, match=name):
            dp.Guarantee(**complete)
    with pytest.raises(dp.errors.ParameterError, match="sampling"):
        guarantee(sampling=())


def test_printing_never_flatters() -> None:
    text = str(guarantee(lower=0.99999999, upper=1.00000001))
    assert "(1.001, 1e-06)" in text
    assert "at least 0.9999 and at most 1.001" in text


def test_epsilon_is_the_upper_bound_and_not_a_float_of_the_guarantee() -> None:
    assert guarantee().epsilon == 2.940001
    with pytest.raises(TypeError):
        float(guarantee())  # type: ignore[arg-type]


def test_an_infinite_bound_is_said() -> None:
    assert "(infinity, 1e-06)" in str(guarantee(upper=math.inf))


def test_t05_marks_void_it_and_no_number_is_said() -> None:
    void = guarantee(upper=math.inf, voided_by=("unsafe_test_key", "unsafe_seed"))
    assert str(void) == "NO GUARANTEE: voided by unsafe_test_key, unsafe_seed."


def test_what_counts_and_what_would_if_all_were_fixed_are_said() -> None:
    words = str(guarantee(basis="20 steps, a list", if_fixed=2.12345678))
    assert "What counts: 20 steps, a list." in words
    assert (
        "If all runs had been fixed before the first release, epsilon would be at most 2.124."
        in words
    )
    assert "What counts" not in str(guarantee())


@pytest.mark.parametrize(
    "changes",
    [
        {"lower": -0.1},
        {"lower": 3.0},
        {"lower": math.nan},
        {"upper": math.nan},
        {"upper": -math.inf},
        {"delta": 1.0000001},
        {"delta": -1e-9},
        {"estimate": 2.0},
        {"delta_lower": 1e-5},
        {"unit": "example"},
        {"adjacency": "add-or-remove"},
        {"numerics": "exact"},
        {"accountant": ""},
        {"voided_by": ("unsafe_test_key",)},  # with a number
    ],
)
def test_nonsense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(dp.errors.ParameterError):
        guarantee(**changes)


def test_a_guarantee_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        guarantee().upper = 0.0  # type: ignore[misc]


def test_units_are_equal_by_name() -> None:
    assert dp.Unit("hospital") == dp.Unit("hospital") != dp.Unit.USER
    with pytest.raises(dp.errors.ParameterError):
        dp.Unit("")
