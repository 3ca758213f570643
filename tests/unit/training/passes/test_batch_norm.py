"""Private batch-norm statistics: what a pass computes with, what it notes, and what may move a
buffer.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.errors import CoupledRecords, ModelError, ParameterError
from discreet.mechanisms import BatchNorm, Gaussian, Groups
from discreet.training import PrivateRun
from discreet.training.engine import Engine
from discreet.training.passes.batch_norm import PrivateBatchNorm
from support.norms import images, loss, records_of, rows_of, small_cnn, steps
from support.per_record import computed

LEAVES = {"bn/1": 8, "bn/5": 10}
ZEROS = {leaf: np.zeros(size) for leaf, size in LEAVES.items()}


def private(model: nn.Module) -> Engine:
    return Engine(model, batch_norm=PrivateBatchNorm(model))


def noted(engine: Engine, data: Any, count: int, of: Any = loss) -> dict[str, Tensor]:
    passes = [statistics for _, statistics in computed(engine, of, data, count)]
    return {name: torch.cat([one[name] for one in passes]) for name in passes[0]}


def buffers(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# --- what takes part ---


def test_layers_in_train_mode_that_track_statistics_are_leaves() -> None:
    assert PrivateBatchNorm(small_cnn()).leaves == LEAVES
    assert PrivateBatchNorm(small_cnn().eval()).leaves == {}
    others = nn.Sequential(
        nn.BatchNorm1d(3, track_running_stats=False), nn.GroupNorm(1, 4), nn.SyncBatchNorm(3)
    )
    assert PrivateBatchNorm(others).leaves == {}


def test_the_engine_has_their_dimensions_among_its_leaves() -> None:
    leaves = private(small_cnn()).leaves
    assert {leaf: size for leaf, size in leaves.items() if leaf.startswith("bn/")} == LEAVES


def test_what_cannot_be_a_reference_is_refused() -> None:
    with pytest.raises(ModelError, match="never called"):
        PrivateBatchNorm(nn.Sequential(nn.LazyBatchNorm1d()))
    broken = nn.BatchNorm1d(2)
    _of(broken.running_var).fill_(math.nan)
    with pytest.raises(ModelError, match="reset_running_stats"):
        PrivateBatchNorm(broken)
    with pytest.raises(ParameterError):
        PrivateBatchNorm(small_cnn(), floor=0.0)


def _of(buffer: Tensor | None) -> Tensor:
    assert buffer is not None
    return buffer


# --- a pass ---


@pytest.mark.parametrize("loop", [False, True])
def test_moments_are_those_that_numpy_encodes(loop: bool) -> None:
    model, data = small_cnn(), images(7)
    for layer in (model[1], model[5]):
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.5, 3.0)
    engine = private(model)
    if loop:
        engine.compute_one_by_one()
    found = noted(engine, data, 7)
    inside = {"bn/1": model[0](data[0]), "bn/5": model.eval()[:5](data[0])}
    for leaf, layer in (("bn/1", model[1]), ("bn/5", model[5])):
        public = {
            "mean": layer.running_mean.numpy(),
            "variance": layer.running_var.double().numpy() + layer.eps,
        }
        expected = BatchNorm(layer.num_features).encode(inside[leaf].detach().numpy(), **public)
        np.testing.assert_allclose(found[leaf].numpy(), expected, rtol=1e-4, atol=1e-5)
    assert (engine.one_by_one is None) is not loop


def test_the_forward_is_that_of_eval_mode() -> None:
    """Losses, gradients, everything: the running statistics are used, never those of the batch."""
    model, data = small_cnn(), images(6)
    model[1].running_mean.normal_()
    trained = records_of(private(model), data, 6)
    model.eval()
    frozen = records_of(Engine(model), data, 6)
    for (
        leaf,
        rows,
    ) in frozen.items():  # each engine chose its forms by time, and forms differ in their rounding
        np.testing.assert_allclose(trained[leaf], rows, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loop", [False, True])
def test_p09_a_pass_moves_no_buffer(loop: bool) -> None:
    """Nor the counter: passes are microbatches, and their number tells the size of the sample."""
    model = small_cnn()
    engine = private(model)
    if loop:
        engine.compute_one_by_one()
    before = buffers(model)
    for count in (5, 2):
        records_of(engine, images(count), count)
        assert same(buffers(model), before)


def test_a_pass_that_fails_moves_no_buffer() -> None:
    model = small_cnn()
    engine, before = private(model), buffers(model)

    def failing(model: nn.Module, data: Any) -> Tensor:
        model(data[0])
        raise KeyError

    for reason in (None, "a test"):
        if reason is not None:
            engine.compute_one_by_one()
        with pytest.raises(KeyError):
            list(engine.passes(failing, images(4), 4, 4))
        assert same(buffers(model), before)


def test_one_record_without_positions_is_enough() -> None:
    """Whereas torch itself refuses to normalise over one value."""
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 3))
    found = noted(private(model), (torch.ones(1, 2), torch.zeros(1, dtype=torch.long)), 1)
    assert found["bn/0"].shape == (1, 4)


class Tokens(nn.Module):
    """Records and positions in one axis, and one layer that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3, affine=False)
        self.out = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        m, positions, width = x.shape
        flat = self.norm(x.reshape(m * positions, width)).reshape(m, positions, width)
        again = self.norm(flat.mean(1))
        out: Tensor = self.out(again)
        return out


