"""P01 to P17, one test each: what went wrong in released libraries, and what the engine does
instead.

Every test computes what the wrong implementation gives, shows that it breaks the bound, and that
the engine keeps it: with one record more or less, the clipped sum moves by at most the clip norm.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import discreet as dp
from discreet.errors import CoupledRecords, ModelError, SampleMisuse
from discreet.mechanisms import Bound
from discreet.training.clipping import Sums
from discreet.training.data.trees import select
from discreet.training.engine import Engine, Loss
from discreet.training.factors.factors import Outer
from discreet.training.rounding.precision import most_spread
from unit.training.test_run import data, gradients, keyed, loss, network, plan

RECORDS = 5
JUST_ABOVE = 1.0 + 1e-5  # float32 sums round; PrivateRun clips to a little less for it


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(3)


def clipped(
    engine: Engine,
    its: Loss,
    batch: Any,
    size: int,
    clip_norm: float = 1.0,
    bound: Bound | None = None,
) -> Tensor:
    """The sum of clipped gradients, in passes of `size` records,
    as a run computes it before noise.
    """
    bound = bound or dp.Gaussian(clip_norm, 1.0).bind(engine.leaves)
    # Another group than the one that is charged, so spreads are held back, as with certified
    # numerics.
    sums = Sums(
        bound,
        bound.initial_state,
        lambda one, found: (replace(one), most_spread(max(found, default=1))),
        engine.device,
    )
    count = batch[0].shape[0]
    for start in range(0, count, size):
        rows = torch.arange(start, start + size)
        filled = select(batch, torch.where(rows < count, rows, start))
        for contributions, statistics in engine.passes(its, filled, size, rows < count):
            sums.add(contributions, statistics)
    return torch.from_numpy(sums.flat(bound.groups(bound.initial_state)[0])).clone()


def moves(
    model: nn.Module, its: Loss, batch: Any, clip_norm: float = 1.0, size: int = RECORDS
) -> list[float]:
    """How far the sum moves when each record is left out."""
    engine = Engine(model)
    count = batch[0].shape[0]
    everything = clipped(engine, its, batch, size, clip_norm)
    found = []
    for left_out in range(count):
        rest = torch.tensor([row for row in range(count) if row != left_out])
        found.append(
            float((everything - clipped(engine, its, select(batch, rest), size, clip_norm)).norm())
        )
    return found


def true_gradient(model: nn.Module, its: Loss, batch: Any, row: int) -> Tensor:
    losses = its(model, select(batch, torch.tensor([row])))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(losses.sum(), parameters, allow_unused=True)
    return torch.cat(
        [
            torch.zeros(p.numel()) if g is None else g.reshape(-1)
            for p, g in zip(parameters, found, strict=True)
        ]
    )


def right(model: nn.Module, its: Loss, batch: Any, clip_norm: float = 1.0) -> None:
    """No record moves the sum further than the clip norm, and the sum is that of a loop over
    records.
    """
    engine = Engine(model)
    count = batch[0].shape[0]
    total = torch.zeros(sum(engine.leaves.values()), dtype=torch.float64)
    for row in range(count):
        own = true_gradient(model, its, batch, row).double()
        total += own * min(1.0, clip_norm / float(own.norm()))
    assert torch.allclose(
        clipped(engine, its, batch, count, clip_norm), total, atol=2e-5 * clip_norm
    )
    assert engine.one_by_one is None
    assert max(moves(model, its, batch, clip_norm)) <= clip_norm * JUST_ABOVE


def squares(model: Any, batch: Any) -> Tensor:
    out: Tensor = model(*batch)
    return out.reshape(out.shape[0], -1).square().sum(1)


# --- what is clipped ---


def test_p01_a_record_of_any_size_moves_the_sum_by_at_most_the_clip_norm() -> None:
    model, batch = nn.Linear(4, 3), (torch.randn(RECORDS, 4) * 10.0,)
    batch[0][0] *= 5.0
    unclipped = true_gradient(model, squares, batch, 0).norm()
    assert unclipped > 446.0  # what the wrong engine lets through
    right(model, squares, batch, clip_norm=0.2)
    with pytest.raises(
        ModelError, match="one loss for each record"
    ):  # a mean is not taken for one loss
        clipped(Engine(model), lambda m, b: squares(m, b).mean(), batch, RECORDS)


def test_p02_clip_norm_and_noise_are_read_from_one_place() -> None:
    """A threshold that moved by 100: sums and noise are both in units of it,
    so their ratio stays.
    """
    engine = Engine(nn.Linear(4, 3))
    batch = (torch.randn(1, 4) * 100.0,)
    bound = dp.AdaptiveClip(dp.Gaussian(1.0, 1.1), quantile=0.5, count_noise_std=10.0).bind(
        engine.leaves
    )
    lengths, noises, scales = [], [], []
    for threshold in (10.0, 0.1):
        state = dict.fromkeys(bound.initial_state, threshold)
        sums = Sums(
            bound,
            state,
            lambda group, found: (group, most_spread(max(found, default=1))),
            engine.device,
        )
        for contributions, statistics in engine.passes(squares, batch, 1, 1):
            sums.add(contributions, statistics)
        group = bound.groups(state)[0]
        lengths.append(float(torch.from_numpy(sums.flat(group)).norm()) / group.clip_norm)
        noises.append(group.noise_std / group.clip_norm)
        scales.append(group.scales[0])
    assert max(lengths) <= JUST_ABOVE
    assert noises[0] == noises[1]
    assert scales[0] / scales[1] == pytest.approx(100.0)
    stale = (
        lengths[0] * scales[0] / scales[1]
    )  # clipped by the old threshold, noised for the new one
    assert stale > 99.0


class TiedHead(nn.Module):
    """The embedding is the head, used as a plain function."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 6)

    def forward(self, ids: Tensor) -> Tensor:
        return functional.linear(torch.tanh(self.table(ids)), self.table.weight)


