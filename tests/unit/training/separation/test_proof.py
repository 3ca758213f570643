"""Every pass is proved, or its records are computed one by one, or it is refused because it keeps
something of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from discreet.errors import CoupledRecords, ModelError
from discreet.training.engine import Engine, Loss
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OWN, PUBLIC, Mixed, OneByOne, Rows
from support.clipped_sums import CLIP_NORM, ROUNDING, moved_by
from support.tally import Tally


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(1)


def labelled(model: Any, batch: Any) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def summed(model: Any, batch: Any) -> Tensor:
    out: Tensor = model(batch[0])
    return out.reshape(out.shape[0], -1).square().sum(1)


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape)


CLASSES = torch.tensor([0, 1, 2, 1, 0])


def used(model: nn.Module, loss: Loss, batch: Any, count: int = 5) -> Engine:
    engine = Engine(model)
    list(engine.passes(loss, batch, count, count))
    return engine


def reason_of(engine: Engine, loss: Loss, batch: Any, count: int = 5) -> str | None:
    """Why a pass was computed one by one; None if it was proved."""
    list(engine.passes(loss, batch, count, count))
    return engine.one_by_one


def assert_alone(model: nn.Module, loss: Loss, batch: Any, *words: str) -> None:
    """Records are computed one by one, the reason has these words, and one record moves the sum by
    its clip norm at most.
    """
    moved, engine = moved_by(model, loss, batch, 2, len(batch[0]))
    assert engine.one_by_one is not None
    for word in words:
        assert word in engine.one_by_one
    assert moved <= CLIP_NORM + ROUNDING


# --- what is computed one by one, and how the reason is named ---


class HandWritten(nn.Module):
    """Batch normalisation that no list of layers knows."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(0)) / (x.std(0, correction=0) + 0.1)


class Scaled(nn.Module):
    """Numbers divided by the largest of the batch, which has no record axis."""

    def forward(self, x: Tensor) -> Tensor:
        return x / x.abs().max()


class NextMinusOwn(nn.Module):
    """A record is moved by the one after it only."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:-1] - 0.1 * x[1:], x[-1:]])


class ByRow(nn.Module):
    """Every row of the batch has its own factor."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.arange(1.0, 1.0 + len(x)).unsqueeze(1)


@pytest.mark.parametrize(
    ("layer", "operation"),
    [(HandWritten(), "mean.dim"), (Scaled(), "max.default"), (NextMinusOwn(), "")],
)
def test_p09_a_layer_that_couples_records_is_named_and_records_go_one_by_one(
    layer: nn.Module, operation: str
) -> None:
    model = nn.Sequential(nn.Linear(4, 6), layer, nn.Linear(6, 3))
    assert_alone(model, labelled, (rows(5, 4), CLASSES), "'1'", operation)


def test_p09_batch_norm_is_refused_in_every_state_by_name() -> None:
    fixed = nn.BatchNorm1d(6, track_running_stats=False).eval()
    for norm in (nn.BatchNorm1d(6), nn.BatchNorm1d(6, affine=False), fixed):
        norm.requires_grad_(requires_grad=False)
        model = nn.Sequential(nn.Linear(4, 6), norm, nn.Linear(6, 3))
        with pytest.raises(CoupledRecords, match="'1'"):
            used(model, labelled, (rows(5, 4), CLASSES))


