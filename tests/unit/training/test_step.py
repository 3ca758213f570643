"""One step: noise on every coordinate, gradients of their own kind, added as torch does."""

import pytest
import torch
from torch import nn

import discreet as dp
from discreet.errors import SampleMisuse
from discreet.training.step import _give
from unit.training.test_run import data, gradients, keyed, loss, network, plan


def test_the_release_has_noise_on_every_coordinate() -> None:
    model = network()
    run = keyed(model, plan(dp.Groups({"grad/*": dp.Gaussian(1.0, 3.0)})))
    run.backward(loss, next(run.batches(data())))
    assert (gradients(model) != 0).all()


def test_the_average_is_over_the_public_divisor() -> None:
    parameter = nn.Parameter(torch.zeros(2, 2))
    _give(parameter, torch.arange(4.0).numpy(), 8.0)
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [[0.0, 0.125], [0.25, 0.375]]


def test_a_gradient_that_is_there_is_added_to_and_not_written_over() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = before = torch.ones(3)
    _give(parameter, torch.ones(3).numpy(), 2.0)
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [1.5] * 3
    assert before.tolist() == [1.0] * 3


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_gradients_are_of_the_kind_of_their_parameters(kind: torch.dtype) -> None:
    parameter = nn.Parameter(torch.zeros(3, dtype=kind))
    _give(parameter, torch.ones(3).numpy(), 1.0)
    assert parameter.grad is not None
    assert parameter.grad.dtype == kind


def test_a_loss_that_fails_releases_nothing_and_may_be_tried_again() -> None:
    model = network()
    run = keyed(model, plan())
    batch = next(run.batches(data()))
    disk = {"full": True}

    def once(model: nn.Module, rows: object) -> torch.Tensor:
        if disk["full"]:
            raise ValueError("mine")
        losses: torch.Tensor = loss(model, rows)
        return losses

    with pytest.raises(ValueError, match="mine"):
        run.backward(once, batch)
    assert all(parameter.grad is None for parameter in model.parameters())

    disk["full"] = False
    run.backward(once, batch)
    assert gradients(model).isfinite().all()


def test_a_batch_on_which_a_loss_failed_is_given_to_no_other_loss() -> None:
    run = keyed(network(), plan())
    batch = next(run.batches(data()))

    def failing(model: nn.Module, rows: object) -> torch.Tensor:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run.backward(failing, batch)
    with pytest.raises(SampleMisuse, match="the loss with which this batch failed"):
        run.backward(loss, batch)


def test_what_is_released_says_nothing_of_parameters_twice() -> None:
    """Gradients go to the parameters; the release that a user gets has the rest."""
    run = keyed(network(), plan())
    release = run.backward(loss, next(run.batches(data())))
    assert [leaf for leaf in release.sums if leaf.startswith("grad/")] == []
