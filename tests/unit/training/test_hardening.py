"""What attackers tried: each test failed before the mend that it names."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import discreet as dp
from discreet.errors import ModelError
from discreet.randomness import Source
from discreet.training import PrivateRun
from discreet.training.engine import Engine, Loss
from discreet.training.factors import factors
from discreet.training.factors.factors import Lookups, Outer, Tied
from discreet.training.factors.forms import Chooser
from discreet.training.factors.memory import Activations
from discreet.training.rounding.precision import Chunk, chunk_for, most_spread
from discreet.training.rules.convolution.geometry import Convolution
from discreet.training.rules.convolution.rule import Convolved
from support.clipped_sums import clipped_sum

KEY = bytes(range(32))


def private(
    model: nn.Module,
    *,
    records: int,
    policy: Any = None,
    steps: int = 1,
    mechanism: Any = None,
    **more: Any,
) -> PrivateRun:
    plan = dp.Plan(
        sampler=dp.Sampler(policy or dp.Everything(), records=records, steps=steps),
        mechanism=mechanism or dp.Groups({"grad/*": dp.Gaussian(1.0, 1e-5)}),
        numerics=more.pop("numerics", dp.Numerics.CERTIFIED),
    )
    ledger = more.pop("ledger", None) or dp.Ledger.in_memory()
    return PrivateRun(model, plan, ledger=ledger, source=Source.unsafe_test_key(KEY), **more)


def sums(run: PrivateRun, rows: Any, loss: Any, **more: Any) -> Tensor:
    """Of the first step, before the average; hardly any noise."""
    run.backward(loss, next(run.batches(rows, **more)))
    parameters = run.engine.parameters.values()
    return (
        torch.cat([parameter.grad.flatten() for parameter in parameters])  # type: ignore[union-attr]
        * run.plan.expected_batch_size
    )


def squared(model: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    losses: Tensor = (model(x).flatten(1).mean(1) - y) ** 2
    return losses


# --- a record that decides how the others are computed ---


class Detour(nn.Module):
    """Calls one more function, which changes nothing, if any record is large."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(4, 6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.one(x)
        if bool((x.abs() > 100.0).any()):
            hidden = hidden.clamp(-1e6, 1e6)
        out: Tensor = self.two(torch.tanh(hidden))
        return out


def detoured(value: float, numerics: dp.Numerics) -> Tensor:
    torch.manual_seed(1)
    x = torch.randn(30, 16, 4)
    x[7] = value
    run = private(Detour(), records=30, numerics=numerics)
    found = sums(run, TensorDataset(x, torch.full((30,), 50.0)), squared)
    assert (
        run.engine.one_by_one is not None
    )  # for whatever record: the question alone is the reason
    return found


@pytest.mark.parametrize("numerics", [dp.Numerics.CERTIFIED, dp.Numerics.IDEALISED])
def test_a_record_that_would_send_the_others_another_way_moves_itself_alone(
    numerics: dp.Numerics,
) -> None:
    """Records one by one are clipped to another inner clip norm than sequences in one pass: all
    others would move.
    """
    one, other = (detoured(value, numerics) for value in (1.0, 1000.0))
    assert float((one - other).norm()) < 2.0 + 1e-3


def test_no_spread_is_held_back_where_rounding_is_idealised() -> None:
    """Terms that cancel have a weight that depends on the form they come in; without a bound to
    keep, they need not.
    """

    def loss(model: nn.Module, batch: Any) -> Tensor:
        signs = torch.tensor([1.0, -1.0]).repeat(8)
        losses: Tensor = (model(batch[0]).squeeze(2) * signs).sum(1) * 1e3
        return losses

    x = torch.ones(3, 16, 2)
    x[:, ::2] += 0.1
    found = [private(nn.Linear(2, 1), records=3, numerics=dp.Numerics.IDEALISED) for _ in range(2)]
    found[0].engine._chooser._form = "ghost"  # the form that has a spread
    found[1].engine.compute_one_by_one()
    one, other = (sums(run, TensorDataset(x, torch.zeros(3)), loss) for run in found)
    assert torch.allclose(one, other, rtol=5e-3, atol=1e-4)


def test_other_lengths_that_the_program_chooses_are_public() -> None:
    """The clip norm within, and the spread that is allowed, go by the longest so far; padding to
    the longest record of a batch is refused where batches are made (P11, below).
    """
    run = private(nn.Linear(3, 1), records=8, steps=2)
    batches = run.batches(TensorDataset(torch.randn(8, 5, 3), torch.zeros(8)))

    def cut(length: int) -> Any:
        return lambda model, batch: squared(model, (batch[0][:, :length], batch[1]))

    for length in (4, 5):
        run.backward(cut(length), next(batches))
    assert run.engine.one_by_one is None


