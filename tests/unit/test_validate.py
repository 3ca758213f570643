"""One form of parameter error; numbers normalised; nothing but numbers taken for numbers."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

from discreet import _validate as check
from discreet.errors import ParameterError


@pytest.mark.parametrize(
    "value",
    [1, 1.0, np.float32(1), np.float64(1), np.float16(1), np.int8(1), np.uint64(1), Fraction(1)],
)
def test_every_kind_of_number_becomes_the_same_float(value: object) -> None:
    number = check.real("Owner", "name", value)
    assert type(number) is float
    assert number == 1.0


@pytest.mark.parametrize(
    "value",
    [
        True,
        "1",
        None,
        b"1",
        [1.0],
        np.array([1.0]),
        np.array(1.0),
        1j,
        math.nan,
        math.inf,
        -math.inf,
        10**400,
    ],
)
def test_what_is_no_finite_number_is_refused(value: object) -> None:
    with pytest.raises(
        ParameterError, match="The 'name' parameter of Owner must be a finite number"
    ):
        check.real("Owner", "name", value)


@pytest.mark.parametrize("value", [0, 0.0, -0.0, -1, -1e-300, np.float32(0)])
def test_positive_refuses_zero_and_below(value: object) -> None:
    with pytest.raises(ParameterError, match="above 0"):
        check.positive("Owner", "name", value)


def test_negative_zero_becomes_zero() -> None:
    assert math.copysign(1.0, check.real("Owner", "name", -0.0)) == 1.0


def test_fraction_excludes_its_ends_unless_asked() -> None:
    assert check.fraction("Owner", "name", 1, one=True) == 1.0
    assert check.fraction("Owner", "name", 0, zero=True) == 0.0
    for value in (0, 1, -0.1, 1.0000001):
        with pytest.raises(ParameterError, match=r"a number in \(0, 1\)"):
            check.fraction("Owner", "name", value)


@pytest.mark.parametrize("value", [1.0, np.float64(3), "3", True, None, 2**63, 0, -1])
def test_whole_refuses_floats_and_what_is_out_of_range(value: object) -> None:
    with pytest.raises(ParameterError, match="a whole number, at least 1"):
        check.whole("Owner", "name", value, least=1)


def test_whole_takes_numpy_integers() -> None:
    number = check.whole("Owner", "name", np.int32(7), least=1)
    assert type(number) is int
    assert number == 7


@pytest.mark.parametrize("value", ["", "a\nb", "\x00", "x" * 201, 5, None])
def test_label_refuses_what_would_not_print_on_one_line(value: object) -> None:
    with pytest.raises(ParameterError, match="printable"):
        check.label("Owner", "name", value)


def test_the_error_has_its_parts_and_survives_a_worker_process() -> None:
    with pytest.raises(ParameterError) as caught:
        check.positive("Poisson", "probability", -1)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (
        str(error)
        == str(caught.value)
        == "The 'probability' parameter of Poisson must be a finite number above 0. Got -1."
    )
    assert (error.owner, error.name, error.expected, error.got) == (
        "Poisson",
        "probability",
        "a finite number above 0",
        "-1",
    )