def test_p10_positions_of_a_record_are_averaged_and_calls_too() -> None:
    model, x = Tokens(), torch.randn(3, 3, 3) * 2.0 + 1.0
    engine = private(model)
    found = noted(engine, (x, torch.tensor([0, 1, 0])), 3)
    norm, public = BatchNorm(3), {"variance": 1.0 + 1e-5}
    first = norm.encode(x.movedim(2, 1).numpy(), **public)
    second = norm.encode((x.mean(1) / math.sqrt(1.0 + 1e-5)).numpy(), **public)
    np.testing.assert_allclose(found["bn/norm"].numpy(), (first + second) / 2, rtol=1e-4, atol=1e-5)


def test_a_layer_that_is_not_called_contributes_nothing() -> None:
    model = small_cnn()
    model.add_module("spare", nn.Sequential(nn.BatchNorm1d(2)))
    found = noted(private(model), images(2), 2, lambda model, data: loss(model[:-1], data))
    assert "bn/spare.0" not in found


def test_a_record_that_is_not_a_number_is_not_hidden() -> None:
    x, y = images(4)
    x[2, 0, 0, 0] = math.inf
    found = noted(private(small_cnn()), (x, y), 4)["bn/1"]
    assert torch.isfinite(found).all(1).tolist() == [True, True, False, True]


def test_a_metric_cannot_take_the_place_of_moments() -> None:
    def disguised(model: nn.Module, data: Any) -> Any:
        losses = loss(model, data)
        return losses, {"bn/1": torch.zeros(len(losses), 8)}

    with pytest.raises(ModelError, match="bn/1"):
        noted(private(small_cnn()), images(3), 3, disguised)


# --- what is refused ---


@pytest.mark.parametrize("loop", [False, True])
def test_p09_without_private_statistics_train_mode_is_refused(loop: bool) -> None:
    layers = [
        nn.BatchNorm1d(3),
        nn.BatchNorm1d(3, affine=False),
        nn.BatchNorm1d(3, track_running_stats=False),
    ]
    layers[0].requires_grad_(requires_grad=False)
    data = (torch.randn(4, 3), torch.zeros(4, dtype=torch.long))
    for layer in layers:
        model = nn.Sequential(nn.Linear(3, 3), layer, nn.Linear(3, 2))
        engine = Engine(model)
        if loop:
            engine.compute_one_by_one()
        with pytest.raises(CoupledRecords, match="private batch statistics"):
            noted(engine, data, 4)


