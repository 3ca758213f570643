"""One record changes nothing of another; where it would, the layer or the loss is named."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from discreet.errors import CoupledRecords, ModelError
from discreet.training import culprit, isolation, perturbation
from discreet.training.engine import Engine, Loss
from discreet.training.steady import Steady, random_state
from discreet.training.watching import Unclear


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


# --- what must be refused, and how it is named ---


class HandWritten(nn.Module):
    """Batch normalisation that no list of layers knows."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(0)) / (x.std(0) + 0.1)


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


@pytest.mark.parametrize("layer", [HandWritten(), Scaled(), NextMinusOwn()])
def test_p09_a_layer_that_couples_records_is_named(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(4, 6), layer, nn.Linear(6, 3))
    with pytest.raises(CoupledRecords, match=rf"'1' \({type(layer).__name__}\).*GroupNorm"):
        used(model, labelled, (rows(5, 4), CLASSES))


def test_p09_batch_norm_is_refused_in_every_state_by_name() -> None:
    for norm in (nn.BatchNorm1d(6), nn.BatchNorm1d(6, affine=False), nn.BatchNorm1d(6, track_running_stats=False).eval()):
        norm.requires_grad_(requires_grad=False)
        model = nn.Sequential(nn.Linear(4, 6), norm, nn.Linear(6, 3))
        with pytest.raises(CoupledRecords, match="'1'"):
            used(model, labelled, (rows(5, 4), CLASSES))


def test_p09_batch_norm_that_no_list_of_functions_refuses_is_found_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "discreet.training.batch_norm.Noting.released_only", lambda self, func, args, kwargs: (args, dict(kwargs))
    )
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3))
    with pytest.raises(CoupledRecords, match=r"'1' \(BatchNorm1d\)"):
        used(model, labelled, (rows(5, 4), CLASSES))


def test_p09_batch_norm_with_fixed_statistics_is_served() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6).eval(), nn.Linear(6, 3))
    assert used(model, labelled, (rows(5, 4), CLASSES)).loop_because is None


def test_a_record_whose_numbers_depend_on_its_row_is_refused() -> None:
    with pytest.raises(CoupledRecords, match="order of the records"):
        used(nn.Sequential(nn.Linear(4, 6), ByRow(), nn.Linear(6, 3)), labelled, (rows(5, 4), CLASSES))


def tokens(model: Any, batch: Any) -> Tensor:
    losses: Tensor = functional.cross_entropy(model(batch[0]).mT, batch[1], reduction="none")
    return losses.mul(batch[2]).sum(1).div(batch[2].sum())