def test_p03_a_weight_used_as_a_function_counts_in_the_norm() -> None:
    model, batch = TiedHead(), (torch.randint(7, (RECORDS, 4)),)
    full = true_gradient(model, squares, batch, 0)
    detached = (
        functional.linear(torch.tanh(model.table(batch[0][:1])), model.table.weight.detach())
        .square()
        .sum()
    )
    (hooked,) = torch.autograd.grad(
        detached, [model.table.weight]
    )  # what hooks on the embedding see
    assert full.norm() / hooked.norm() > 1.2  # under clip norm 1
    right(model, squares, batch)


class WithScale(nn.Module):
    """A second input, by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor, *, scale: Tensor) -> Tensor:
        return functional.linear(x, self.weight) * scale.unsqueeze(1)


def test_p04_further_inputs_of_a_layer_count() -> None:
    def its(model: Any, batch: Any) -> Tensor:
        out: Tensor = model(batch[0], scale=batch[1]).sum(1)
        return out

    model, batch = WithScale(), (torch.randn(RECORDS, 4), torch.full((RECORDS,), 100.0))
    first_only = true_gradient(model, its, (batch[0], torch.ones(RECORDS)), 0)
    assert true_gradient(model, its, batch, 0).norm() / first_only.norm() == pytest.approx(100.0)
    right(model, its, batch)


def test_p05_a_penalty_is_clipped_with_the_record() -> None:
    model, batch = nn.Linear(4, 3), (torch.randn(RECORDS, 4),)

    def its(network: Any, rows: Any) -> Tensor:
        penalty = torch.stack(
            [parameter.square().sum() for parameter in network.parameters()]
        ).sum()
        return squares(network, rows) + 20.0 * penalty

    own, penalty = true_gradient(model, squares, batch, 0), true_gradient(model, its, batch, 0)
    factor = min(1.0, 1.0 / float(own.norm()))
    wrong = (
        own * factor + (penalty - own) * factor
    )  # the penalty's gradient times the sum of the clip factors
    assert wrong.norm() > 2.0
    right(model, its, batch)


def test_p06_what_is_unfrozen_later_is_refused() -> None:
    model, batch = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), (torch.randn(RECORDS, 4),)
    model[0].requires_grad_(requires_grad=False)
    engine = Engine(model)
    clipped(engine, squares, batch, RECORDS)
    head = true_gradient(model, squares, batch, 0)
    model[0].requires_grad_()
    assert (
        true_gradient(model, squares, batch, 0).norm() / head.norm() > 1.0 + 1e-3
    )  # ignored in the norm, used in the sum
    with pytest.raises(ModelError, match=r"grad/0\.weight"):
        clipped(engine, squares, batch, RECORDS)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_p07_convolutions_of_every_padding_and_grouping(mode: Any, groups: int) -> None:
    batch = (torch.randn(RECORDS, 4, 5, 5),)
    model = nn.Conv2d(4, 4, 3, padding=1, padding_mode=mode, groups=groups)
    right(model, squares, batch)
    if mode != "zeros":
        plain = nn.Conv2d(4, 4, 3, padding=1, groups=groups)
        plain.load_state_dict(model.state_dict())
        unpadded = true_gradient(plain, squares, batch, 0)
        assert not torch.allclose(
            unpadded.norm(), true_gradient(model, squares, batch, 0).norm(), rtol=1e-3
        )


class Twice(nn.Module):
    """One module, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(self.inner(x) * 3.0)
        return out


