"""Several augmentations of a record as a loss: copies follow each other, and are averaged."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.errors import CoupledRecords
from discreet.randomness import Source
from discreet.training import Engine, PrivateRun, augmented, check, losses, mirrored, shifted
from discreet.training.data.copies import Augmented, averaged
from discreet.training.data.trees import select
from discreet.training.passes.passes import Passes
from discreet.training.rules.convolution.geometry import Convolution
from discreet.training.rules.convolution.rule import Convolved
from discreet.training.separation.marks import out_of_sight
from laws.test_pitfalls_engine import JUST_ABOVE, clipped
from support.clipped_sums import CLIP_NORM, ROUNDING, moved_by
from support.per_record import assert_factor, compare, oracle
from support.tally import Tally
from unit.training.test_run import KEY, RECORDS, data, gradients, keyed, loss, network, plan

COPIES = 3


def weighted(model: nn.Module, rows: Any) -> Tensor:
    losses: Tensor = model(rows[0])[:, 0] * rows[1]
    return losses


def numbered(rows: Any) -> Any:
    """Another number for each copy of a record."""
    x, y = rows
    return x + torch.arange(len(x)).remainder(COPIES).reshape(-1, 1), y


def model() -> nn.Module:
    linear = nn.Linear(2, 1, bias=False)
    nn.init.constant_(linear.weight, 1.0)
    return linear


X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
Y = torch.tensor([1.0, 10.0])
several = augmented(weighted, numbered, copies=COPIES)


def test_copies_of_a_record_follow_each_other_in_new_memory() -> None:
    rows, labels = several.rows((X, Y), 2)
    assert rows.tolist() == [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0], [3.0, 4.0], [4.0, 5.0], [5.0, 6.0]]
    assert labels.tolist() == [1.0] * 3 + [10.0] * 3
    (same,) = augmented(weighted, lambda rows: rows, copies=1).rows((X,), 2)
    assert same.data_ptr() != X.data_ptr()


def test_texts_and_other_entries_are_copied_with_their_record() -> None:
    rows = augmented(weighted, lambda rows: rows, copies=2).rows((X, ["a", "b"], ("c", "d")), 2)
    assert rows[1:] == (["a", "a", "b", "b"], ("c", "c", "d", "d"))


def test_a_records_loss_is_the_average_over_its_copies() -> None:
    assert several(model(), (X, Y)).tolist() == [5.0, 90.0]


def test_statistics_are_averaged_over_copies() -> None:
    def counted(model: nn.Module, rows: Any) -> Any:
        first = torch.arange(len(rows[0])).remainder(COPIES) == 0
        return weighted(model, rows), {"first": first, "wide": rows[0]}

    losses, statistics = augmented(counted, numbered, copies=COPIES)(model(), (X, Y))
    assert losses.tolist() == [5.0, 90.0]
    assert statistics["first"].tolist() == pytest.approx([1.0 / 3.0] * 2)
    assert statistics["wide"].tolist() == [[2.0, 3.0], [4.0, 5.0]]


def test_statistics_that_have_one_row_for_each_record_stay() -> None:
    values = torch.tensor([1.0, 2.0])
    assert averaged({"own": values}, 2)["own"] is values


def test_a_loss_of_another_shape_is_handed_on_to_be_refused() -> None:
    its = augmented(lambda model, rows: weighted(model, rows).sum(), numbered, copies=2)
    assert its(model(), (X, Y)).shape == ()


def test_an_augmentation_that_changes_the_number_of_rows_is_refused() -> None:
    its = augmented(weighted, lambda rows: (rows[0][1:], rows[1][1:]), copies=2)
    with pytest.raises(dp.errors.ModelError, match="one row for each record"):
        its(model(), (X, Y))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: augmented(weighted, numbered, copies=0),
        lambda: augmented(weighted, numbered, copies=1.5),  # type: ignore[arg-type]
        lambda: augmented(several, numbered, copies=2),
        lambda: augmented(weighted, None, copies=2),  # type: ignore[arg-type]
    ],
)
def test_wrong_parameters_are_refused(wrong: Callable[[], Any]) -> None:
    assert isinstance(several, Augmented)
    with pytest.raises(dp.errors.ParameterError):
        wrong()


def by_copy(rows: Any) -> Any:
    """An augmentation without chance, so that passes can be compared: another one for each copy of
    a record.
    """
    x, y = rows
    number = torch.arange(len(x)).remainder(COPIES).reshape(-1, *[1] * (x.ndim - 1))
    return (x + number * torch.cos(3.0 * x) if x.is_floating_point() else (x + number) % 11), y


def doubled(rows: Any) -> Any:
    """An augmentation that fits any number of copies."""
    return rows[0] * 2.0, rows[1]


def classified(model: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    return functional.cross_entropy(model(x), y, reduction="none")


copied = augmented(classified, by_copy, copies=COPIES)


class TiedText(nn.Module):
    """Embedding, recurrence, and a head that is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.recurrent = nn.GRU(6, 6, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        return functional.linear(
            self.recurrent(self.words(ids))[0].tanh().mean(1), self.words.weight[:4]
        )


class Scaled(nn.Module):
    """Uses of a parameter that no layer has: one copy for each row, and a penalty."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.scale = nn.Linear(6, 4), nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sinh(self.first(x) * self.scale) + self.scale.square().sum()


class Hidden(torch.autograd.Function):
    """A function that the engine cannot see through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return given[0] * weight, (given[0] * x).sum(0)


class Unseen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = Hidden.apply(x, self.weight)  # type: ignore[no-untyped-call]
        return out


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 2, groups=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 4),
    )