@pytest.mark.parametrize("loop", [False, True])
def test_p09_a_layer_that_was_frozen_when_the_run_began_stays_refused(loop: bool) -> None:
    model = small_cnn().eval()
    engine = private(model)
    if loop:
        engine.compute_one_by_one()
    records_of(engine, images(4), 4)
    before = buffers(model)
    model.train()
    with pytest.raises(CoupledRecords):
        records_of(engine, images(4), 4)
    if not loop:  # torch's own counter moved before the layer was refused
        assert same(buffers(model), before)


def test_p09_functions_in_train_mode_are_refused_with_and_without_buffers() -> None:
    model = nn.Linear(3, 3)

    def normalised(model: nn.Module, data: Any) -> Tensor:
        return functional.batch_norm(model(data), None, None, training=True).sum(1)

    def native(model: nn.Module, data: Any) -> Tensor:
        return torch.batch_norm(model(data), None, None, None, None, True, 0.1, 1e-5, False).sum(1)

    for function in (normalised, native):
        with pytest.raises(CoupledRecords):
            noted(private(model), torch.randn(4, 3), 4, function)


def test_p42_a_forward_in_train_mode_outside_of_the_run_is_found_and_undone() -> None:
    """Evaluation that forgets model.eval() would put records into the buffers without noise."""
    model = small_cnn()
    engine, before = private(model), buffers(model)
    for act in (lambda: records_of(engine, images(4), 4), lambda: engine.batch_norm.apply(ZEROS)):
        model(images(9)[0])
        with pytest.raises(CoupledRecords, match=r"'1', '5'.*model.eval"):
            act()
        assert same(buffers(model), before)
    records_of(engine, images(4), 4)  # and the run goes on


def test_a_loss_that_writes_to_the_buffers_is_found_and_undone() -> None:
    model = small_cnn()
    engine, before = private(model), buffers(model)

    def writing(model: Any, data: Any) -> Tensor:
        model[1].running_mean.add_(data[0].mean())
        return loss(model, data)

    with pytest.raises(CoupledRecords, match=r"writes what records made into '1\.running_mean'"):
        list(engine.passes(writing, images(4), 4, 4))
    assert same(buffers(model), before)


# --- releases ---


@pytest.mark.parametrize("momentum", [0.1, 0.5, None])
def test_releases_without_noise_move_buffers_as_torch_does(momentum: float | None) -> None:
    """With the biased variance, and relative to what is known: the same fixed point, the same
    momentum.
    """
    model, plain = nn.BatchNorm1d(3, momentum=momentum), nn.BatchNorm1d(3, momentum=momentum)
    norm = PrivateBatchNorm(model)
    for seed in range(4):
        x = torch.randn(500, 3, generator=torch.Generator().manual_seed(seed)) * 3.0 + torch.tensor(
            [0.0, 5.0, -2.0]
        )
        with norm.noting() as noting:
            noting.note("bn/", x, 1)
        norm.apply({"bn/": noting.statistics()["bn/"].double().mean(0)})
        plain(x)
    np.testing.assert_allclose(
        _of(model.running_mean).numpy(), _of(plain.running_mean).numpy(), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        _of(model.running_var).numpy(), _of(plain.running_var).numpy(), rtol=5e-3
    )  # n/(n - 1)
    assert int(_of(model.num_batches_tracked)) == 4


def test_a_release_is_taken_over_as_a_whole_or_not_at_all() -> None:
    model = small_cnn()
    norm, before = PrivateBatchNorm(model), buffers(model)
    good = {leaf: np.full(size, 0.1) for leaf, size in LEAVES.items()}
    for bad in (
        {"bn/1": good["bn/1"]},
        good | {"bn/5": np.full(10, math.nan)},
        good | {"bn/5": np.zeros(9)},
    ):
        with pytest.raises(ParameterError):
            norm.apply(bad)
        assert same(buffers(model), before)
    norm.apply({leaf: torch.from_numpy(values) for leaf, values in good.items()})
    assert not same(buffers(model), before)


