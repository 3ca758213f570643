"""Private runs: what reaches the gradients is what was planned and charged, once, whatever the
records hold.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.randomness import Source
from discreet.training import Batch, PrivateRun
from discreet.training.data.trees import Portion

KEY = bytes(range(32))
RECORDS = 40


def data(records: int = RECORDS) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(records, 6, generator=generator),
        torch.randint(3, (records,), generator=generator),
    )


def network() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def loss(model: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    return cross_entropy(model(x), y, reduction="none")


def plan(
    mechanism: Any = None,
    *,
    policy: Any = None,
    steps: int = 3,
    records: int = RECORDS,
    **more: Any,
) -> dp.Plan:
    return dp.Plan(
        sampler=dp.Sampler(policy or dp.Poisson(0.5), records=records, steps=steps),
        mechanism=mechanism or dp.Groups({"grad/*": dp.Gaussian(1.0, 1e-5)}),
        **more,
    )


def keyed(model: nn.Module, its: dp.Plan, **more: Any) -> PrivateRun:
    return PrivateRun(
        model, its, ledger=dp.Ledger.in_memory(), source=Source.unsafe_test_key(KEY), **more
    )


def gradients(model: nn.Module) -> Tensor:
    return torch.cat(
        [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    )


def first_gradient(
    its: dp.Plan, model: nn.Module | None = None, its_loss: Any = loss, **more: Any
) -> Tensor:
    own = model or network()
    run = keyed(own, its, **more)
    run.backward(its_loss, next(run.batches(data(its.sampler.records or 0))))  # type: ignore[union-attr]
    return gradients(own)


def clipped_average(model: nn.Module, rows: Any, divisor: float, clip_norm: float = 1.0) -> Tensor:
    """By a loop over records."""
    total = torch.zeros(sum(parameter.numel() for parameter in model.parameters()))
    for x, y in rows:
        found = torch.autograd.grad(loss(model, (x[None], y[None])).sum(), list(model.parameters()))
        flat = torch.cat([gradient.flatten() for gradient in found])
        total += flat * min(1.0, clip_norm / float(flat.norm()))
    return total / divisor


# --- what is released ---


def test_gradients_are_clipped_sums_over_the_public_divisor() -> None:
    """P23, P29: with hardly any noise, clipped gradients over the expected batch size, not over the
    realised one.
    """
    its = plan()
    model, rows = network(), data()
    run = keyed(model, its)
    batch = next(run.batches(rows))
    run.backward(loss, batch)
    chosen = [rows[int(index)] for index in batch.sample.indices]
    assert len(chosen) != its.expected_batch_size
    assert torch.allclose(
        gradients(model), clipped_average(network(), chosen, its.expected_batch_size), atol=5e-3
    )
    exact = clipped_average(network(), chosen, its.expected_batch_size)
    assert float((gradients(model) - exact).norm()) < 0.02 * float(
        exact.norm()
    )  # the inner clip norm costs half a percent


def test_a_record_moves_the_sum_by_at_most_the_clip_norm() -> None:
    """P01, P15: whatever the loss, the average of sums before noise is at most records * clip_norm
    long.
    """
    for scale in (1.0, 1e4, 1e-3):
        found = first_gradient(
            plan(policy=dp.Everything(), records=1), its_loss=lambda m, b, s=scale: s * loss(m, b)
        )
        assert float(found.norm()) <= 1.0 + 1e-3


@pytest.mark.parametrize("microbatch", [1, 3, 7, 20, 64])
def test_physical_microbatches_do_not_change_the_release(microbatch: int) -> None:
    """P15, P31: nor does padding."""
    whole = first_gradient(plan())
    assert torch.allclose(first_gradient(plan(), microbatch=microbatch), whole, atol=1e-5)


def test_memory_decides_on_microbatches() -> None:
    run = keyed(network(), plan(), memory_budget=1)
    run.backward(loss, next(run.batches(data())))
    assert run.engine.one_by_one is None


@pytest.mark.parametrize(
    "policy",
    [dp.Everything(), dp.FixedSize(7, RECORDS), dp.ledger.TruncatedPoisson(0.5, 9, RECORDS)],
    ids=str,
)
def test_every_policy_of_single_batches(policy: Any) -> None:
    adjacency = (
        dp.Adjacency.REPLACE_ONE if isinstance(policy, dp.FixedSize) else dp.Adjacency.ADD_OR_REMOVE
    )
    if isinstance(policy, dp.ledger.TruncatedPoisson):
        adjacency = dp.Adjacency.ZERO_OUT
    model = network()
    run = keyed(model, plan(policy=policy, steps=2, adjacency=adjacency))
    steps = [run.backward(loss, batch).step for batch in run.batches(data())]
    assert steps == [0, 1]


def test_noise_is_on_every_coordinate_also_of_unused_parameters() -> None:
    """P25, P28: an empty sample, an unused layer and untouched rows of a table are noised like
    everything else.
    """

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(500, 4)
            self.unused = nn.Linear(10, 10)

        def forward(self, ids: Tensor) -> Tensor:
            out: Tensor = self.table(ids).sum((1, 2))
            return out

    torch.manual_seed(0)
    model = Model()
    its = plan(dp.Groups({"grad/*": dp.Gaussian(1.0, 3.0)}), policy=dp.Poisson(1e-9), steps=1)
    run = keyed(model, its)
    batch = next(run.batches(TensorDataset(torch.zeros(RECORDS, 2, dtype=torch.long))))
    assert batch.data is None
    run.backward(lambda m, b: m(b[0]), batch)
    values = gradients(model).double() * its.expected_batch_size
    assert values.numel() == 500 * 4 + 110
    assert abs(float(values.std()) / 3.0 - 1.0) < 0.1  # five standard errors are 0.077
    assert bool((values != 0).all())


def test_statistics_are_released_with_the_gradients() -> None:
    """P42: a private accuracy, from the same sample."""
    groups = dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0), "metric/*": dp.Gaussian(1.0, 1e-4)})

    def with_accuracy(model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        x, y = batch
        outputs = model(x)
        return cross_entropy(outputs, y, reduction="none"), {
            "metric/right": (outputs.argmax(1) == y).float()
        }

    model = network()
    run = keyed(model, plan(groups, policy=dp.Everything()), statistics={"metric/right": 1})
    right = float((model(data().tensors[0]).argmax(1) == data().tensors[1]).float().sum())
    released = run.backward(with_accuracy, next(run.batches(data())))
    assert list(released) == ["metric/right"]
    assert abs(float(released["metric/right"][0]) - right) < 0.3
    assert released.noise_std == {"metric/right": pytest.approx(1e-4)}


def test_statistics_that_the_plan_does_not_name_are_refused() -> None:
    for statistics, its_loss in (
        ({"metric/right": 1}, loss),
        (None, lambda m, b: (loss(m, b), {"metric/raw": loss(m, b)})),
        ({"metric/right": 2}, lambda m, b: (loss(m, b), {"metric/right": loss(m, b)})),
    ):
        run = keyed(network(), plan(dp.Gaussian(1.0, 1.0)), statistics=statistics)
        with pytest.raises(dp.errors.ModelError):
            run.backward(its_loss, next(run.batches(data())))


def test_adaptive_thresholds_follow_releases() -> None:
    mechanism = dp.Groups(
        {"grad/*": dp.AdaptiveClip(dp.Gaussian(100.0, 1e-4), quantile=0.5, count_noise_std=1e-2)}
    )
    run = keyed(network(), plan(mechanism, policy=dp.Everything(), steps=30))
    before = dict(run.state)
    for batch in run.batches(data()):
        run.backward(loss, batch)
    after = dict(run.state)
    assert before != after
    assert all(
        0.0 < after[name] < before[name] for name in before
    )  # the first threshold is far above all norms


def test_the_torch_engine_and_the_numpy_engine_agree() -> None:
    """The reference engine, fed with a loop's gradients, under joint clipping with scales."""
    names = [f"grad/{name}" for name, _ in network().named_parameters()]
    mechanism = dp.Joint(
        clip_norm=1.0, noise_multiplier=1e-4, scales={"grad/0.*": 0.1, "grad/2.*": 2.0}
    )
    its = plan(mechanism, policy=dp.Everything(), steps=1)
    model, rows = network(), data()
    found = first_gradient(its, model)
    own = network()
    records = []
    for x, y in zip(*rows.tensors, strict=True):
        each = torch.autograd.grad(loss(own, (x[None], y[None])).sum(), list(own.parameters()))
        records.append({name: gradient.numpy() for name, gradient in zip(names, each, strict=True)})
    sizes = {name: value.size for name, value in records[0].items()}
    released = dp.aggregation.aggregate(
        records, its.for_leaves(sizes), ledger=dp.Ledger.in_memory()
    )
    expected = np.concatenate([released.mean(name) for name in names])
    assert np.linalg.norm(found.numpy() - expected) < 0.01 * np.linalg.norm(expected)