def images(records: int = 7) -> tuple[Tensor, Tensor]:
    return torch.randn(records, 2, 6, 6), torch.arange(records) % 4


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(11)


# --- the gradient of a record is the average over its copies ---


@pytest.mark.parametrize("form", [None, "ghost", "direct", "folded", "unfolded", "streamed"])
def test_convolutions_give_what_a_loop_over_records_gives(form: str | None) -> None:
    compare(convolutional(), copied, images(), form=form)


@pytest.mark.parametrize("copies", [1, 2, 4])
def test_any_number_of_copies(copies: int) -> None:
    its = augmented(classified, lambda rows: (rows[0].cumsum(-1), rows[1]), copies=copies)
    compare(convolutional(), its, images(5))


@pytest.mark.parametrize(
    ("model", "batch"),
    [
        (
            lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)),
            (torch.randn(8, 6), torch.arange(8) % 4),
        ),
        (TiedText, (torch.randint(11, (6, 5)), torch.arange(6) % 4)),
        (Scaled, (torch.randn(6, 6), torch.arange(6) % 4)),
        (
            lambda: nn.Sequential(
                nn.Conv1d(3, 4, 2), nn.Flatten(), nn.LayerNorm(20), nn.Linear(20, 4)
            ),
            (torch.randn(6, 3, 6), torch.arange(6) % 4),
        ),
    ],
)
def test_other_models_give_what_a_loop_over_records_gives(
    model: Callable[[], nn.Module], batch: Any
) -> None:
    compare(model(), copied, batch)


def test_what_cannot_be_seen_is_computed_record_by_record_with_all_of_its_copies() -> None:
    compare(Unseen(), copied, (torch.randn(5, 6), torch.arange(5) % 6), loop=True)


def test_views_that_are_flattened_by_hand_are_right_and_slow_with_convolutions() -> None:
    """As docs/training.md says: rows of linear layers are followed,
    those of convolutions are not.
    """

    def flattened(model: nn.Module, batch: Any) -> Tensor:
        x, y = batch
        rows = torch.stack([x, x.flip(-1)], 1).flatten(0, 1)
        return (
            functional.cross_entropy(model(rows), y.repeat_interleave(2), reduction="none")
            .view(-1, 2)
            .mean(1)
        )

    compare(nn.Linear(6, 4), flattened, (torch.randn(5, 6), torch.arange(5) % 4))
    compare(convolutional(), flattened, images(3), loop=True)