def test_p08_a_module_called_twice_is_one_gradient_of_two_uses() -> None:
    model, batch = Twice(), (torch.randn(RECORDS, 4),)
    with torch.no_grad():
        hidden = model.inner(batch[0][:1]) * 3.0
    last = torch.autograd.grad(model.inner(hidden).square().sum(), list(model.parameters()))
    overwritten = torch.cat(
        [gradient.reshape(-1) for gradient in last]
    ).norm()  # activations of the last call only
    assert true_gradient(model, squares, batch, 0).norm() / overwritten > 1.2
    right(model, squares, batch)


# --- what couples records ---


@pytest.mark.parametrize("frozen", [True, False])
def test_p09_batch_norm_couples_also_without_parameters_and_is_refused(frozen: bool) -> None:
    norm = nn.BatchNorm1d(4, affine=not frozen).requires_grad_(requires_grad=not frozen)
    model, x = nn.Sequential(nn.Linear(4, 4), norm, nn.Linear(4, 3)), torch.randn(RECORDS, 4)
    other = torch.cat([x[:-1], 100.0 * x[-1:]])
    with torch.no_grad():
        assert not torch.allclose(
            model(x)[0], model(other)[0], atol=0.1
        )  # the last record moves the first
    with pytest.raises(CoupledRecords, match="'1'"):
        clipped(Engine(model), squares, (x,), RECORDS)


def test_p10_a_token_is_not_taken_for_a_record() -> None:
    """Every token clipped by itself would give a record of T tokens T times the clip norm."""
    model, batch = nn.Linear(4, 3), (torch.ones(RECORDS, 6, 4),)

    def flat(network: Any, rows: Any) -> Tensor:
        out: Tensor = network(rows[0].reshape(-1, 4)).square().sum(1)
        return out

    token = true_gradient(model, lambda network, rows: flat(network, rows)[:1], batch, 0)
    assert float((token / token.norm() * 6).norm()) == pytest.approx(6.0)
    with pytest.raises(ModelError, match="one loss for each record"):
        clipped(Engine(model), flat, batch, RECORDS)

    def together(network: Any, rows: Any) -> Tensor:  # the same layer, and one loss for each record
        return flat(network, rows).reshape(-1, 6).sum(1)

    right(model, together, batch)