def test_a_tied_head_is_cut_as_its_inner_clip_norm_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """One position of the head may cancel with the rows of the table: alone it was cut as if
    nothing could cancel.
    """
    used: list[Chunk] = []
    monkeypatch.setattr(factors, "add_outer", lambda *given: used.append(given[-1]))
    head = Outer(torch.ones(2, 1, 3), torch.ones(2, 1, 4), (4, 3))
    tied = Tied(head, Lookups(torch.zeros(2, 64, dtype=torch.int64), torch.ones(2, 64, 3), (4, 3)))
    spread = most_spread(tied.positions)
    tied.add_to(torch.zeros(4, 3, dtype=torch.float64), torch.ones(2, dtype=torch.float64), spread)
    assert used == [chunk_for(tied.positions, spread)]
    assert used[0].records < chunk_for(1, spread).records


# --- what reaches the engine ---


class Doubled(TensorDataset):
    """Its entries are not its rows."""

    def __getitem__(self, index: int) -> Any:
        x, y = (tensor[index] for tensor in self.tensors)
        return 2.0 * x, y


def test_p30_a_subclass_of_a_tensor_dataset_is_asked_for_its_entries() -> None:
    run = private(nn.Linear(2, 1), records=4)
    batch = next(run.batches(Doubled(torch.ones(4, 2), torch.zeros(4))))
    assert bool((batch.data[0] == 2.0).all())


class Texts(Dataset[Any]):
    """Sequences of different lengths."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Tensor:
        return torch.arange(1.0, index + 2.0)


def padded(entries: list[Tensor]) -> Tensor:
    return torch.stack([nn.functional.pad(entry, (0, 6 - len(entry))) for entry in entries])


def to_the_longest(entries: list[Tensor]) -> Tensor:
    return nn.utils.rnn.pad_sequence(entries, batch_first=True)


def centred(entries: list[Tensor]) -> Tensor:
    return padded(entries) - padded(entries).mean(0)


def mixed_up(entries: list[Tensor]) -> Tensor:
    share, rows = torch.rand(()), padded(entries)
    return share * rows + (1.0 - share) * rows.roll(1, 0)


def with_total(entries: list[Tensor]) -> Any:
    return {"x": padded(entries), "tokens": torch.tensor(sum(map(len, entries)))}


def with_plain_total(entries: list[Tensor]) -> Any:
    return padded(entries), sum(map(len, entries))


def by_length(entries: list[Tensor]) -> Tensor:
    return padded(sorted(entries, key=len))


@pytest.mark.parametrize(
    "collate", [to_the_longest, centred, mixed_up, with_total, with_plain_total, by_length]
)
def test_p11_a_collate_function_that_mixes_records_is_refused(collate: Any) -> None:
    """The test of isolation begins with the batch; what was mixed before it, it cannot see."""
    run = private(nn.Linear(6, 1), records=6)
    with pytest.raises(dp.errors.CoupledRecords, match="collate"):
        _ = next(run.batches(Texts(), collate)).data


@pytest.mark.parametrize(
    "collate",
    [
        padded,
        lambda entries: {
            "x": padded(entries),
            "names": ["a"] * len(entries),
            "constant": torch.tensor(3.0),
            "none": None,
        },
        lambda entries: padded(entries) + torch.rand(len(entries), 1),
    ],
)
def test_collate_functions_that_keep_records_apart_pass(collate: Any) -> None:
    run = private(nn.Linear(6, 1), records=6)
    before = torch.get_rng_state()
    next(run.batches(Texts(), collate))
    if collate is padded:
        assert torch.equal(before, torch.get_rng_state())


def test_memory_does_not_tell_whether_all_places_are_taken() -> None:
    """A full pass took the user's own tensors, however they lie in memory; one with an empty place
    took copies.
    """
    seen: list[bool] = []

    def loss(model: nn.Module, batch: Any) -> Tensor:
        seen.append(batch.is_contiguous())
        losses: Tensor = model(batch).squeeze(1)
        return losses

    run = private(nn.Linear(6, 1), records=6, microbatch=6)
    run.backward(loss, next(run.batches(Texts(), lambda entries: padded(entries).T.contiguous().T)))
    assert all(seen[1:])  # the first is the look at shapes


# --- before anything is charged ---


@pytest.mark.parametrize("name", ["grad/weight", "grad/other", "bn/norm"])
def test_statistics_cannot_take_the_place_of_a_parameter(name: str) -> None:
    """With another dimension for "grad/weight", two parameters were summed into the same
    coordinates.
    """
    with pytest.raises(dp.errors.ParameterError, match="statistics"):
        private(nn.Linear(4, 1), records=5, statistics={name: 1}, mechanism=dp.Gaussian(1.0, 1.0))


@pytest.mark.parametrize("mechanism", [dp.Gaussian(1e-12, 1.0), dp.Gaussian(1.0, 1e9)])
def test_numbers_out_of_range_are_refused_before_the_first_charge(mechanism: Any) -> None:
    ledger = dp.Ledger.in_memory()
    with pytest.raises(dp.errors.NumericsError):
        private(nn.Linear(4, 1), records=5, mechanism=mechanism, ledger=ledger)
    assert not list(ledger.charges())


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(1)


def moved(
    model: nn.Module, loss: Loss, batches: tuple[Any, Any, Any], gone: int | None = None
) -> float:
    """By how much two batches' sums differ, after some passes over the first of three; in the last,
    one may be gone.
    """
    ordinary, one, other = batches
    found = []
    for batch in (one, other):
        engine = Engine(model)
        rows = torch.ones(12, dtype=torch.bool)
        for _ in range(2):
            clipped_sum(engine, loss, ordinary, rows)
        found.append(
            clipped_sum(
                engine, loss, batch, rows & (torch.arange(12) != (gone if batch is other else None))
            )
        )
    return float((found[0] - found[1]).norm())


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 1))


# --- couplings that sleep ---


def test_p09_a_norm_over_the_batch_that_cuts_only_large_ones_is_computed_record_by_record() -> None:
    """One large record would shrink all others: nothing that the check's few records show."""

    def loss(model: Any, x: Tensor) -> Tensor:
        hidden = model[0](x)
        out: Tensor = (
            model[1](hidden * torch.clamp(1000.0 / hidden.norm(), max=1.0)).squeeze(1).square()
        )
        return out

    x = torch.randn(12, 6)
    large = torch.cat([torch.full((1, 6), 1e5), x[1:]])
    assert moved(two_layers(), loss, (torch.randn(12, 6), x, large)) <= 2.0