def test_p09_batch_norm_that_no_list_of_functions_refuses_is_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without running values it couples, and is computed one by one; with them it is state, and
    refused.
    """
    monkeypatch.setattr(
        "discreet.training.passes.batch_norm.Noting.released_only",
        lambda self, func, args, kwargs: (args, dict(kwargs)),
    )
    x = rows(5, 2, 4)

    def model(*, track: bool) -> nn.Module:
        return nn.Sequential(
            nn.Conv1d(2, 6, 2), nn.BatchNorm1d(6, track_running_stats=track), nn.Flatten()
        )

    assert_alone(model(track=False), summed, (x,), "batch_norm")
    with pytest.raises(CoupledRecords, match=r"writes what records made into '1\.running"):
        used(model(track=True), summed, (x,))


def test_p09_batch_norm_with_fixed_statistics_is_served() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6).eval(), nn.Linear(6, 3))
    assert used(model, labelled, (rows(5, 4), CLASSES)).one_by_one is None


def test_a_record_whose_numbers_depend_on_its_row_is_computed_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 6), ByRow(), nn.Linear(6, 3))
    assert_alone(model, labelled, (rows(5, 4), CLASSES), "mul", "'1'")


def tokens(model: Any, batch: Any) -> Tensor:
    losses: Tensor = functional.cross_entropy(model(batch[0]).mT, batch[1], reduction="none")
    return losses.mul(batch[2]).sum(1).div(batch[2].sum())


@pytest.mark.parametrize("kind", [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize("short", [True, False])
def test_p11_a_mean_over_the_tokens_of_the_batch_goes_one_by_one_also_while_all_records_are_long(
    kind: torch.dtype,
    short: bool,
) -> None:
    mask = torch.ones(5, 6)
    mask[4, 3:] = 0.0 if short else 1.0
    batch = (rows(5, 6, 4), torch.randint(3, (5, 6)), mask.to(kind))
    engine = used(nn.Linear(4, 3), tokens, batch)
    assert engine.one_by_one is not None
    assert "the loss depends on several records: sum" in engine.one_by_one


def test_p11_a_mean_over_labels_that_are_not_ignored_goes_one_by_one() -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        losses = functional.cross_entropy(
            model(batch[0]).mT, batch[1], reduction="none", ignore_index=-100
        )
        return losses.sum(1).div((batch[1] != -100).sum().clamp(min=1))

    labels = torch.randint(3, (5, 6))
    labels[:, 4:] = -100  # equally many everywhere: no trial would show it
    assert_alone(
        nn.Linear(4, 3), loss, (rows(5, 6, 4), labels), "the loss depends on several records: sum"
    )


def test_p11_a_contrast_within_the_batch_goes_one_by_one() -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        z = functional.normalize(model(batch[0]), dim=1)
        return functional.cross_entropy(z @ z.mT, torch.arange(len(z)), reduction="none")

    assert_alone(nn.Linear(4, 3), loss, (rows(5, 4),), "mm")


def test_p11_a_statistic_that_depends_on_other_records_goes_one_by_one() -> None:
    def loss(model: Any, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        losses = labelled(model, batch)
        seen = losses.detach()
        return losses, {"metric/rank": (seen > seen.mean()).float() * seen.mean()}

    engine = used(nn.Linear(4, 3), loss, (rows(5, 4), CLASSES))
    assert engine.one_by_one is not None
    assert "'metric/rank' depends on several records" in engine.one_by_one


def caught(_: Tensor, classes: Tensor) -> bool:
    try:
        functional.embedding(classes + 10, torch.eye(3))
    except IndexError:
        return True
    return False


DOORS: dict[str, Callable[[Tensor, Tensor], bool]] = {
    "item": lambda losses, _: losses.sum().item() > 1e9,
    "truth": lambda losses, _: bool((losses > 1e9).any()),
    "list": lambda losses, _: max(losses.tolist()) > 1e9,
    "text": lambda losses, _: "inf" in repr(losses),
    "size": lambda losses, _: len(losses[losses > 1e9]) > 0,
}


def test_t14_an_error_that_the_loss_catches_ends_the_step() -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        losses = labelled(model, batch)
        return losses * 0.5 if caught(losses.detach(), batch[1]) else losses

    with pytest.raises(ModelError, match="caught an error"):
        list(Engine(nn.Linear(4, 3)).passes(loss, (rows(5, 4), CLASSES), 5, 5))


@pytest.mark.parametrize("door", DOORS)
def test_p09_what_leaves_for_python_or_decides_a_shape_is_not_proved(door: str) -> None:
    """Whatever the answer is in this batch: what counts is the way out."""

    def loss(model: Any, batch: Any) -> Tensor:
        losses = labelled(model, batch)
        return losses * 0.5 if DOORS[door](losses.detach(), batch[1]) else losses

    assert_alone(nn.Linear(4, 3), loss, (rows(5, 4), CLASSES))


def test_no_number_of_a_record_appears_in_a_reason() -> None:
    """Also not which of them it was: the reason is the same for every batch."""
    reasons = set()
    for base in (1234.5, -7.0):
        data = torch.full((5, 4), base) + torch.arange(5.0).unsqueeze(1)
        model = nn.Sequential(nn.Linear(4, 6), HandWritten(), nn.Linear(6, 3))
        reasons.add(used(model, labelled, (data, CLASSES)).one_by_one)
    (reason,) = reasons
    assert (
        reason
        == "linear joins a weight with several records: mean.dim: runs over records, in the layer "
        "'1'"
    )


def test_a_failure_that_the_model_catches_stays_a_failure() -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        losses = labelled(model, batch)
        try:
            largest = float(losses.max())
        except Exception:  # noqa: BLE001  (what is tested)
            return losses
        return losses / largest

    assert_alone(nn.Linear(4, 3), loss, (rows(5, 4), CLASSES), "Python")


# --- state ---


def test_instance_norm_that_keeps_statistics_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 2), nn.InstanceNorm1d(3, track_running_stats=True))
    with pytest.raises(CoupledRecords, match=r"'1\.running_mean'.*track_running_stats"):
        used(model, summed, (rows(5, 2, 7),))


class Counting(nn.Module):
    """Adds up what it has seen, in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.total += x.detach().sum()  # type: ignore[operator]
        return x