def test_a_variance_has_a_floor_and_stays_a_number() -> None:
    model = nn.BatchNorm1d(2, momentum=1.0)
    norm = PrivateBatchNorm(model, floor=0.01)
    norm.apply({"bn/": np.array([3.0, -3.0, -50.0, -50.0])})
    assert _of(model.running_var).tolist() == pytest.approx([0.01, 0.01])


def test_a_layer_in_eval_mode_keeps_its_statistics() -> None:
    model = small_cnn()
    engine = private(model)
    model[1].eval()
    before = buffers(model)
    found = noted(engine, images(3), 3)
    assert list(found) == ["bn/5"]
    engine.batch_norm.apply({leaf: np.ones(size) for leaf, size in LEAVES.items()})
    changed = {
        name for name, buffer in buffers(model).items() if not torch.equal(buffer, before[name])
    }
    assert changed == {"5.running_mean", "5.running_var", "5.num_batches_tracked"}


def test_the_counter_counts_releases() -> None:
    model, mechanism = (
        small_cnn(),
        Groups({"grad/*": Gaussian(1.0, 1.0), "bn/*": Gaussian(1.0, 1.0)}),
    )
    released = [
        one for _, one in steps(model, images(30), mechanism, batch=3, number=5)
    ]  # some samples may be empty
    assert int(model[1].num_batches_tracked) == int(model[5].num_batches_tracked) == 5
    assert all(one["bn/1"].shape == (8,) for one in released)


def test_statistics_of_half_precision_models() -> None:
    model = small_cnn().to(torch.bfloat16)
    data = images(4)
    found = noted(private(model), (data[0].to(torch.bfloat16), data[1]), 4)
    assert {values.dtype for values in found.values()} == {torch.float32}


def test_a_plan_that_forgets_the_statistics_is_refused() -> None:
    plan = dp.Plan.dpsgd(records=100, expected_batch_size=10, steps=2, noise_multiplier=1.0)
    with pytest.raises(ParameterError, match="bn/1"):
        plan.for_leaves(private(small_cnn()).leaves)


def test_gradients_as_arrays_are_those_of_torch() -> None:
    """The helper that the other tests rest on."""
    model, data = small_cnn().eval(), images(3)
    ((found, _),) = computed(Engine(model), loss, data, 3)
    rows = rows_of(found, Engine(model).leaves)
    losses = loss(model, data)
    for record in range(3):
        expected = torch.autograd.grad(losses[record], list(model.parameters()), retain_graph=True)
        for values, gradient in zip(rows.values(), expected, strict=True):
            np.testing.assert_allclose(
                values[record], gradient.reshape(-1).numpy(), rtol=1e-4, atol=1e-5
            )


GROUPS = dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0), "bn/*": dp.Gaussian(1.0, 2.0)})


def plan(steps: int, batch: float = 12, mechanism: Any = GROUPS) -> dp.Plan:
    return dp.Plan(
        sampler=dp.Sampler(dp.Poisson(batch / 60), records=60, steps=steps), mechanism=mechanism
    )


def test_buffers_follow_from_releases_alone() -> None:
    """A second model, given the releases but no data, has the same buffers after every step, bit
    for bit.
    """
    model, other = small_cnn(), small_cnn()
    follower = PrivateBatchNorm(other)
    run = PrivateRun(model, plan(4), ledger=dp.Ledger.in_memory())
    for batch in run.batches(TensorDataset(*images(60))):
        released = run.backward(loss, batch)
        follower.apply({leaf: released.mean(leaf) for leaf in follower.leaves})
        for (name, buffer), (_, copy) in zip(
            model.named_buffers(), other.named_buffers(), strict=True
        ):
            assert torch.equal(buffer, copy), name
    assert int(model[1].num_batches_tracked) == 4


def test_microbatches_change_neither_statistics_nor_counter() -> None:
    buffers = []
    for microbatch in (3, 40):
        model, source = small_cnn(), dp.randomness.Source.unsafe_test_key(bytes(range(32)))
        run = PrivateRun(
            model, plan(3), ledger=dp.Ledger.in_memory(), microbatch=microbatch, source=source
        )
        for batch in run.batches(TensorDataset(*images(60))):
            run.backward(loss, batch)
        buffers.append(dict(model.named_buffers()))
    for name, one in buffers[0].items():
        torch.testing.assert_close(one, buffers[1][name], rtol=1e-4, atol=1e-5)