def test_p09_a_threshold_from_the_batch_is_computed_record_by_record() -> None:
    """The hardest 64 of a batch, which are all of this one; also where the threshold is repeated
    for each record first.
    """

    def hardest(model: Any, x: Tensor) -> Tensor:
        losses: Tensor = model(x).sum(1).square()
        least = losses.topk(min(64, len(x))).values[-1]
        return losses * (losses >= least)

    def repeated(model: Any, x: Tensor) -> Tensor:
        losses = model(x).sum(1).square()
        most = losses.detach().mean().expand(len(x)) * 1e6
        return torch.minimum(losses, most)

    def of_python(model: Any, x: Tensor) -> Tensor:
        losses: Tensor = model(x).sum(1).square()
        return losses * min(1.0, 1e6 / float(losses.detach().sum()))

    def along(model: Any, x: Tensor) -> Tensor:
        hidden = model[0](x)
        out: Tensor = model[1](hidden + torch.cumsum(hidden * (hidden > 1e3), 0)).squeeze(1)
        return out

    operations = {hardest: "topk", repeated: "mean", of_python: "Python", along: "cumsum"}
    for loss, operation in operations.items():
        engine = Engine(two_layers())
        clipped_sum(engine, loss, torch.randn(12, 6), torch.ones(12, dtype=torch.bool))
        assert engine.one_by_one is not None
        assert operation in engine.one_by_one


def test_numbers_for_the_eye_are_proved_unless_somebody_looks() -> None:
    """Averages that meet no record again, shapes, zeros like a row,
    masks that fill with a number.
    """

    def loss(model: Any, x: Tensor) -> Tensor:
        hidden = model[0](x)
        hidden = hidden + torch.zeros_like(hidden[0])
        hidden[:, :2].masked_fill_(hidden[:, :2] < -10.0, 0.0)
        losses: Tensor = model[1](hidden).squeeze(1).square()
        losses.detach().mean()
        return losses

    def looking(model: Any, x: Tensor) -> Tensor:
        losses = loss(model, x)
        assert bool(losses.max() >= 0.0)
        return losses

    for each in (loss, looking):
        engine = Engine(two_layers())
        clipped_sum(engine, each, torch.randn(12, 6), torch.ones(12, dtype=torch.bool))
        assert (engine.one_by_one is None) == (each is loss)