def test_p11_a_mean_over_the_tokens_of_the_batch_becomes_one_over_those_of_each_record() -> None:
    model = nn.Linear(4, 3)
    mask = torch.ones(RECORDS, 6)
    batch = (torch.randn(RECORDS, 6, 4), mask)

    def its(network: Any, rows: Any) -> Tensor:
        out: Tensor = (network(rows[0]).square().sum(2) * rows[1]).sum(1) / rows[1].sum()
        return out

    shorter = mask.clone()
    shorter[1:, 1:] = 0.0
    first = [
        torch.autograd.grad(its(model, (batch[0], one))[0], [model.weight])[0].norm()
        for one in (mask, shorter)
    ]
    assert first[1] / first[0] == pytest.approx(
        3.0
    )  # the others' lengths scale my gradient: (5 * 6) / (6 + 4)
    engine = Engine(model)
    alone = [true_gradient(model, its, batch, row).double() for row in range(RECORDS)]
    total = torch.stack([own * min(1.0, 1.0 / float(own.norm())) for own in alone]).sum(0)
    assert torch.allclose(clipped(engine, its, batch, RECORDS), total, atol=2e-5)
    assert engine.one_by_one is not None
    assert "several records" in engine.one_by_one
    assert max(moves(model, its, batch)) <= JUST_ABOVE


