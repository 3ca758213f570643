"""A measured bound says what it depends on, and checks itself."""

import math
from dataclasses import replace

import pytest

from discreet.auditing import Estimate
from discreet.errors import ParameterError


def test_an_estimate_checks_itself_and_says_what_it_assumes() -> None:
    found = Estimate(
        method="one run", lower=0.5, delta=0.0, confidence=0.9, assumes="the sun shines"
    )
    assert str(found).endswith(", if the sun shines")
    for wrong in (
        {"lower": -1.0},
        {"lower": math.inf},
        {"delta": 1.0},
        {"confidence": 0.0},
        {"method": ""},
    ):
        with pytest.raises(ParameterError):
            replace(found, **wrong)