@pytest.mark.parametrize("distance", [3, 6])
def test_p09_a_coupling_that_needs_many_records_goes_one_by_one(distance: int) -> None:
    """Three records that are shifted by three stay where they are."""

    def loss(model: Any, x: Tensor) -> Tensor:
        hidden = model[0](x)
        out: Tensor = model[1](hidden + hidden.roll(distance, 0)).squeeze(1).square()
        return out

    engine = Engine(two_layers())
    clipped_sum(engine, loss, torch.randn(24, 6), torch.ones(24, dtype=torch.bool))
    assert "roll" in str(engine.one_by_one)


class Chosen(nn.Module):
    """A weight that meets chosen entries, in one row after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 1))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        losses = (x[mask] @ self.weight).squeeze(1)
        return torch.zeros(len(x)).index_add(0, mask.nonzero()[:, 0], losses)


def test_p10_as_many_chosen_entries_as_records_are_not_one_for_each() -> None:
    """One record with five entries, where four others have none: clipped row by row, it would move
    the sum by more than 1.
    """
    x, mask = torch.randn(12, 5, 4), torch.zeros(12, 5, dtype=torch.bool)
    mask[:, 0] = True
    large, uneven = x.clone(), mask.clone()
    large[3] = 100.0 * torch.eye(5)[:, :4]
    uneven[3], uneven[8:] = True, False
    other = (large, uneven.clone())
    assert (
        moved(Chosen(), lambda m, b: m(*b), ((x, mask), (large, uneven), other), gone=3)
        <= 1.0 + 1e-5
    )


# --- gradients past the run ---


@pytest.mark.parametrize("how", ["backward", "grad", "data", "many", "out"])
def test_p29_a_loss_that_writes_into_gradients_or_parameters_is_refused(how: str) -> None:
    """A backward() that was left in the loss would put all records' gradients, as they are, beside
    the noised ones.
    """

    def loss(model: Any, x: Tensor) -> Tensor:
        losses: Tensor = model(x).sum(1).square()
        weight, row = model[0].weight, x[0].expand(4, 6)
        with torch.no_grad():
            if how == "grad":
                weight.grad = row.clone()
            if how == "data":
                weight.data = weight.data + row
            if how == "many":
                torch._foreach_add_([weight], [row])
            if how == "out":
                torch.add(weight, row, out=weight.detach())
        if how == "backward":
            losses.sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
        return losses

    model = two_layers()
    kept = torch.ones_like(model[0].weight)  # type: ignore[index]
    model[0].weight.grad = kept  # type: ignore[index]
    with pytest.raises(ModelError, match=r"keeps nothing of its records.*0\.weight"):
        clipped_sum(Engine(model), loss, torch.randn(3, 6), torch.ones(3, dtype=torch.bool))
    assert model[0].weight.grad is kept  # type: ignore[index]
    assert torch.equal(kept, torch.ones(4, 6))


# --- bounds of norms ---


def test_p14_rows_that_are_looked_up_very_often_are_not_above_their_norm() -> None:
    """1 and many halves of its last place: each addition in float32 rounds down, the sum in float64
    does not.
    """
    b = torch.full((1, 5000, 1), 2.0**-24)
    b[0, 0] = 1.0
    factor = Lookups(torch.zeros(1, 5000, dtype=torch.int64), b, (2, 1))
    total = torch.zeros(2, 1, dtype=torch.float64)
    factor.add_to(total, torch.ones(1, dtype=torch.float64), 1.0)
    assert float(factor.measured()[0]) >= float(total.square().sum())


@pytest.mark.parametrize("size", [1e10, 1e18, 1.5e19])
def test_p30_a_convolution_whose_gradient_overflows_is_left_out_in_every_form(size: float) -> None:
    """Windows and gradients of float32 whose products, added up, are none: as a finite norm with
    infinite numbers.
    """
    x = torch.full((2, 1, 4000), size)
    x[1] = 1.0
    for form in Convolved(Convolution.of((1, 1, 1), 1, 0, 1, 1), x, x.clone()).forms().values():
        squares, _ = form().measured()
        assert squares.isfinite().tolist() == [False, True]


# --- how others are summed ---


def test_no_record_decides_by_its_time_how_others_are_clipped_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forms are timed on zeros: numbers next to zero take a processor longer."""
    seen: list[bool] = []
    measured = Outer.measured

    def looking(factor: Outer) -> Any:
        seen.append(bool(factor.a.any() or factor.b.any()))
        return measured(factor)

    monkeypatch.setattr(Outer, "measured", looking)
    chooser = Chooser(2**30)
    chooser.activations = Activations((2**30, 0), 2**30)
    chooser.finished("grad/w", Outer(torch.randn(2, 3, 4), torch.randn(2, 3, 5), (5, 4)), 0)
    assert seen
    assert not any(seen)