def test_gradients_accumulate_as_torch_does() -> None:
    """P16: a second release before zero_grad is added to the first, and loses nothing."""
    model = network()
    run = keyed(model, plan(policy=dp.Everything(), steps=2))
    batches = run.batches(data())
    run.backward(loss, next(batches))
    once = gradients(model).clone()
    run.backward(loss, next(batches))
    assert torch.allclose(gradients(model), 2.0 * once, atol=1e-4)


def test_half_precision_parameters_get_noise_of_full_precision() -> None:
    """P21: the sum and its noise are float64 numbers, cast once at the end."""
    model = network().bfloat16()
    rows = TensorDataset(data().tensors[0].bfloat16(), data().tensors[1])
    run = keyed(model, plan(dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0)})))
    run.backward(loss, next(run.batches(rows)))
    assert {
        parameter.grad.dtype for parameter in model.parameters() if parameter.grad is not None
    } == {torch.bfloat16}


# --- records that are not numbers ---


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38])
def test_p13_a_record_that_is_not_finite_contributes_nothing_and_changes_nothing_else(
    bad: float,
) -> None:
    its = plan(policy=dp.Everything(), steps=1)
    x, y = (tensor.clone() for tensor in data().tensors)
    kept = [(x[index], y[index]) for index in range(1, RECORDS)]
    x[0] = bad
    model = network()
    run = keyed(model, its)
    run.backward(loss, next(run.batches(TensorDataset(x, y))))
    others = clipped_average(network(), kept, its.expected_batch_size)
    extra = gradients(model) - others
    assert bool(torch.isfinite(extra).all())
    assert float(extra.norm()) <= (1.0 + 0.01 * RECORDS) / its.expected_batch_size