class Positions(nn.Module):
    """Parameters whose own batch axis is 1: positions and a class token; T equals the number of
    records.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(RECORDS, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.place = nn.Parameter(torch.randn(1, RECORDS, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.table(torch.arange(RECORDS).unsqueeze(0)) + self.place
        return torch.cat([self.token.expand(len(x), -1, -1), x], 1).cumsum(1)


def test_p12_a_batch_axis_of_one_is_not_the_record_axis() -> None:
    """Also where there are as many positions as records."""
    model, batch = Positions(), (torch.randn(RECORDS, RECORDS, 4),)
    position = true_gradient(model, squares, batch, 0)[: RECORDS * 4].reshape(RECORDS, 4)
    assert (
        float(sum(row.norm() / max(1.0, float(row.norm())) for row in position)) > 4.0
    )  # if a row were a record
    right(model, squares, batch)


# --- numbers ---


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan, 1e38])
def test_p13_a_record_that_is_not_finite_adds_nothing(bad: float) -> None:
    model, batch = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), (torch.randn(RECORDS, 4),)
    engine = Engine(model)
    rest = clipped(engine, squares, (batch[0][1:],), RECORDS)
    batch[0][0, 1] = bad
    wrong = true_gradient(model, squares, batch, 0)
    assert not bool(
        torch.isfinite(wrong * (1.0 / wrong.norm())).all()
    )  # scaled by its norm it poisons the sum
    assert torch.allclose(clipped(engine, squares, batch, RECORDS), rest, atol=1e-6)


def test_p14_a_ghost_norm_that_cancels_in_float32_stays_an_upper_bound() -> None:
    generator = torch.Generator().manual_seed(5)
    below = 0
    for _ in range(40):
        a = torch.randn(1, 32, 16, generator=generator).repeat_interleave(2, 1) * 10
        b = torch.randn(1, 32, 16, generator=generator).repeat_interleave(2, 1) * 10
        b[:, 1::2] *= -1
        b = b + torch.randn(b.shape, generator=generator) * 1e-3
        truth = float((b.double().mT @ a.double()).square().sum())
        naive = float(((a @ a.mT) * (b @ b.mT)).sum())
        below += naive < 0.95 * truth
        squared, _ = Outer(a, b, (16, 16)).measured()
        assert float(squared) >= truth
    assert below > 5  # records that plain float32 would clip too little


def test_p14_a_record_whose_terms_cancel_is_held_to_their_sizes() -> None:
    """Rounding of a sum is relative to its terms: by its norm alone this record would not be
    clipped at all.

    In float64, where the bound of the norm is close to the norm.
    """
    model = nn.Linear(4, 3, bias=False).double()
    sign = torch.tensor([1.0, -1.0]).repeat(32).double()
    batch = (1e4 * torch.ones(2, 64, 4).double() + 1e-2 * torch.randn(2, 64, 4).double(),)

    def its(network: Any, rows: Any) -> Tensor:
        out: Tensor = (network(rows[0]).sum(2) * sign).sum(1)
        return out

    length = max(float(true_gradient(model, its, batch, row).norm()) for row in range(2))
    spread = float(batch[0].norm(dim=2).sum(1).min()) * 3.0**0.5
    assert length < 1.0
    assert spread > 1e5
    ghost = Engine(
        model, form="ghost"
    )  # written out, the gradient is one number for each weight, without terms
    rounding = 2.0**-53 * 64 * 2 * most_spread(64)
    most = 2 * (
        length * most_spread(64) / spread * 1.01 + rounding
    )  # of both records; a pass over one has no terms either
    assert float(clipped(ghost, its, batch, 2).norm()) <= most < length / 1e3


@pytest.mark.parametrize("size", [1, 2, 3])
def test_p15_microbatches_by_place_do_not_change_the_bound(size: int) -> None:
    """One record more shifts all later microbatches; their averages would all change, by up to
    twice the bound each.
    """
    model, batch = nn.Linear(4, 3), (torch.randn(RECORDS, 4) * 10,)
    averages = [torch.zeros(15), torch.zeros(15)]
    for which, rows in enumerate((range(RECORDS), range(1, RECORDS))):
        own = [true_gradient(model, squares, batch, row) for row in rows]
        for start in range(0, len(own), 2):
            mean = torch.stack(own[start : start + 2]).mean(0)
            averages[which] += mean / mean.norm().clamp(min=1.0)
    assert (averages[0] - averages[1]).norm() > 1.01
    assert max(moves(model, squares, batch, size=size)) <= JUST_ABOVE


def test_p16_a_batch_serves_one_backward_and_nothing_is_left_of_one_that_failed() -> None:
    model, rows = network(), data()
    run = keyed(model, plan())
    batches = run.batches(rows)
    batch = next(batches)

    def broken(its: nn.Module, values: Any) -> Tensor:
        loss(its, values)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.backward(broken, batch)
    assert all(parameter.grad is None for parameter in model.parameters())
    run.backward(loss, batch)
    once = gradients(model).clone()
    with pytest.raises(SampleMisuse):
        run.backward(loss, batch)
    assert torch.equal(gradients(model), once)  # the second changed nothing
    unbroken = network()
    again = keyed(unbroken, plan())
    again.backward(loss, next(again.batches(rows)))
    assert torch.allclose(
        once, gradients(unbroken), atol=1e-3
    )  # and the first left nothing behind but new noise


@pytest.mark.parametrize("scale", [2.0**16, 2.0**-16])
def test_p17_a_scaled_loss_cannot_raise_a_contribution(scale: float) -> None:
    """Norms seen 65536 times too large or too small would leave next to nothing, or let everything
    pass.
    """
    model, batch = nn.Linear(4, 3), (torch.randn(RECORDS, 4) * 100,)

    def its(network: Any, rows: Any) -> Tensor:
        return squares(network, rows) * scale

    unscaled = true_gradient(model, squares, batch, 0).norm()
    seen = true_gradient(model, its, batch, 0).norm()
    wrong = float(unscaled) * min(
        1.0, 1.0 / float(seen)
    )  # the norm of the scaled, the gradient of the unscaled loss
    assert wrong > 100.0 or wrong < 1e-4
    right(model, its, batch)


CASES: list[Callable[[], tuple[nn.Module, Any]]] = [
    lambda: (TiedHead(), (torch.randint(7, (RECORDS, 4)),)),
    lambda: (Twice(), (torch.randn(RECORDS, 4),)),
    lambda: (Positions(), (torch.randn(RECORDS, RECORDS, 4),)),
    lambda: (
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
        (torch.randn(RECORDS, 4, 5, 5),),
    ),
]


@pytest.mark.parametrize("make", CASES)
@pytest.mark.parametrize("form", ["ghost", "direct"])
def test_one_record_alone_never_exceeds_the_clip_norm(
    make: Callable[[], tuple[nn.Module, Any]], form: str
) -> None:
    model, batch = make()
    engine = Engine(model, form=form)
    for clip_norm in (1e-3, 0.5, 1e6):
        for row in range(RECORDS):
            one = select(batch, torch.tensor([row]))
            assert (
                float(clipped(engine, squares, one, 1, clip_norm).norm()) <= clip_norm * JUST_ABOVE
            )