@pytest.mark.parametrize("kind", [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize("short", [True, False])
def test_p11_a_mean_over_the_tokens_of_the_batch_is_refused_also_while_all_records_are_long(
    kind: torch.dtype,
    short: bool,  # noqa: FBT001
) -> None:
    mask = torch.ones(5, 6)
    mask[4, 3:] = 0.0 if short else 1.0
    with pytest.raises(CoupledRecords, match="of the loss.*positions of each record"):
        used(nn.Linear(4, 3), tokens, (rows(5, 6, 4), torch.randint(3, (5, 6)), mask.to(kind)))


def test_p11_a_mean_over_labels_that_are_not_ignored_is_refused() -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        losses = functional.cross_entropy(model(batch[0]).mT, batch[1], reduction="none", ignore_index=-100)
        return losses.sum(1).div((batch[1] != -100).sum())

    labels = torch.randint(3, (5, 6))
    labels[:, 4:] = -100  # equally many everywhere: only a change shows it
    with pytest.raises(CoupledRecords, match="of the loss"):
        used(nn.Linear(4, 3), loss, (rows(5, 6, 4), labels))


def test_p11_a_contrast_within_the_batch_is_refused() -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        z = functional.normalize(model(batch[0]), dim=1)
        return functional.cross_entropy(z @ z.mT, torch.arange(len(z)), reduction="none")

    with pytest.raises(CoupledRecords, match="of the loss"):
        used(nn.Linear(4, 3), loss, (rows(5, 4),))


def test_a_statistic_that_depends_on_other_records_is_refused() -> None:
    def loss(model: Any, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        losses = labelled(model, batch)
        return losses, {"metric/rank": (losses.detach() > losses.detach().mean()).float() * losses.detach().mean()}

    with pytest.raises(CoupledRecords, match="metric/rank"):
        used(nn.Linear(4, 3), loss, (rows(5, 4), CLASSES))


def test_instance_norm_that_keeps_statistics_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 2), nn.InstanceNorm1d(3, track_running_stats=True))
    with pytest.raises(CoupledRecords, match="'1'.*track_running_stats"):
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
    with pytest.raises(CoupledRecords, match="1.total.*Counting"):
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
    with pytest.raises(ModelError, match="differ from pass to pass|changes the numbers of others"):
        used(nn.Sequential(Queue(), nn.Linear(4, 3)), labelled, (rows(5, 4), CLASSES))


def test_random_numbers_of_others_than_torch_are_refused() -> None:
    class Jitter(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * random.random()

    with pytest.raises(ModelError, match="torch's own generators"):
        used(nn.Sequential(Jitter(), nn.Linear(4, 3)), labelled, (rows(5, 4), CLASSES))


def test_no_number_of_a_record_appears_in_a_message() -> None:
    data = torch.full((5, 4), 1234.5) + torch.arange(5.0).unsqueeze(1)
    with pytest.raises(CoupledRecords) as caught:
        used(nn.Sequential(nn.Linear(4, 6), HandWritten(), nn.Linear(6, 3)), labelled, (data, CLASSES))
    assert not any(character.isdigit() for character in str(caught.value).replace("'1'", ""))


# --- what must not be refused ---


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
    lambda: (nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), labelled, (rows(5, 4), CLASSES)),
    lambda: (nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(inplace=True)), summed, (rows(5, 2, 6, 6),)),
    lambda: (nn.EmbeddingBag(11, 3), summed, (torch.randint(11, (5, 4)),)),
    lambda: (nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3)), labelled, (rows(5, 4), CLASSES)),
    lambda: (nn.LSTM(4, 3, 2, dropout=0.2), lambda m, b: m(b[0].movedim(1, 0))[0].sum((0, 2)), (rows(5, 6, 4),)),
    language,
]


@pytest.mark.parametrize("make", SOUND)
def test_isolated_models_pass_without_the_loop_and_leave_no_trace(
    make: Callable[[], tuple[nn.Module, Loss, Any]],
) -> None:
    model, loss, batch = make()
    engine = Engine(model)
    structure = engine.learn(loss, batch, 5)
    state = [torch.get_rng_state(), *(value.clone() for value in model.state_dict().values())]
    found = isolation.isolated(engine, loss, batch, 5, structure)
    assert all(found.moved)
    assert found.own_bits
    assert not found.random  # dropout is kept still, so that records can be compared
    after = [torch.get_rng_state(), *model.state_dict().values()]
    assert all(map(torch.equal, state, after))
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert engine.choices == ()  # three records say nothing about which form is fastest
    list(engine.passes(loss, batch, 5, 5))
    assert engine.loop_because is None


def test_a_record_that_is_not_finite_is_no_coupling() -> None:
    data = rows(5, 4)
    data[0, 0] = torch.inf
    data[1, 0] = torch.nan
    used(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), labelled, (data, CLASSES))


def test_one_record_alone_is_enough_to_try() -> None:
    engine = Engine(nn.Sequential(nn.Linear(4, 6), HandWritten(), nn.Linear(6, 3)))
    with pytest.raises(CoupledRecords):
        list(engine.passes(labelled, (rows(1, 4), CLASSES[:1]), 1, 1))


def test_records_that_a_model_cannot_bear_are_replaced_by_real_ones() -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        if bool((batch[0] < 0).any() or (batch[0] > 1).any()):
            raise ValueError
        return labelled(model, batch)

    assert used(nn.Linear(4, 3), loss, (torch.rand(5, 4).round(decimals=1).clamp(0.5, 1.0), CLASSES)).loop_because is None


def test_noise_layers_are_checked_with_equal_noise() -> None:
    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.randn_like(x)

    engine = used(nn.Sequential(Noisy(), nn.Linear(4, 3)), labelled, (rows(5, 4), CLASSES))
    assert engine.loop_because is None
    assert engine.isolation is not None
    assert engine.isolation.random
    assert not engine.isolation.place_independent  # it cannot be seen


