"""Gradients that no release wrote: refused while a run is open, by name."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed import FileStore  # type: ignore[attr-defined]
from torch.nn.functional import cross_entropy
from torch.optim import LBFGS, SGD, Adam
from torch.optim.optimizer import _global_optimizer_pre_hooks
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.errors import ModelError
from discreet.randomness import Source
from discreet.training import PrivateRun, WeightAverage
from discreet.training.gradients import GradientWatch, refuse_parallel

RECORDS = 12


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(RECORDS, 6, generator=generator),
        torch.randint(3, (RECORDS,), generator=generator),
    )


def network() -> Any:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def loss(model: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    return cross_entropy(model(x), y, reduction="none")


def private_run(model: nn.Module, steps: int = 3) -> PrivateRun:
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Poisson(0.5), records=RECORDS, steps=steps),
        mechanism=dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0)}),
    )
    source = Source.unsafe_test_key(bytes(range(32)))
    return PrivateRun(model, plan, ledger=dp.Ledger.in_memory(), source=source)


def trained(model: nn.Module) -> dict[str, Tensor]:
    return {f"grad/{name}": parameter for name, parameter in model.named_parameters()}


def public_backward(model: nn.Module) -> None:
    loss(model, data()[:4]).mean().backward()  # type: ignore[no-untyped-call]


def weights(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


# --- a backward() that was left in the loop ---


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_backward_left_in_the_loop_is_refused(when: str) -> None:
    model = network()
    before = weights(model)
    optimizer = SGD(model.parameters(), lr=1.0)
    run = private_run(model)
    with pytest.raises(
        ModelError, match=r"backward\(\) that adds to the gradient of \d\."
    ) as caught:
        for batch in run.batches(data()):
            optimizer.zero_grad()
            if when == "before":
                public_backward(model)
            run.backward(loss, batch)
            public_backward(model)
            optimizer.step()
    assert "public_gradients" in caught.value.do
    assert all(map(torch.equal, weights(model), before))
    assert any(parameter.grad is None for parameter in model.parameters())  # what was mixed is gone


def test_only_the_gradient_that_was_added_to_is_dropped() -> None:
    model = network()
    watch = GradientWatch(trained(model))
    with watch.watching():
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        watch.note_written()
        with pytest.raises(ModelError):
            public_backward(model)
        gradients = [parameter.grad for parameter in model.parameters()]
    assert sum(gradient is None for gradient in gradients) == 1
    assert all(torch.equal(g, torch.ones_like(g)) for g in gradients if g is not None)


def test_closures_are_refused() -> None:
    model = network()
    optimizer = SGD(model.parameters(), lr=1.0)

    def closure() -> float:
        optimizer.zero_grad()
        public_backward(model)
        return 0.0

    run = private_run(model)
    with pytest.raises(ModelError, match="backward"):
        for batch in run.batches(data()):
            run.backward(loss, batch)
            optimizer.step(closure)


def test_lbfgs_is_refused_by_name() -> None:
    model = network()
    optimizer: Any = LBFGS(model.parameters())
    run = private_run(model)
    with pytest.raises(ModelError, match="LBFGS"):
        for batch in run.batches(data()):
            run.backward(loss, batch)
            optimizer.step(lambda: 0.0)


def test_gradients_of_inputs_are_nobodys_business() -> None:
    model = network()
    run = private_run(model)
    for batch in run.batches(data()):
        run.backward(loss, batch)
        x = torch.randn(2, 6, requires_grad=True)
        torch.autograd.grad(model(x).sum(), x)
        model(x).sum().backward(inputs=[x])


# --- scalers ---


def test_a_scaler_is_refused_at_the_step() -> None:
    model = network()
    optimizer = SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    run = private_run(model)
    with pytest.raises(ModelError, match="GradScaler"):
        for batch in run.batches(data()):
            run.backward(loss, batch)
            scaler.step(optimizer)


def test_a_scaler_is_refused_in_the_loss() -> None:
    model = network()
    scaler: Any = torch.amp.GradScaler("cpu")
    run = private_run(model)
    with pytest.raises(ModelError, match="GradScaler"):
        for batch in run.batches(data()):
            run.backward(lambda m, b: scaler.scale(loss(m, b)), batch)


def test_a_scaler_that_is_switched_off_is_not() -> None:
    model = network()
    optimizer = SGD(model.parameters(), lr=1.0)
    scaler: Any = torch.amp.GradScaler("cpu", enabled=False)
    run = private_run(model)
    for batch in run.batches(data()):
        run.backward(lambda m, b: scaler.scale(loss(m, b)), batch)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


# --- gradients that somebody else wrote ---


def set_gradients(model: nn.Module) -> None:
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss(model, data()[:4]).mean(), parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


def test_a_gradient_that_no_release_wrote_is_refused_at_the_step() -> None:
    model = network()
    before = weights(model)
    optimizer = Adam(model.parameters())
    run = private_run(model)
    with pytest.raises(ModelError, match=r"another gradient in 0\.weight"):
        for batch in run.batches(data()):
            run.backward(loss, batch)
            set_gradients(model)
            optimizer.step()
    assert all(map(torch.equal, weights(model), before))


def test_a_gradient_that_no_release_wrote_is_refused_before_a_release() -> None:
    model = network()
    public_backward(model)  # before the run: of public data, and forgotten
    run = private_run(model)
    with pytest.raises(ModelError, match=r"another gradient in 0\.weight") as caught:
        for batch in run.batches(data()):
            run.backward(loss, batch)
    assert "zero_grad" in caught.value.do
    assert not run.ledger.charges()


def test_zeros_are_as_good_as_nothing() -> None:
    model = network()
    public_backward(model)
    optimizer = SGD(model.parameters(), lr=1.0)
    run = private_run(model)
    optimizer.zero_grad(set_to_none=False)
    for batch in run.batches(data()):
        optimizer.step()
        run.backward(loss, batch)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    assert run.step == 3


def declared(model: Any, run: PrivateRun) -> None:
    with run.public_gradients():
        for parameter in model.parameters():
            parameter.grad = parameter.grad * 0.5


ALLOWED: dict[str, Callable[[Any, Any], Any]] = {
    "as it is": lambda *_: None,
    "norm clipped": lambda m, _: nn.utils.clip_grad_norm_(m.parameters(), 0.1),
    "values clipped": lambda m, _: nn.utils.clip_grad_value_(m.parameters(), 0.1),
    "scaled in place": lambda m, _: [p.grad.mul_(0.5) for p in m.parameters()],
    "a view": lambda m, _: setattr(m[0].weight, "grad", m[0].weight.grad.view(5, 6)),
    "left out": lambda m, _: setattr(m[0].weight, "grad", None),
    "declared": declared,
}


@pytest.mark.parametrize("zero", [True, False, None])
@pytest.mark.parametrize("kind", ALLOWED)
def test_what_is_made_of_a_release_is_allowed(kind: str, zero: bool | None) -> None:
    """With gradients set to none, to zeros, or growing from step to step."""
    model = network()
    optimizer = Adam(model.parameters(), lr=0.1)
    average = WeightAverage(model)
    run = private_run(model)
    for batch in run.batches(data()):
        run.backward(loss, batch)
        ALLOWED[kind](model, run)
        optimizer.step()
        average.update()
        if zero is not None:
            optimizer.zero_grad(set_to_none=zero)
    assert run.step == 3


def test_several_releases_may_go_into_one_step() -> None:
    model = network()
    optimizer = SGD(model.parameters(), lr=1.0)
    run = private_run(model, steps=4)
    for number, batch in enumerate(run.batches(data())):
        run.backward(loss, batch)
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
    assert run.step == 4


def test_gradients_of_public_data_may_be_declared() -> None:
    model, other = network(), network()
    for own, public in ((model, True), (other, False)):
        optimizer = SGD(own.parameters(), lr=1.0)
        run = private_run(own)
        for batch in run.batches(data()):
            run.backward(loss, batch)
            if public:
                with run.public_gradients():
                    public_backward(own)
            optimizer.step()
            optimizer.zero_grad()
    assert not all(map(torch.equal, weights(model), weights(other)))


def test_public_gradients_may_come_first() -> None:
    model = network()
    optimizer = SGD(model.parameters(), lr=1.0)
    run = private_run(model)
    for batch in run.batches(data()):
        with run.public_gradients():
            public_backward(model)
            optimizer.step()
            optimizer.zero_grad()
            public_backward(model)
        run.backward(loss, batch)
        optimizer.step()
        optimizer.zero_grad()
    assert run.step == 3


# --- while a run is open, and only then ---


def test_hooks_go_with_the_run() -> None:
    model = network()
    run = private_run(model)
    gc.collect()  # runs of other tests that were broken off
    before = set(_global_optimizer_pre_hooks)
    for batch in run.batches(data()):
        assert len(set(_global_optimizer_pre_hooks) - before) == 1
        run.backward(loss, batch)
    assert not set(_global_optimizer_pre_hooks) - before
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    public_backward(model)
    SGD(model.parameters(), lr=1.0).step()


def test_a_loop_that_is_broken_off_ends_with_the_run() -> None:
    model = network()
    run = private_run(model)
    before = set(_global_optimizer_pre_hooks)
    for batch in run.batches(data()):
        run.backward(loss, batch)
        break
    run.close()
    assert not set(_global_optimizer_pre_hooks) - before
    public_backward(model)


def test_other_models_and_optimizers_are_left_alone() -> None:
    model, other = network(), network()
    optimizer = SGD(other.parameters(), lr=1.0)
    run = private_run(model)
    for batch in run.batches(data()):
        run.backward(loss, batch)
        public_backward(other)
        optimizer.step()


def test_copies_of_the_model_are_free() -> None:
    model = network()
    with GradientWatch(trained(model)).watching():
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            public_backward(other)


def test_two_runs_know_each_others_releases() -> None:
    model = network()
    optimizer = SGD(model.parameters(), lr=1.0)
    first = private_run(model).batches(data())
    next(first)  # a run that nobody ended
    second = private_run(model)
    for batch in second.batches(data()):
        second.backward(loss, batch)
        optimizer.step()
        optimizer.zero_grad()
    assert second.step == 3


def test_opening_and_closing_twice_does_nothing() -> None:
    model = network()
    watch = GradientWatch(trained(model))
    watch.close()
    watch.open()
    watch.open()
    assert len(model[0].weight._post_accumulate_grad_hooks) == 1
    watch.close()
    watch.close()
    assert not model[0].weight._post_accumulate_grad_hooks


def test_sparse_gradients_of_public_data() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    watch = GradientWatch(trained(table))
    with watch.watching():
        with watch.public():
            table(torch.tensor([1])).sum().backward()
        watch.check()
        table.weight.grad = torch.eye(5, 2).to_sparse()
        with pytest.raises(ModelError, match="weight"):
            watch.check()


# --- several processes ---


def test_wrappers_for_several_devices_are_refused() -> None:
    refuse_parallel(network())
    with pytest.raises(ModelError, match="DataParallel"):
        refuse_parallel(nn.DataParallel(network()))
    with pytest.raises(ModelError, match="DataParallel"):
        refuse_parallel(nn.Sequential(nn.DataParallel(network())))


def test_distributed_data_parallel_is_refused(tmp_path: Any) -> None:
    store = FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        refuse_parallel(network())
        with pytest.raises(ModelError, match="DistributedDataParallel"):
            refuse_parallel(nn.parallel.DistributedDataParallel(network()))
    finally:
        torch.distributed.destroy_process_group()


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    refuse_parallel(network())  # somebody's own variable
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ModelError, match="one of 2"):
        refuse_parallel(network())
    monkeypatch.setenv("WORLD_SIZE", "1")
    refuse_parallel(network())
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    with pytest.raises(ModelError, match="one of 4"):
        refuse_parallel(network())
