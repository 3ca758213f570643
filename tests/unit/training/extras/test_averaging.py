"""Averages of weights: the right numbers, without drift, of trained parameters only; the model
keeps its own weights.
"""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    SequentialLR,
)

import discreet as dp
from discreet.training import PrivateRun, WeightAverage
from unit.training.test_run import data, loss, plan
from unit.training.test_run import network as classifier


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def weight_of(model: nn.Sequential) -> Tensor:
    return model.get_parameter("0.weight")


def walk(
    model: nn.Module, average: WeightAverage, steps: int
) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Random steps of all trained parameters; the weights after each."""
    generator = torch.Generator().manual_seed(steps)
    seen = []
    for _ in range(steps):
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn(parameter.shape, generator=generator))
        average.update()
        seen.append(
            {name: one.detach().double().numpy().copy() for name, one in model.named_parameters()}
        )
    return seen


def averaged(average: WeightAverage, model: nn.Module) -> dict[str, np.ndarray[Any, Any]]:
    with average.applied():
        return {
            name: one.detach().double().numpy().copy() for name, one in model.named_parameters()
        }


@pytest.mark.parametrize("start", [0, 3])
def test_a_uniform_average_is_the_mean_of_the_iterates_from_start_on(start: int) -> None:
    model = network().double()
    average = WeightAverage(model, start=start)
    seen = walk(model, average, 9)
    for name, found in averaged(average, model).items():
        np.testing.assert_allclose(
            found, np.mean([one[name] for one in seen[start:]], axis=0), rtol=1e-13, atol=1e-14
        )


@pytest.mark.parametrize(("decay", "start"), [(0.5, 0), (0.99, 0), (0.9, 4), (1.0 - 2.0**-40, 0)])
def test_an_exponential_average_has_weights_that_add_up_to_one(decay: float, start: int) -> None:
    """Without the correction, the average of 9 steps at decay 0.99 would be mostly the first
    iterate, or zero.
    """
    model = network().double()
    average = WeightAverage(model, decay=decay, start=start)
    seen = walk(model, average, 9)[start:]
    weights = decay ** np.arange(len(seen))[::-1]
    for name, found in averaged(average, model).items():
        expected = np.average([one[name] for one in seen], axis=0, weights=weights)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_many_small_steps_do_not_drift() -> None:
    """Wrong alternative: a running mean in float32 stops moving once a step's share is below its
    last bit.
    """
    model = nn.Linear(1, 1, bias=False)
    average, in_float32 = WeightAverage(model), torch.zeros(())
    for step in range(2_000):
        value = 1.0 + (step >= 1_000) * 2.0**-14
        nn.init.constant_(model.weight, value)
        average.update()
        in_float32 += (torch.tensor(value) - in_float32) / (step + 1)
    mean = 1.0 + 2.0**-15
    assert average.state_dict()["weights"]["weight"].item() == pytest.approx(mean, abs=1e-12)
    assert abs(in_float32.item() - mean) > 2.0**-16


def test_until_there_is_an_average_it_is_the_model_as_it_is() -> None:
    model = network()
    average = WeightAverage(model, start=5)
    seen = walk(model, average, 5)
    assert all(
        np.array_equal(found, seen[-1][name]) for name, found in averaged(average, model).items()
    )


def test_the_model_gets_its_own_weights_back_bit_for_bit_also_after_an_error() -> None:
    model = network()
    average = WeightAverage(model)
    walk(model, average, 3)
    before = copy.deepcopy(model.state_dict())
    identities = [id(one) for one in model.parameters()]
    with pytest.raises(ZeroDivisionError), average.applied():
        assert not torch.equal(weight_of(model), before["0.weight"])
        raise ZeroDivisionError
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert identities == [id(one) for one in model.parameters()]


def test_shared_parameters_count_once_and_frozen_ones_stay() -> None:
    first, second, frozen = (nn.Linear(2, 2) for _ in range(3))
    model = nn.Sequential(first, second, frozen.requires_grad_(requires_grad=False))
    second.weight = first.weight
    average = WeightAverage(model)
    walk(model, average, 2)
    assert set(average.state_dict()["weights"]) == {"0.weight", "0.bias", "1.bias"}
    with torch.no_grad():
        frozen.weight.fill_(7.0)  # a frozen parameter is that of the model now
    with average.applied():
        assert second.weight is first.weight
        assert torch.equal(frozen.weight, torch.full((2, 2), 7.0))


def test_another_model_gets_averages_and_the_buffers_of_now() -> None:
    model, other = network(), network()
    average = WeightAverage(model)
    walk(model, average, 3)
    model(torch.randn(5, 3))  # moves the running statistics
    average.copy_to(other)
    with average.applied():
        assert all(
            torch.equal(value, model.state_dict()[name])
            for name, value in other.state_dict().items()
        )
    assert not torch.equal(weight_of(other), weight_of(model))
    average.copy_to(model)
    assert torch.equal(weight_of(other), weight_of(model))


def test_half_precision_is_averaged_in_full() -> None:
    model = nn.Linear(1, 1, bias=False).bfloat16()
    average = WeightAverage(model)
    for value in (1.0, 1.0, 1.0, 1.015625):
        nn.init.constant_(model.weight, value)
        average.update()
    assert average.state_dict()["weights"]["weight"].item() == 1.00390625
    with average.applied():
        assert model.weight.dtype == torch.bfloat16


def test_a_state_goes_on_where_it_was() -> None:
    model = network()
    average = WeightAverage(model, decay=0.9, start=2)
    walk(model, average, 4)
    again = WeightAverage(model, decay=0.9, start=2)
    again.load_state_dict(copy.deepcopy(average.state_dict()))
    for one in (average, again):
        one.update()
    assert again.steps == average.steps == 5
    found, expected = averaged(again, model), averaged(average, model)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_a_loaded_state_shares_no_memory() -> None:
    model = network()
    average, again = WeightAverage(model), WeightAverage(model)
    walk(model, average, 2)
    again.load_state_dict(average.state_dict())
    kept = again.state_dict()["weights"]["0.weight"].clone()
    walk(model, average, 2)
    assert torch.equal(again.state_dict()["weights"]["0.weight"], kept)


def edited(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda state: {**state, **changes}


@pytest.mark.parametrize(
    "change",
    [
        edited(decay=0.5),
        edited(start=1),
        edited(steps=-1),
        edited(steps=0),
        edited(steps=1.5),
        edited(weights={}),
        edited(weights={"0.weight": torch.zeros(1)}),
        edited(weights=3),
        edited(more=1),
        lambda state: {},
        lambda state: None,
    ],
)
def test_another_state_is_refused_and_nothing_is_taken_over(
    change: Callable[[dict[str, Any]], Any],
) -> None:
    model = network()
    average = WeightAverage(model, decay=0.9)
    walk(model, average, 2)
    before = copy.deepcopy(average.state_dict())
    with pytest.raises(dp.errors.ParameterError):
        average.load_state_dict(change(dict(average.state_dict())))
    after = average.state_dict()
    assert after["steps"] == before["steps"]
    assert all(
        torch.equal(value, before["weights"][name]) for name, value in after["weights"].items()
    )


@pytest.mark.parametrize(
    "wrong", [{"decay": 1.0}, {"decay": 0.0}, {"decay": "0.9"}, {"start": -1}, {"start": 1.5}]
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(dp.errors.ParameterError):
        WeightAverage(network(), **wrong)


def test_what_is_no_model_or_another_one_is_refused() -> None:
    average = WeightAverage(network())
    with pytest.raises(dp.errors.ParameterError):
        WeightAverage(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(dp.errors.ModelError, match=r"2\.weight"):
        average.copy_to(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    with pytest.raises(dp.errors.ModelError, match="complex"):
        WeightAverage(nn.Linear(2, 2, dtype=torch.complex64))


def test_other_parameters_than_at_the_beginning_are_refused() -> None:
    model = network()
    average = WeightAverage(model)
    model[0].requires_grad_(False)
    with pytest.raises(dp.errors.ModelError, match="Freeze and unfreeze"):
        average.update()


def test_while_the_average_is_applied_it_can_neither_grow_nor_be_saved() -> None:
    model = network()
    average = WeightAverage(model)
    average.update()
    state = average.state_dict()
    calls: Sequence[Callable[[], object]] = (
        average.update,
        lambda: average.copy_to(model),
        average.state_dict,
        lambda: average.load_state_dict(state),
        lambda: average.applied().__enter__(),
    )
    with average.applied():
        for call in calls:
            with pytest.raises(dp.errors.SampleMisuse, match="outside"):
                call()
    average.update()
    assert average.steps == 2


STEPS = 6


def warm_up_then_cosine(optimizer: Optimizer) -> LRScheduler:
    parts = [LinearLR(optimizer, 0.1, total_iters=2), CosineAnnealingLR(optimizer, STEPS - 2)]
    return SequentialLR(optimizer, parts, milestones=[2])


KINDS: dict[str, tuple[Callable[[Any], Optimizer], Callable[[Any], LRScheduler]]] = {
    "momentum, cosine": (
        lambda p: SGD(p, lr=0.5, momentum=0.9, nesterov=True),
        lambda o: CosineAnnealingLR(o, STEPS),
    ),
    "Adam, linear": (lambda p: Adam(p, lr=0.1), lambda o: LinearLR(o, 1.0, 0.0, total_iters=STEPS)),
    "AdamW, one cycle": (
        lambda p: AdamW(p, lr=0.1),
        lambda o: OneCycleLR(o, 0.3, total_steps=STEPS),
    ),
    "momentum, warm up": (
        lambda p: SGD(p, lr=0.5, momentum=0.9, weight_decay=0.01),
        warm_up_then_cosine,
    ),
}


class Training:
    """What a user has, private or not."""

    def __init__(self, kind: str, **average: Any) -> None:
        make_optimizer, make_scheduler = KINDS[kind]
        self.model = classifier()
        self.optimizer = make_optimizer(self.model.parameters())
        self.scheduler = make_scheduler(self.optimizer)
        self.average = WeightAverage(self.model, **average)

    def step(self, given: list[Tensor] | None = None) -> None:
        for parameter, gradient in zip(
            self.model.parameters(), given or [], strict=given is not None
        ):
            parameter.grad = gradient.clone()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.average.update()

    def everything(self) -> list[Any]:
        with self.average.applied():
            averaged = copy.deepcopy(self.model.state_dict())
        states = (self.model, self.optimizer, self.scheduler, self.average)
        return [plain(averaged), *(plain(thing.state_dict()) for thing in states)]


def plain(state: Any) -> Any:
    """In a form that can be compared."""
    if isinstance(state, Tensor):
        return state.tolist()
    if isinstance(state, dict):
        return {name: plain(part) for name, part in state.items() if not callable(part)}
    return [plain(part) for part in state] if isinstance(state, (list, tuple)) else state


def released(model: nn.Module) -> list[Tensor]:
    return [
        parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_optimizer_schedule_and_average_see_releases_and_nothing_else(kind: str) -> None:
    """A twin without data, which is only given what was released, has the same weights, rates and
    averages, bit for bit.
    """
    private, twin = Training(kind, decay=0.8), Training(kind, decay=0.8)
    with PrivateRun(private.model, plan(steps=STEPS), ledger=dp.Ledger.in_memory()) as run:
        for batch in run.batches(data()):
            run.backward(loss, batch)
            twin.step(released(private.model))
            private.step()
    assert twin.everything() == private.everything()
    assert private.scheduler.last_epoch == STEPS


@pytest.mark.parametrize("average", [{"start": 2}, {"start": 5}, {"decay": 0.8}])
@pytest.mark.parametrize("kind", KINDS)
def test_they_go_on_from_a_checkpoint_with_the_average(
    kind: str, average: dict[str, Any], tmp_path: Path
) -> None:
    with dp.Ledger.open(tmp_path / "a.ledger") as ledger:
        first = Training(kind, **average)
        run = PrivateRun(first.model, plan(steps=STEPS), ledger=ledger)
        for batch in run.batches(data()):
            run.backward(loss, batch)
            first.step()
            if run.step == 4:
                break
        run.save(
            tmp_path / "c",
            optimizer=first.optimizer,
            scheduler=first.scheduler,
            others={"average": first.average},
        )
        second = Training(kind, **average)
        again = PrivateRun(second.model, plan(steps=STEPS), ledger=ledger)
        again.load(
            tmp_path / "c",
            optimizer=second.optimizer,
            scheduler=second.scheduler,
            others={"average": second.average},
        )
        assert second.everything() == first.everything()
        for batch in again.batches(data()):
            again.backward(loss, batch)
            first.step(released(second.model))
            second.step()
        assert second.average.steps == STEPS
        assert second.everything() == first.everything()


def test_another_average_is_refused_with_the_checkpoint_and_nothing_is_loaded(
    tmp_path: Path,
) -> None:
    kind = "Adam, linear"
    with dp.Ledger.open(tmp_path / "a.ledger") as ledger:
        first, other = Training(kind, decay=0.8), Training(kind, decay=0.9)
        first.step([torch.ones_like(parameter) for parameter in first.model.parameters()])
        PrivateRun(first.model, plan(steps=STEPS), ledger=ledger).save(
            tmp_path / "c", others={"average": first.average}
        )
        before = other.everything()
        with pytest.raises(dp.errors.CheckpointError, match=r"fits the average.*decay=0\.9"):
            PrivateRun(other.model, plan(steps=STEPS), ledger=ledger).load(
                tmp_path / "c", others={"average": other.average}
            )
        assert other.everything() == before