def test_p29_the_divisor_is_public() -> None:
    run = PrivateRun(small_cnn(), plan(2), ledger=dp.Ledger.in_memory())
    for batch in run.batches(TensorDataset(*images(60))):
        released = run.backward(loss, batch)
        assert released.divisors["bn/1"] == pytest.approx(12.0)


def test_p28_an_empty_sample_moves_buffers_by_noise() -> None:
    model = small_cnn()
    run = PrivateRun(model, plan(40, batch=0.6), ledger=dp.Ledger.in_memory())
    empty = 0
    for batch in run.batches(TensorDataset(*images(60))):
        before = model[1].running_mean.clone()
        run.backward(loss, batch)
        empty += batch.data is None
        assert not torch.equal(model[1].running_mean, before)
    assert empty
    assert int(model[1].num_batches_tracked) == 40


def test_p09_a_plan_without_a_group_for_the_statistics_is_refused_before_anything_is_charged() -> (
    None
):
    ledger = dp.Ledger.in_memory()
    gradients = dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0)})
    with pytest.raises(CoupledRecords, match=r"'1', '5'.*GroupNorm.*bn/\*"):
        PrivateRun(small_cnn(), plan(2, mechanism=gradients), ledger=ledger)
    assert not ledger.charges()
    PrivateRun(small_cnn().eval(), plan(2, mechanism=gradients), ledger=ledger)


def test_one_mechanism_for_everything_takes_the_statistics_too() -> None:
    run = PrivateRun(
        small_cnn(), plan(2, mechanism=dp.Gaussian(1.0, 1.0)), ledger=dp.Ledger.in_memory()
    )
    assert {"bn/1", "bn/5"} <= set(run.plan.leaves or ())


def test_p42_a_forward_in_train_mode_between_steps_is_refused_also_before_an_empty_sample() -> None:
    model = small_cnn()
    run = PrivateRun(model, plan(3, batch=0.1), ledger=dp.Ledger.in_memory())
    batches = run.batches(TensorDataset(*images(60)))
    batch = next(batches)
    model(images(9)[0])
    with pytest.raises(CoupledRecords, match="model.eval"):
        run.backward(loss, batch)
    run.backward(loss, batch)  # nothing was released, and the statistics were set back
    assert int(model[1].num_batches_tracked) == 1


def test_running_statistics_find_those_of_the_data() -> None:
    """Fixed activations, 60 steps, a fixed key. A channel's mean starts 2 and 10 of its standard
    deviations away.

    The noise of a step is noise_std sqrt(2C)/B = 2 * 2/40 = 0.1 standard deviations in each of 2
    channels; averaged with momentum 0.1 it is 0.1 sqrt(0.1/1.9) = 0.023. The bounds leave room for
    what clipping takes away from far records.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    x = torch.randn(200, 2) * torch.tensor([5.0, 0.1]) + torch.tensor([10.0, -1.0])
    sampler = dp.Sampler(dp.Poisson(40 / 200), records=200, steps=60)
    mechanism = dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0), "bn/*": dp.Gaussian(2.0, 1.0)})
    source = dp.randomness.Source.unsafe_test_key(bytes(32))
    run = PrivateRun(
        model,
        dp.Plan(sampler=sampler, mechanism=mechanism),
        ledger=dp.Ledger.in_memory(),
        source=source,
    )
    for batch in run.batches(TensorDataset(x, (x[:, 0] > 10.0).long())):
        run.backward(loss, batch)
    norm: Any = model[0]
    np.testing.assert_allclose(norm.running_mean, x.mean(0), atol=0.35 * 5.0)
    assert abs(float(norm.running_mean[1]) + 1.0) < 0.035
    assert torch.all((norm.running_var / x.var(0) > 0.3) & (norm.running_var / x.var(0) < 1.7))