def test_another_number_of_copies_is_another_computation() -> None:
    engine, batch = Engine(network()), tuple(data().tensors)
    seen = Tally()

    def counted(model: nn.Module, rows: Any) -> Tensor:
        seen.append(len(rows[0]))
        return loss(model, rows)

    for copies in (2, 2, 3, 1):
        list(engine.passes(augmented(counted, doubled, copies=copies), batch, RECORDS, RECORDS))
    trial = [7, 1, 1]
    assert seen.entries == [*trial, 2 * RECORDS, 2 * RECORDS, *trial, 3 * RECORDS, *trial, RECORDS]
    assert engine.one_by_one is None


def test_double_precision() -> None:
    x, y = images()
    compare(convolutional().double(), copied, (x.double(), y))


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("records", [1, 3, 11])
def test_copies_of_a_convolution_in_every_form(records: int, kind: torch.dtype) -> None:
    how = Convolution.of((4, 3, 3, 3), padding=1)
    x, g = (
        torch.randn(records * 3, 3, 5, 5, dtype=kind),
        torch.randn(records * 3, 4, 5, 5, dtype=kind),
    )
    rows = Convolved(how, x.double(), g.double()).dense().values
    copied = Convolved(how, x, g).joined(3)
    for form in copied.forms().values():
        assert_factor(form(), rows.reshape(records, 3, *rows.shape[1:]).sum(1), 1e-5)
    assert_factor(
        copied.keep(torch.zeros(records, dtype=torch.bool)),
        torch.zeros(records, *how.weight_shape).double(),
        1e-5,
    )
    twice = Convolved(how, x, g).joined(1).joined(3)
    assert torch.equal(twice.x, copied.x)


# --- one record is clipped once ---


def test_p10_copies_are_clipped_as_one_record_not_one_by_one() -> None:
    """Named wrong implementation: every copy is clipped to the clip norm, and the copies are added
    up.
    """
    model = convolutional()
    x, y = images(4)
    batch = 50.0 * x, y
    rows = copied.rows(batch, 4)
    each = oracle(model, classified, rows, 4 * COPIES)
    flat = torch.cat([one.reshape(4 * COPIES, -1) for one in each.values()], 1)
    assert float(flat.norm(dim=1).min()) > 1.0  # clipping has something to do
    wrong = (flat / flat.norm(dim=1, keepdim=True)).reshape(4, COPIES, -1).sum(1).norm(dim=1)
    assert float(wrong.max()) > 1.5  # under a clip norm of 1
    engine = Engine(model)
    everything = clipped(engine, copied, batch, 4)
    for left_out in range(4):
        rest = torch.tensor([row for row in range(4) if row != left_out])
        moved = everything - clipped(engine, copied, select(batch, rest), 4)
        assert float(moved.norm()) <= JUST_ABOVE


def test_a_run_releases_clipped_averages_over_copies() -> None:
    """With hardly any noise: the same as with a loop over records, in microbatches or not."""
    found = {}
    for microbatch in (None, 1, 7):
        model = network()
        run = keyed(model, plan(), microbatch=microbatch)
        batch = next(run.batches(data()))
        run.backward(augmented(loss, by_copy, copies=COPIES), batch)
        found[microbatch] = gradients(model)
    each = oracle(network(), augmented(loss, by_copy, copies=COPIES), list(data().tensors), 40)
    flat = torch.cat([one.reshape(40, -1) for one in each.values()], 1)[
        batch.sample.indices.tolist()
    ]
    expected = (flat * (1.0 / flat.norm(dim=1, keepdim=True)).clamp(max=1.0)).sum(0) / 20.0
    for released in found.values():
        torch.testing.assert_close(
            released.double(), expected, rtol=1e-2, atol=1e-3
        )  # clipped to a little less
        torch.testing.assert_close(released, found[None], rtol=1e-5, atol=1e-5)