def test_a_buffer_that_takes_up_records_is_refused_by_name() -> None:
    with pytest.raises(CoupledRecords, match=r"'1\.total'.*the layer '1'"):
        used(nn.Sequential(nn.Linear(4, 3), Counting()), labelled, (rows(5, 4), CLASSES))


class Queue(nn.Module):
    """Keeps what it has seen, outside of buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        before, self.seen = self.seen, x.detach()[0] + self.seen
        return x + before


def test_state_that_is_carried_from_pass_to_pass_is_refused() -> None:
    with pytest.raises(CoupledRecords, match="seen"):
        used(nn.Sequential(Queue(), nn.Linear(4, 3)), labelled, (rows(5, 4), CLASSES))


def test_state_that_a_closure_carries_is_refused_in_the_next_pass() -> None:
    """Wrong: to compute such a pass one by one, where the kept record would enter all others."""
    kept = Tally()

    def loss(model: Any, batch: Any) -> Tensor:
        losses = labelled(model, batch)
        before = kept[-1] if kept else torch.zeros(())
        kept.append(losses.detach()[0])
        return losses + losses * before

    with pytest.raises(CoupledRecords, match="an earlier pass"):
        used(nn.Linear(4, 3), loss, (rows(5, 4), CLASSES))


def test_random_numbers_of_others_than_torch_are_the_same_for_all_records_of_a_pass() -> None:
    """They are public: nothing of a record is in them."""

    class Jitter(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * random.random()

    moved, _ = moved_by(
        nn.Sequential(nn.Linear(4, 3), Jitter()), labelled, (rows(1, 4), CLASSES[:1]), 0, 1
    )
    assert moved <= CLIP_NORM + ROUNDING


# --- what is proved ---


class Tagged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.encoder = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.3, batch_first=True)
        self.head = nn.Linear(6, 11)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(self.table(ids)))
        return out


def own_tokens(model: Any, batch: Any) -> Tensor:
    losses = functional.cross_entropy(model(batch[0]).mT, batch[1], reduction="none")
    return losses.mul(batch[2]).sum(1).div(batch[2].sum(1))


def language() -> tuple[nn.Module, Loss, Any]:
    ids = torch.randint(11, (5, 6))
    mask = (torch.arange(6) < torch.tensor([6, 3, 2, 6, 5]).unsqueeze(1)).long()
    return Tagged(), own_tokens, (ids, ids.roll(-1, 1), mask)


SOUND: list[Callable[[], tuple[nn.Module, Loss, Any]]] = [
    lambda: (
        nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)),
        labelled,
        (rows(5, 4), CLASSES),
    ),
    lambda: (
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(inplace=True)),
        summed,
        (rows(5, 2, 6, 6),),
    ),
    lambda: (nn.EmbeddingBag(11, 3), summed, (torch.randint(11, (5, 4)),)),
    lambda: (
        nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3)),
        labelled,
        (rows(5, 4), CLASSES),
    ),
    lambda: (
        nn.LSTM(4, 3, 2, dropout=0.2),
        lambda m, b: m(b[0].movedim(1, 0))[0].sum((0, 2)),
        (rows(5, 6, 4),),
    ),
    language,
]


@pytest.mark.parametrize("make", SOUND)
def test_sound_models_are_proved_and_a_trial_leaves_no_trace(
    make: Callable[[], tuple[nn.Module, Loss, Any]],
) -> None:
    model, loss, batch = make()
    engine = Engine(model)
    state = [torch.get_rng_state(), *(value.clone() for value in model.state_dict().values())]
    with torch.random.fork_rng(devices=[]):
        engine.rehearse(loss, batch, 5)
    after = [torch.get_rng_state(), *model.state_dict().values()]
    assert all(map(torch.equal, state, after))
    assert all(
        parameter.grad is None and parameter.requires_grad for parameter in model.parameters()
    )
    assert engine.choices == ()  # few records say nothing about which form is fastest
    list(engine.passes(loss, batch, 5, 5))
    assert engine.one_by_one is None


def test_a_record_that_is_not_finite_is_no_coupling() -> None:
    data = rows(5, 4)
    data[0, 0] = torch.inf
    data[1, 0] = torch.nan
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    assert used(model, labelled, (data, CLASSES)).one_by_one is None


def test_one_record_alone_needs_no_proof() -> None:
    engine = Engine(nn.Sequential(nn.Linear(4, 6), HandWritten(), nn.Linear(6, 3)))
    assert len(list(engine.passes(labelled, (rows(1, 4), CLASSES[:1]), 1, 1))) == 1


def test_an_error_of_the_users_own_is_raised_as_it_is() -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        if bool((batch[0] > 1e9).any()):
            raise ValueError("too large")
        return labelled(model, batch)

    data = rows(5, 4)
    assert_alone(nn.Linear(4, 3), loss, (data, CLASSES), "Python")
    with pytest.raises(ValueError, match="too large"):
        used(nn.Linear(4, 3), loss, (data * 1e12, CLASSES))


def test_noise_layers_are_proved() -> None:
    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.randn_like(x)

    assert (
        used(nn.Sequential(Noisy(), nn.Linear(4, 3)), labelled, (rows(5, 4), CLASSES)).one_by_one
        is None
    )


def test_numbers_for_the_eye_that_meet_no_record_again_are_proved() -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        losses = labelled(model, batch)
        losses.detach().mean()
        return losses + torch.zeros_like(losses[0])

    assert used(nn.Linear(4, 3), loss, (rows(5, 4), CLASSES)).one_by_one is None


class Masked(nn.Module):
    """Calls other functions if no record is short, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        return (
            (y if bool(mask.all()) else torch.where(mask.bool().unsqueeze(2), y, 0.0))
            .square()
            .sum((1, 2))
        )