# --- what is charged ---


def test_the_ledger_says_certified_and_what_was_planned() -> None:
    ledger = dp.Ledger.in_memory()
    its = dp.Plan.dpsgd(records=RECORDS, expected_batch_size=10, steps=3, noise_multiplier=1.0)
    run = PrivateRun(network(), its, ledger=ledger, label="mine")
    for batch in run.batches(data()):
        run.backward(loss, batch)
    (charge,) = ledger.charges()
    assert (charge.count, charge.step, charge.run.numerics, charge.run.label) == (
        3,
        its.step,
        dp.Numerics.CERTIFIED,
        "mine",
    )


def test_a_plan_that_asks_for_exact_sums_is_refused() -> None:
    with pytest.raises(dp.errors.ParameterError, match="numerics"):
        keyed(network(), plan(numerics=dp.Numerics.EXACT))


def test_a_plan_may_allow_idealised_sums() -> None:
    """They are clipped to the clip norm itself, and the ledger says so."""
    ledger, model = dp.Ledger.in_memory(), network()
    its = plan(numerics=dp.Numerics.IDEALISED, policy=dp.Everything(), steps=1)
    run = PrivateRun(model, its, ledger=ledger)
    run.backward(loss, next(run.batches(data())))
    rows = list(zip(*data().tensors, strict=True))
    assert torch.allclose(
        gradients(model), clipped_average(network(), rows, its.expected_batch_size), atol=1e-5
    )
    assert {charge.run.numerics for charge in ledger.charges()} == {dp.Numerics.IDEALISED}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            lambda: keyed(
                network(), plan(dp.mechanisms.Microbatches(dp.Gaussian(1.0, 1.0), slots=4))
            ),
            dp.errors.ParameterError,
        ),
        (
            lambda: keyed(network().requires_grad_(requires_grad=False), plan()),
            dp.errors.ModelError,
        ),
        (lambda: keyed(network(), plan(), microbatch=0), dp.errors.ParameterError),
        (
            lambda: PrivateRun("model", plan(), ledger=dp.Ledger.in_memory()),  # type: ignore[arg-type]
            dp.errors.ParameterError,
        ),
        (lambda: next(keyed(network(), plan()).batches(data(RECORDS - 1))), dp.errors.ModelError),
    ],
    ids=["slots", "frozen", "microbatch", "model", "another data set (P30)"],
)
def test_what_cannot_be_served_is_refused_before_anything_is_charged(
    change: Callable[[], object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        change()


# --- batches ---


def test_p16_a_batch_serves_once() -> None:
    run = keyed(network(), plan())
    batch = next(run.batches(data()))
    run.backward(loss, batch)
    with pytest.raises(dp.errors.SampleMisuse):
        run.backward(loss, batch)


def test_p28_a_batch_that_is_skipped_is_refused() -> None:
    run = keyed(network(), plan())
    batches = run.batches(data())
    next(batches)
    with pytest.raises(dp.errors.SampleMisuse, match="every batch"):
        next(batches)


def test_a_batch_of_another_run_or_of_nobody_is_refused() -> None:
    run, other = keyed(network(), plan()), keyed(network(), plan())
    own, foreign = next(run.batches(data())), next(other.batches(data()))
    for batch in (foreign, Batch(own.sample, Portion(own.data)), "batch"):
        with pytest.raises(dp.errors.DiscreetError):
            run.backward(loss, batch)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [dp.Everything(), dp.Poisson(0.5)], ids=["everyone", "some"])
@pytest.mark.parametrize(
    "kind",
    [lambda rows: rows, lambda rows: list(zip(*rows.tensors, strict=True))],
    ids=["tensors", "entries"],
)
def test_t12_a_loss_that_writes_into_its_batch_writes_into_a_copy(kind: Any, policy: Any) -> None:
    """Rows of a tensor data set go straight into a pass: into memory of the pass's own."""
    rows = data()
    inputs = rows.tensors[0].clone()
    seen = []

    def doubling(model: nn.Module, batch: Any) -> Tensor:
        x, y = batch
        x *= 2
        return cross_entropy(model(x), y, reduction="none")

    for microbatch in (None, 8):
        model = network()
        run = keyed(model, plan(policy=policy), microbatch=microbatch)
        batch = next(run.batches(kind(rows)))
        drawn = batch.data[0]
        run.backward(doubling, batch)
        assert torch.equal(rows.tensors[0], inputs)
        assert torch.equal(batch.data[0], drawn)

        chosen = (drawn[:, None] == inputs).all(2).nonzero()[:, 1]
        assert len(chosen) == len(drawn)
        doubled = [(2 * inputs[row], rows.tensors[1][row]) for row in chosen]
        expected = clipped_average(network(), doubled, run.plan.expected_batch_size)
        seen.append(torch.allclose(gradients(model), expected, atol=1e-3))
    assert all(seen)


def test_who_unpacks_a_batch_is_told_where_to_do_it() -> None:
    batch = next(keyed(network(), plan()).batches(data()))
    for take in (tuple, lambda it: it[0]):
        with pytest.raises(
            dp.errors.SampleMisuse, match=r"Unpack what the function loss\(model, data\) is given"
        ):
            take(batch)


def test_an_error_in_the_loss_releases_nothing_and_leaves_the_batch() -> None:
    model = network()
    run = keyed(model, plan())
    batch = next(run.batches(data()))
    for bad in (lambda m, b: loss(m, b).mean(), lambda m, b: b[0].sum(1)):
        with pytest.raises(dp.errors.ModelError):
            run.backward(bad, batch)
    assert all(parameter.grad is None for parameter in model.parameters())
    run.backward(loss, batch)
    assert torch.allclose(gradients(model), first_gradient(plan()), atol=1e-6)


def test_p06_parameters_unfrozen_later_are_refused() -> None:
    model = network()
    model[0].weight.requires_grad_(requires_grad=False)  # type: ignore[index]
    run = keyed(model, plan())
    batch = next(run.batches(data()))
    model[0].weight.requires_grad_(requires_grad=True)  # type: ignore[index]
    with pytest.raises(dp.errors.ModelError, match="grad/0.weight"):
        run.backward(loss, batch)


def test_data_sets_and_collate_functions_of_users() -> None:
    class Words:
        def __len__(self) -> int:
            return RECORDS

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"x": data()[index][0], "y": data()[index][1], "name": f"record {index}"}

    def named(model: nn.Module, batch: dict[str, Any]) -> Tensor:
        assert len(batch["name"]) == len(batch["x"])
        return loss(model, (batch["x"], batch["y"]))

    model = network()
    run = keyed(model, plan())
    run.backward(named, next(run.batches(Words())))
    assert torch.allclose(gradients(model), first_gradient(plan()), atol=1e-6)