def test_p28_an_empty_sample_is_a_step_of_noise() -> None:
    model = network()
    run = keyed(model, plan(policy=dp.Poisson(1e-9)))
    for batch in run.batches(data()):
        assert batch.data is None
        run.backward(augmented(loss, by_copy, copies=2), batch)
    assert float(gradients(model).norm()) > 0.0


def test_statistics_of_copies_are_averaged() -> None:
    def counted(model: nn.Module, rows: Any) -> tuple[Tensor, dict[str, Tensor]]:
        marks = torch.arange(len(rows[0])).remainder(COPIES) == 0  # one copy of each record
        return loss(model, rows), {"metric/marks": marks}

    its = plan(
        dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0), "metric/*": dp.Gaussian(1.0, 1e-6)}),
        policy=dp.Poisson(1.0),
    )
    run = keyed(network(), its, statistics={"metric/marks": 1})
    released = run.backward(augmented(counted, by_copy, copies=COPIES), next(run.batches(data())))
    assert released.mean("metric/marks")[0] == pytest.approx(1.0 / COPIES, abs=1e-5)


@pytest.mark.parametrize("seen", [True, False])
def test_private_batch_norm_sees_the_average_over_copies(seen: bool) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 6) if seen else Unseen())
    mechanism = dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0), "bn/*": dp.Gaussian(1e4, 1e-9)})
    run = keyed(model, plan(mechanism, policy=dp.Poisson(1.0), steps=1))
    run.backward(augmented(loss, by_copy, copies=COPIES), next(run.batches(data())))
    rows = by_copy((data().tensors[0].repeat_interleave(COPIES, 0), None))[0]
    torch.testing.assert_close(model[0].running_mean, 0.1 * rows.mean(0), rtol=1e-3, atol=1e-3)
    assert (run.engine.one_by_one is None) == seen


# --- what is random comes from the secret source ---


def test_p18_augmentations_follow_from_the_source_and_torch_keeps_its_own_numbers() -> None:
    seen: list[Tensor] = []

    def noted(rows: Any) -> Any:
        x, y = rows
        drawn = torch.rand(len(x), 1)
        with out_of_sight():  # what the pass itself has is erased
            seen.append(drawn.clone())
        return x + drawn, y

    def added(seed: int, key: bytes) -> Tensor:
        """What the last pass of a step added to its rows."""
        model, policy = network(), dp.Poisson(1.0)
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        source = Source.unsafe_test_key(key)
        run = PrivateRun(
            model,
            plan(policy=policy),
            ledger=dp.Ledger.in_memory(),
            source=source,
            microbatch=RECORDS,
        )
        run.backward(augmented(loss, noted, copies=2), next(run.batches(data())))
        assert torch.equal(torch.get_rng_state(), before)
        return seen[-1]

    assert torch.equal(added(1, KEY), added(2, KEY))
    assert not torch.equal(added(1, KEY), added(1, bytes(32)))


def test_dropout_and_random_augmentations_together() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(72, 8), nn.Dropout(0.5), nn.Linear(8, 4))
    x, y = images(40)
    run = keyed(model, plan())
    its = augmented(classified, lambda rows: (mirrored(shifted(rows[0], 1)), rows[1]), copies=2)
    for batch in run.batches(TensorDataset(x, y)):
        run.backward(its, batch)
    assert run.engine.one_by_one is None


# --- what is refused ---


def mixed_up(rows: Any) -> Any:
    x, y = rows
    return 0.7 * x + 0.3 * x[torch.randperm(len(x))], y


def centred(rows: Any) -> Any:
    return rows[0] - rows[0].mean(0), rows[1]