def test_a_model_that_looks_whether_any_record_is_short_goes_one_by_one_whatever_it_sees() -> None:
    reasons = set()
    for short in ([], [4], [0], [1, 3], [0, 1, 2, 3, 4]):
        mask = torch.ones(5, 6, dtype=torch.long)
        mask[short, 4:] = 0
        reasons.add(
            used(Masked(), lambda model, batch: model(*batch), (rows(5, 6, 4), mask)).one_by_one
        )
    (reason,) = reasons  # so it tells nothing about a record
    assert reason is not None


# --- the comparison with torch's own gradients ---


def test_gradients_that_are_not_those_of_torch_are_never_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from discreet.training.rules import linear as rule

    right = rule.bias_factor
    monkeypatch.setattr(rule, "bias_factor", lambda rows: right(rows * 0.5))
    engine = Engine(nn.Linear(4, 3))
    found = list(engine.passes(labelled, (rows(5, 4), CLASSES), 5, 5))
    assert engine.one_by_one == "the rules do not compute torch's own gradients"
    assert len(found) == 5


# --- one by one ---


class Unseen(torch.autograd.Function):
    """A function whose inside no mode of torch sees."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return gradients[0] @ weight.T, x.T @ gradients[0]


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = Unseen.apply(x, self.weight)  # type: ignore[no-untyped-call]
        return out


def test_a_function_with_a_backward_of_its_own_goes_one_by_one_coupled_or_not() -> None:
    batch = (rows(5, 4), CLASSES)
    for model in (
        Custom(),
        nn.Sequential(Custom(), HandWritten()),
        nn.Sequential(Custom(), NextMinusOwn()),
    ):
        assert_alone(model, labelled, batch)


def test_one_by_one_buffers_that_take_up_records_are_refused_too() -> None:
    with pytest.raises(CoupledRecords, match="total"):
        used(nn.Sequential(Custom(), Counting()), labelled, (rows(5, 4), CLASSES))
    engine = Engine(nn.Sequential(nn.Linear(4, 3), Counting()))
    engine.compute_one_by_one()
    with pytest.raises(CoupledRecords, match="total"):
        list(engine.passes(labelled, (rows(5, 4), CLASSES), 5, 5))


def test_a_model_that_calls_other_functions_for_other_numbers_of_records_is_proved() -> None:
    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.inner(x)
            return y + 0.0 if len(x) == 2 else y

    assert used(Changing(), labelled, (rows(5, 4), CLASSES)).one_by_one is None


# --- every pass anew ---


@pytest.mark.parametrize("first", [2, 3, 65])
def test_p11_a_coupling_that_begins_later_goes_one_by_one_from_there(first: int) -> None:
    passes = 0

    def loss(model: Any, batch: Any) -> Tensor:
        nonlocal passes
        passes += 1
        losses = labelled(model, batch)
        return losses * losses.detach().mean() if passes > first else losses

    engine = Engine(nn.Linear(4, 3))
    seen = []
    for _ in range(first + 1):
        list(engine.passes(loss, (rows(5, 4), CLASSES), 5, 5))
        seen.append(engine.one_by_one)
    assert seen[:-1] == [None] * first
    assert seen[-1] is not None
    assert "mean" in seen[-1]


def test_p09_a_layer_in_another_mode_is_seen() -> None:
    class Moody(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(0) if self.training else x

    model = nn.Sequential(nn.Linear(4, 4), Moody().eval(), nn.Linear(4, 3))
    engine = Engine(model)
    batch = (rows(5, 4), CLASSES)
    assert [reason_of(engine, labelled, batch) for _ in range(2)] == [None, None]
    model.train()
    assert "mean" in str(reason_of(engine, labelled, batch))
    model.eval()
    assert reason_of(engine, labelled, batch) is None  # and back
    normed = nn.Sequential(nn.BatchNorm1d(4).eval(), nn.Linear(4, 3))
    engine = Engine(normed)
    list(engine.passes(labelled, batch, 5, 5))
    normed.train()
    with pytest.raises(CoupledRecords, match="'0'"):
        list(engine.passes(labelled, batch, 5, 5))


def test_p11_another_loss_is_seen() -> None:
    def scaled(model: Any, batch: Any) -> Tensor:
        return labelled(model, batch).div(batch[0].abs().sum(1)[:].expand(len(batch[0])))

    def coupled(model: Any, batch: Any) -> Tensor:  # the same functions, in the same order
        return labelled(model, batch).div(batch[0].abs().sum(0)[:1].expand(len(batch[0])))

    engine = Engine(nn.Linear(4, 3))
    data = (rows(5, 4), CLASSES)
    assert [reason_of(engine, scaled, data) for _ in range(2)] == [None, None]
    assert "sum" in str(reason_of(engine, coupled, data))
    assert reason_of(engine, scaled, data) is None


# --- by itself ---


def test_states_follow_the_operations() -> None:
    proof, weight = Proof(3), torch.randn(4, 2)
    x = proof.begin(rows(3, 4), Rows(0))
    with proof:
        hidden = x @ weight
        turned = hidden.mT
        summed_up = hidden.sum(1)
        joined = hidden.sum(0)
        constant = weight + 1
    assert proof.state(hidden) == Rows(0)
    assert proof.state(turned) == Rows(1)
    assert proof.state(summed_up) == Rows(0)
    assert isinstance(proof.state(joined), Mixed)
    assert proof.state(constant) is PUBLIC
    assert proof.failure is None  # nothing has to be said of a tensor that nobody uses
    assert "sum.dim_IntList" in proof.reasons[0]
    with pytest.raises(OneByOne, match=r"the loss depends on several records: sum\.dim_IntList"):
        proof.require_rows(joined, Rows(0), "the loss")
    with pytest.raises(OneByOne):  # whoever has caught the first
        proof.check()


def test_the_batch_is_copied_into_memory_of_its_own() -> None:
    data = rows(3, 4)
    proof = Proof(3)
    own = proof.begin(data, Rows(0))
    with proof:
        own.add_(1.0)
        assert proof.state(data) is PUBLIC
    assert not torch.equal(own, data)


def test_with_one_record_everything_is_its_own() -> None:
    proof = Proof(1)
    x = proof.begin(rows(1, 4), Rows(0))
    with proof:
        total = x.sum()
    assert proof.state(total) is OWN
    assert proof.failure is None
    with pytest.raises(CoupledRecords), proof:
        torch.zeros(()).add_(1)
        KEEPING.add_(total)


@pytest.mark.parametrize("shown", [False, True])
def test_python_sees_numbers_of_one_record_only_where_it_may(shown: bool) -> None:
    proof = Proof(1, shown=shown)
    x = proof.begin(rows(1, 4), Rows(0))
    with nullcontext() if shown else pytest.raises(OneByOne, match="leave for Python"), proof:
        float(x.sum())


KEEPING = torch.zeros(())


def test_memory_that_nobody_wrote_is_zero() -> None:
    for _ in range(3):
        del _
        torch.full((1000,), 7.0)
    with Proof(3):
        empty = torch.empty(1000)
        strided = torch.empty_strided((10, 10), (10, 1))
    assert not bool(empty.any())
    assert not bool(strided.any())


def test_a_loss_of_no_parameter_is_refused() -> None:
    with pytest.raises(ModelError, match="depends on none"):
        used(nn.Linear(4, 3), lambda _model, batch: batch[0].sum(1), (rows(5, 4),))