def test_records_stand_in_an_order_that_is_not_that_of_the_data() -> None:
    run = keyed(network(), plan(policy=dp.Everything()))
    batch = next(run.batches(data()))
    assert not torch.equal(batch.data[0], data().tensors[0])
    assert torch.equal(batch.data[0].sum(1).sort().values, data().tensors[0].sum(1).sort().values)


def test_p42_records_in_the_wrong_place_are_not_shown() -> None:
    """Mistakes that everybody makes once, and whose message may end in a log."""

    def own(model: nn.Module, rows: Any) -> Tensor:
        out: Tensor = model(rows[0]).squeeze(1)
        return out

    run = PrivateRun(
        nn.Linear(2, 1), plan(policy=dp.Everything(), records=3), ledger=dp.Ledger.in_memory()
    )
    secret = TensorDataset(torch.full((3, 2), 1234567.0))
    batch = next(run.batches(secret))
    mistakes: list[Any] = [
        lambda: run.backward(own, batch.data),
        lambda: run.backward(batch.data[0].sum(1), batch),
        lambda: run.batches(secret, batch.data),
        lambda: run.batches(secret, workers=batch.data),
        lambda: run.save(batch.data),
    ]
    for mistake in mistakes:
        with pytest.raises((dp.errors.ParameterError, dp.errors.SampleMisuse)) as refused:
            mistake()
        assert "1234567" not in str(refused.value)
    assert "1234567" not in repr(batch)
    run.backward(own, batch)


@pytest.mark.parametrize(
    ("policy", "microbatch"),
    [(dp.Poisson(0.3), 7), (dp.Poisson(0.02), None), (dp.Everything(), None)],
)
def test_static_losses_release_the_same_bits(policy: Any, microbatch: int | None) -> None:
    def released(*, static: bool) -> list[Tensor]:
        model = nn.Sequential(network(), nn.Dropout(0.4))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        gradients: list[Tensor] = []
        its = plan(policy=policy, steps=6)
        with keyed(model, its, microbatch=microbatch, static=static) as run:
            for batch in run.batches(data()):
                run.backward(loss, batch)
                gradients += [parameter.grad.clone() for parameter in model.parameters()]  # type: ignore[union-attr]
                optimizer.step()
                optimizer.zero_grad()

            # With one in fifty, steps without records are among them.
            if static and run.engine.choices:
                assert "not replayed" not in run.engine.explain()
        return gradients

    pairs = zip(released(static=True), released(static=False), strict=True)
    assert all(torch.equal(first, second) for first, second in pairs)