def rolled(rows: Any) -> Any:
    return rows[0], rows[1].roll(COPIES)


@pytest.mark.parametrize("mixing", [mixed_up, centred, rolled])
def test_p11_an_augmentation_that_would_mix_records_sees_one_at_a_time(
    mixing: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of one record may meet; one record moves the sum by its clip norm at most."""
    seen: set[int] = set()
    right = Passes.augmented

    def noted(
        self: Passes, augment: Any, rows: Any, records: int, copies: int, *, apart: bool = False
    ) -> Any:
        seen.add(records)
        return right(self, augment, rows, records, copies, apart=apart)

    monkeypatch.setattr(Passes, "augmented", noted)
    x, y = (tensor[:8] for tensor in data().tensors)
    moved, _ = moved_by(network(), augmented(loss, mixing, copies=COPIES), (x * 1e3, y), 5, 8)
    assert moved <= CLIP_NORM + ROUNDING
    assert 1 in seen


def test_copies_of_one_record_may_meet() -> None:
    """They are one record: what they do to each other stays in it. Rows of a pass may not, so this
    is done in `augment`.
    """

    def blended(rows: Any) -> Any:
        x, y = rows
        return x.view(-1, COPIES, 6).mean(1, keepdim=True).add(x.view(-1, COPIES, 6)).view(-1, 6), y

    compare(network(), augmented(loss, blended, copies=COPIES), tuple(data().tensors))


def test_p09_losses_that_couple_records_go_one_by_one_and_batch_norm_is_refused_as_ever() -> None:
    def contrasted(model: nn.Module, rows: Any) -> Tensor:
        out: Tensor = model(rows[0])
        return (out - out.mean(0)).square().sum(1)

    batch = tuple(data().tensors)
    engine = Engine(network())
    assert len(list(engine.passes(augmented(contrasted, doubled, copies=2), batch, 40, 40))) == 40
    assert "mean" in str(engine.one_by_one)
    with pytest.raises(CoupledRecords):
        model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
        list(Engine(model).passes(augmented(loss, by_copy, copies=2), batch, 40, 40))


def test_an_engine_refuses_an_augmentation_that_changes_the_number_of_rows() -> None:
    def dropped(rows: Any) -> Any:
        return rows[0][1:], rows[1][1:]

    with pytest.raises(dp.errors.ModelError, match="one row for each record"):
        list(
            Engine(network()).passes(
                augmented(loss, dropped, copies=2), tuple(data().tensors), 40, 40
            )
        )


# --- elsewhere ---


def test_memory_counts_all_copies() -> None:
    model, batch = convolutional(), images(8)
    one, four = (
        Engine(model).fitting(augmented(classified, doubled, copies=n), batch, 8, 2**20, 10**9)
        for n in (1, 4)
    )
    assert one // 4 - 1 <= four <= one // 4 + 1


def test_check_and_losses_take_such_a_loss() -> None:
    model, (x, y) = convolutional(), images(8)
    assert str(check(model, copied, (x, y))).startswith("Ready for private training: proved")
    found = losses(model, copied, TensorDataset(x, y), batch_size=3)
    rows = by_copy((x.repeat_interleave(COPIES, 0), y.repeat_interleave(COPIES)))
    np.testing.assert_allclose(
        found, classified(model, rows).detach().view(8, COPIES).mean(1), rtol=1e-5
    )


def test_a_loss_of_the_wrong_shape_is_refused() -> None:
    def summed(model: nn.Module, rows: Any) -> Tensor:
        return loss(model, rows).sum()

    with pytest.raises(dp.errors.ModelError, match="one loss for each record"):
        list(
            Engine(network()).passes(
                augmented(summed, by_copy, copies=2), tuple(data().tensors), 40, 40
            )
        )
    assert isinstance(augmented(summed, by_copy, copies=2), Augmented)