class Masked(nn.Module):
    """Calls other functions if no record is short, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        return (y if bool(mask.all()) else torch.where(mask.bool().unsqueeze(2), y, 0.0)).square().sum((1, 2))


def test_a_model_that_looks_whether_any_record_is_short_needs_no_loop() -> None:
    for short in ([], [4], [0], [1, 3], [0, 1, 2, 3, 4]):
        mask = torch.ones(5, 6, dtype=torch.long)
        mask[short, 4:] = 0
        engine = used(Masked(), lambda model, batch: model(*batch), (rows(5, 6, 4), mask))
        assert engine.loop_because is None
        assert engine.isolation is not None
        assert engine.isolation.own_bits == (len(short) != 1)  # one record decides which functions all others go through


# --- the self-test ---


def test_gradients_that_are_not_those_of_torch_are_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from discreet.training.rules import linear as rule

    right = rule.bias_factor
    monkeypatch.setattr(rule, "bias_factor", lambda rows: right(rows * 0.5))
    model = nn.Linear(4, 3)
    engine = Engine(model)
    found = list(engine.passes(labelled, (rows(5, 4), CLASSES), 5, 5))
    assert engine.loop_because == "the recorded gradients are not those of a record alone"
    assert len(found) == 5  # one by one


def test_the_self_test_compares_norms_and_sums_and_the_clipped_record() -> None:
    from discreet.training import alone
    from discreet.training.contributions import Contributions, Piece
    from discreet.training.factors import Dense

    truth = {"a": torch.tensor([3.0, 4.0], dtype=torch.float64)}

    def given(values: list[float]) -> Contributions:
        return Contributions({"a": (Piece(((2,), (1,), 0), Dense(torch.tensor([values], dtype=torch.float64))),)}, 1, 1)

    assert alone.agree(given([3.0, 4.0]), 0, truth, 1e-8)
    assert not alone.agree(given([3.0, 4.1]), 0, truth, 1e-8)
    assert not alone.agree(Contributions({}, 1, 1), 0, truth, 1e-8)
    assert not alone.agree(given([3.0, 4.0]), 0, {"a": torch.tensor([torch.nan, 1.0])}, 1e-8)
    assert alone.agree(given([torch.inf, 4.0]), 0, {"a": torch.tensor([torch.nan, 1.0])}, 1e-8)


# --- the loop ---


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


def test_the_loop_serves_what_is_isolated() -> None:
    engine = used(Custom(), labelled, (rows(5, 4), CLASSES))
    assert engine.loop_because is not None


@pytest.mark.parametrize("layer", [HandWritten(), NextMinusOwn()])
def test_the_loop_refuses_what_is_not(layer: nn.Module) -> None:
    with pytest.raises(CoupledRecords):
        used(nn.Sequential(Custom(), layer), labelled, (rows(5, 4), CLASSES))


def test_the_loop_refuses_buffers_that_take_up_records() -> None:
    with pytest.raises(CoupledRecords, match="total"):
        used(nn.Sequential(Custom(), Counting()), labelled, (rows(5, 4), CLASSES))


# --- when it is tried again ---


def test_the_check_is_repeated_when_the_data_can_show_more() -> None:
    """Equal labels hide a loss that depends on how many classes a batch has; the first batch with two classes shows it."""

    def loss(model: Any, batch: Any) -> Tensor:
        losses = labelled(model, batch)
        return losses.mul(2.0 if bool(batch[1].max() > batch[1].min()) else 1.0)

    engine = Engine(nn.Linear(4, 3))
    data = rows(5, 4)
    for _ in range(3):
        list(engine.passes(loss, (data, torch.full((5,), 2)), 5, 5))
    assert engine.isolation is not None
    assert engine.isolation.moved == (True, False)
    with pytest.raises(CoupledRecords, match="in the loss"):
        list(engine.passes(loss, (data, CLASSES), 5, 5))


def test_p09_the_check_is_repeated_in_another_mode() -> None:
    """Step 3, at which nothing else asks for it: batch normalisation, and one that no list knows, put back into train mode."""

    class Moody(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(0) * float(self.training)

    for layer in (Moody(), nn.BatchNorm1d(4)):
        model = nn.Sequential(layer.eval(), nn.Linear(4, 3))
        engine = Engine(model)
        for _ in range(2):
            list(engine.passes(labelled, (rows(5, 4), CLASSES), 5, 5))
        model.train()
        with pytest.raises(CoupledRecords, match="'0'"):
            list(engine.passes(labelled, (rows(5, 4), CLASSES), 5, 5))


def test_p11_the_check_is_repeated_with_another_loss() -> None:
    def scaled(model: Any, batch: Any) -> Tensor:
        return labelled(model, batch).div(batch[0].abs().sum(1)[:].expand(len(batch[0])))

    def coupled(model: Any, batch: Any) -> Tensor:  # the same functions, in the same order
        return labelled(model, batch).div(batch[0].abs().sum(0)[:1].expand(len(batch[0])))

    engine = Engine(nn.Linear(4, 3))
    data = (rows(5, 4), CLASSES)
    for _ in range(2):
        list(engine.passes(scaled, data, 5, 5))
    with pytest.raises(CoupledRecords, match="of the loss"):
        list(engine.passes(coupled, data, 5, 5))


def test_the_check_is_repeated_at_powers_of_64(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    engine = Engine(nn.Linear(4, 3))
    real = isolation.isolated

    def counted(*args: Any) -> isolation.Isolation:
        seen.append(engine._count)
        return real(*args)

    monkeypatch.setattr("discreet.training.engine.isolated", counted)
    for _ in range(70):
        list(engine.passes(labelled, (rows(5, 4), CLASSES), 5, 5))
    assert seen == [1, 64]


# --- its parts ---


def test_another_record_differs_in_every_tensor_and_only_in_its_row() -> None:
    batch = {"x": rows(4, 3), "ids": torch.randint(9, (4, 5)), "mask": torch.ones(4, 5).bool(), "y": torch.tensor([0, 1, 1, 0])}
    changed = perturbation.another(batch, batch, 1)
    assert perturbation.moved(batch, changed) == (True,) * 4
    others = [0, 2, 3]
    assert all(torch.equal(batch[name][others], changed[name][others]) for name in batch)
    texts = (["a", "b", "b"], (rows(3, 2), 7.0))
    assert perturbation.another(texts, texts, 0)[0] == ["b", "b", "b"]
    assert perturbation.another(torch.tensor(3.0), torch.tensor(3.0), 0) == 3.0
    equal = torch.full((4, 2), 5)
    assert torch.equal(perturbation.another(equal, equal, 0), equal)
    assert perturbation.differing((equal, batch["y"])) == (False, True)


def test_steady_passes_draw_nothing_for_dropout() -> None:
    x = rows(2, 4, 6)
    layers = (nn.Dropout(0.5), nn.AlphaDropout(0.5), nn.Dropout1d(0.5), nn.LSTM(6, 6, 2, dropout=0.5))
    attention = nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)
    before = random_state()
    with Steady():
        for layer in layers:
            layer(x)
        attention(x, x, x, need_weights=False)
        attention(x, x, x)
        functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
        torch.dropout(x, 0.5, train=True)
    assert all(map(torch.equal, before, random_state()))
    nn.Dropout(0.5)(x)
    assert not all(map(torch.equal, before, random_state()))


def test_the_replacement_of_a_layer_normalises_more_than_one_number() -> None:
    assert culprit.replacement("norm", 4).endswith("GroupNorm(1, 4))")
    assert culprit.replacement("norm", 64).endswith("GroupNorm(16, 64))")
    assert culprit.replacement("norm", 7).endswith("GroupNorm(1, 7))")


def test_unclear_structures_go_to_the_loop_not_to_a_guess() -> None:
    class Changing(nn.Module):
        """Calls other functions for other numbers of records."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.inner(x)
            return y + 0.0 if len(x) == 2 else y

    engine = used(Changing(), labelled, (rows(5, 4), CLASSES))
    assert engine.loop_because is not None
    with pytest.raises(Unclear):
        engine.learn(labelled, (rows(5, 4), CLASSES), 5)
