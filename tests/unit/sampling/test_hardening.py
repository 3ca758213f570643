"""Attacks on samples, each of which once worked."""

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.sampling import Owners


@pytest.mark.parametrize("ids", [["ann", "ann\0", "bob"], np.array(["ann", "ann\0"], object), ["\0"]])
def test_two_owners_that_numpy_takes_for_one_are_refused(ids: object) -> None:
    """Two units in one record: removing one of them moves the record by up to twice its clip norm."""
    with pytest.raises(ParameterError, match="ids"):
        Owners.from_ids(ids)  # type: ignore[arg-type]
