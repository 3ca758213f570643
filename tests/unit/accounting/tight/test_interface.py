"""Bounds refuse to be made of anything but lower <= upper."""

import numpy as np
import pytest

from discreet.accounting.tight.interface import Bounds
from discreet.errors import AccountingError


def test_equal_ends_are_bounds() -> None:
    Bounds(np.array([0.0, 1.0]), np.array([0.0, 1.5]))


@pytest.mark.parametrize("lower", [2.0, np.nan])
def test_p37_bounds_that_cross_or_are_no_numbers_are_refused(lower: float) -> None:
    # `if np.any(lower > upper)` would let the NaN through, and it would be read as no loss.
    with pytest.raises(AccountingError, match="lower bound below its upper bound"):
        Bounds(np.array([0.0, lower]), np.array([0.0, 1.0]))
