"""Several augmentations of a record as a loss: copies follow each other, and are averaged."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import discreet as dp
from discreet.training.data.copies import Augmented, augmented, averaged

COPIES = 3


def loss(model: nn.Module, rows: Any) -> Tensor:
    losses: Tensor = model(rows[0])[:, 0] * rows[1]
    return losses


def by_copy(rows: Any) -> Any:
    """Another number for each copy of a record."""
    x, y = rows
    return x + torch.arange(len(x)).remainder(COPIES).reshape(-1, 1), y


def model() -> nn.Module:
    linear = nn.Linear(2, 1, bias=False)
    nn.init.constant_(linear.weight, 1.0)
    return linear


X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
Y = torch.tensor([1.0, 10.0])
several = augmented(loss, by_copy, copies=COPIES)


def test_copies_of_a_record_follow_each_other_in_new_memory() -> None:
    rows, labels = several.rows((X, Y), 2)
    assert rows.tolist() == [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0], [3.0, 4.0], [4.0, 5.0], [5.0, 6.0]]
    assert labels.tolist() == [1.0] * 3 + [10.0] * 3
    (same,) = augmented(loss, lambda rows: rows, copies=1).rows((X,), 2)
    assert same.data_ptr() != X.data_ptr()


def test_texts_and_other_entries_are_copied_with_their_record() -> None:
    rows = augmented(loss, lambda rows: rows, copies=2).rows((X, ["a", "b"], ("c", "d")), 2)
    assert rows[1:] == (["a", "a", "b", "b"], ("c", "c", "d", "d"))


def test_a_records_loss_is_the_average_over_its_copies() -> None:
    assert several(model(), (X, Y)).tolist() == [5.0, 90.0]


def test_statistics_are_averaged_over_copies() -> None:
    def counted(model: nn.Module, rows: Any) -> Any:
        first = torch.arange(len(rows[0])).remainder(COPIES) == 0
        return loss(model, rows), {"first": first, "wide": rows[0]}

    losses, statistics = augmented(counted, by_copy, copies=COPIES)(model(), (X, Y))
    assert losses.tolist() == [5.0, 90.0]
    assert statistics["first"].tolist() == pytest.approx([1.0 / 3.0] * 2)
    assert statistics["wide"].tolist() == [[2.0, 3.0], [4.0, 5.0]]


def test_statistics_that_have_one_row_for_each_record_stay() -> None:
    values = torch.tensor([1.0, 2.0])
    assert averaged({"own": values}, 2)["own"] is values


def test_a_loss_of_another_shape_is_handed_on_to_be_refused() -> None:
    its = augmented(lambda model, rows: loss(model, rows).sum(), by_copy, copies=2)
    assert its(model(), (X, Y)).shape == ()


def test_an_augmentation_that_changes_the_number_of_rows_is_refused() -> None:
    its = augmented(loss, lambda rows: (rows[0][1:], rows[1][1:]), copies=2)
    with pytest.raises(dp.errors.ModelError, match="one row for each record"):
        its(model(), (X, Y))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: augmented(loss, by_copy, copies=0),
        lambda: augmented(loss, by_copy, copies=1.5),  # type: ignore[arg-type]
        lambda: augmented(several, by_copy, copies=2),
        lambda: augmented(loss, None, copies=2),  # type: ignore[arg-type]
    ],
)
def test_wrong_parameters_are_refused(wrong: Callable[[], Any]) -> None:
    assert isinstance(several, Augmented)
    with pytest.raises(dp.errors.ParameterError):
        wrong()
