"""What batches have in common: a size, a key or a number that one record brings along is
refused.
"""

from typing import Any

import numpy as np
import pytest
import torch

from discreet.errors import CoupledRecords
from discreet.training.data.signature import Signature


def batch(rows: int = 4, **changes: Any) -> dict[str, Any]:
    usual = {
        "x": torch.zeros(rows, 5, 2),
        "y": torch.zeros(rows, dtype=torch.int64),
        "pair": (torch.zeros(rows), None),
        "texts": ["a"] * rows,
        "array": np.zeros((rows, 3), np.float32),
        "scale": 2.0,
        "constant": torch.tensor(3.0),
        "nan": float("nan"),
    }
    return usual | changes


def test_the_number_of_rows_and_what_is_in_them_do_not_matter() -> None:
    first = Signature.of(batch())
    first.check(batch(7))
    first.check(batch(x=torch.randn(4, 5, 2), texts=["a", "longer", "b", ""]))
    assert first == Signature.of(batch(1))
    assert hash(first) == hash(Signature.of(batch(2)))


@pytest.mark.parametrize(
    "changes",
    [
        {"x": torch.zeros(4, 6, 2)},
        {"x": torch.zeros(4, 5)},
        {"x": torch.zeros(4, 5, 2, dtype=torch.float64)},
        {"x": None},
        {"x": torch.zeros(4, 5, 2).to_sparse()},
        {"y": [0, 0, 0, 0]},
        {"more": torch.zeros(4)},
        {"pair": (torch.zeros(4), torch.zeros(4))},
        {"pair": [torch.zeros(4), None]},
        {"pair": (torch.zeros(4),)},
        {"texts": ("a",) * 4},
        {"texts": torch.zeros(4)},
        {"array": np.zeros((4, 3))},
        {"array": np.zeros((4, 2), np.float32)},
        {"scale": 2.5},
        {"scale": 2},
        {"constant": torch.tensor(4.0)},
    ],
)
def test_p11_any_other_structure_type_or_size_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(CoupledRecords, match="Pad to a fixed length"):
        Signature.of(batch()).check(batch(**changes))


def test_p11_a_text_array_as_wide_as_its_longest_text_is_refused() -> None:
    with pytest.raises(CoupledRecords):
        Signature.of(np.array(["a", "bc"])).check(np.array(["a", "bcd"]))


def test_p11_keys_in_another_order_are_refused() -> None:
    with pytest.raises(CoupledRecords):
        Signature.of({"a": None, "b": None}).check({"b": None, "a": None})


def test_p42_the_message_names_the_place_and_no_number_of_a_record() -> None:
    with pytest.raises(CoupledRecords) as refusal:
        Signature.of(batch()).check(batch(x=torch.full((4, 173, 2), 991.0), scale=57.5))
    assert "batch['x']" in str(refusal.value)
    assert not any(number in str(refusal.value) for number in ("173", "991", "57"))
