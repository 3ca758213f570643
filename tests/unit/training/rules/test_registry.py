"""The table of rules: names that torch's functions really have; every rule, in every form, gives
what torch gives for one record at a time; what no rule knows is computed one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from discreet.errors import CoupledRecords, ModelError
from discreet.training.engine import Engine
from discreet.training.rules.registry import RULES
from support.per_record import compare
from support.written import Written, check, cubes, draw, places


def test_every_rule_has_the_name_of_a_function_of_torch() -> None:
    """Wrong: a misspelt name, which is never met; its function then goes by copies of weights."""
    places = (torch, Tensor, torch.nn.functional)
    unknown = [name for name in RULES if not any(name in dir(place) for place in places)]
    assert unknown == ["*"]


def test_functions_that_belong_together_have_one_rule() -> None:
    """Wrong: a convolution that goes by the rule of its transpose, with the sides exchanged."""
    assert RULES["conv1d"] is RULES["conv2d"] is RULES["conv3d"]
    assert RULES["conv2d"] is not RULES["conv_transpose2d"]
    assert RULES["mm"] is RULES["matmul"]


B, T, E = 5, 4, 6  # records, positions, width


# --- everything else, by one example each ---

X, S, I = draw(B, E), draw(B, T, E), places(11, B, T)  # noqa: E741
Case = tuple[Callable[..., Any], tuple[Tensor, ...], dict[str, Tensor]]
W = draw(E, E)
V = draw(E)


def own_offsets(s: Any, ids: Tensor) -> Tensor:
    """Called by keywords, with constants made from a parameter."""
    starts, halves = torch.arange(0, ids.numel(), T), s.w.new_full((ids.numel(),), 0.5)
    return torch.embedding_bag(s.w, ids.reshape(-1), starts, per_sample_weights=halves, mode=0)[0]


FOLLOWED: dict[str, Case] = {
    "packed in one axis": (
        lambda s, x: (torch.cat([x, x]) * s.v).view(2, -1, E).sum(0),
        (X,),
        {"v": V},
    ),
    "records second": (
        lambda s, x: F.layer_norm(F.linear(x.transpose(0, 1), s.w, s.c), (E,), s.g).transpose(0, 1),
        (S,),
        {"w": W, "c": V, "g": V + 2},
    ),
    "records last": (lambda s, x: (s.w @ x.t()).t(), (X,), {"w": draw(3, E)}),
    "folded axes": (
        lambda s, x: F.linear(
            F.layer_norm(F.linear(x.reshape(-1, E), s.w).relu(), (E,), s.g) + s.c, s.w
        ).view(len(x), -1),
        (S,),
        {"w": W, "g": V, "c": V},
    ),
    "folded, time first": (
        lambda s, x: (
            F.linear(x.transpose(0, 1).reshape(-1, E), s.w)
            .mul(s.c)
            .view(T, len(x), E)
            .transpose(0, 1)
        ),
        (S,),
        {"w": W, "c": V},
    ),
    "folded table": (
        lambda s, i: F.linear(F.embedding(i.flatten(), s.w), s.v).view(len(i), -1),
        (I,),
        {"w": draw(11, E), "v": W},
    ),
    "not contiguous": (lambda s, x: F.linear(x.mT, s.w), (S,), {"w": draw(3, T)}),
    "weight not contiguous": (lambda s, x: F.linear(x, s.w) + x @ s.w, (X,), {"w": draw(E, E).t()}),
    "one number for every place": (lambda s, x: x * s.t.exp() + s.t, (X,), {"t": draw()}),
    "both orders": (
        lambda s, x: s.w / x.exp() + (2 - s.w) * x - x + s.w - x / s.w + s.w * 3,
        (S,),
        {"w": V.abs() + 1},
    ),
    "powers": (lambda s, x: x.abs() ** s.w + s.w**x + 2**s.w * x, (X,), {"w": V.abs() + 1}),
    "where": (
        lambda s, x: (
            torch.where(x > 0, x, s.w) + torch.where(x > 0.5, s.w, x) + torch.maximum(x, s.w)
        ),
        (X,),
        {"w": V},
    ),
    "mask": (lambda s, x: x.masked_fill(x > 0, s.w), (X,), {"w": draw()}),
    "clamped": (lambda s, x: torch.clamp(x, min=s.w), (X,), {"w": V}),
    "addcmul, lerp": (
        lambda s, x: torch.addcmul(x, s.w, s.w, value=2.0) + torch.lerp(x, s.w, 0.3),
        (X,),
        {"w": V},
    ),
    "in place": (
        lambda s, x: (x * 1.0).add_(s.w).mul_(s.w).sub_(s.v).div_(s.w),
        (X,),
        {"w": V.abs() + 1, "v": V},
    ),
    "broadcast inside a record": (
        lambda s, x: x.unsqueeze(1) * s.w + s.v,
        (S,),
        {"w": draw(3, 1, E), "v": draw(T, 1)},
    ),
    "against the grain": (lambda s, x: (x.t() * s.w).t(), (X,), {"w": draw(E, 1)}),
    "expand": (
        lambda s, x: torch.cat([s.w.expand(len(x), -1, -1), x], 1).cumsum(1),
        (S,),
        {"w": draw(1, 2, E)},
    ),
    "expand_as": (lambda s, x: x * s.w.expand_as(x) + s.w.broadcast_to(x.shape), (S,), {"w": V}),
    "repeat": (
        lambda s, x: x * s.w.repeat(len(x), T, 1) + s.v.repeat(len(x), 2, 3),
        (S,),
        {"w": draw(1, E), "v": draw(2, 2)},
    ),
    "slices": (
        lambda s, x: F.linear(x, s.w[:2]) * F.linear(x, s.w[3:5]) + F.linear(x, s.w[1:3]),
        (X,),
        {"w": W},
    ),
    "columns in turns": (
        lambda s, x: F.linear(x[:, :3], s.w[:, ::2]) + F.linear(x[:, 3:], s.w[:, 1::2]),
        (X,),
        {"w": W},
    ),
    "chunks": (
        lambda s, x: sum(F.linear(x, part) * (k + 1) for k, part in enumerate(s.w.chunk(3))),
        (S,),
        {"w": W},
    ),
    "views": (
        lambda s, x: F.linear(x, s.w.t()) + F.linear(x, s.w.view(4, 9)[:, :E].repeat(2, 1)[:E]),
        (X,),
        {"w": W},
    ),
    "computed": (lambda s, x: F.linear(x, s.w.softmax(0) @ s.w.tanh()), (S,), {"w": W}),
    "joined": (
        lambda s, x: F.linear(x, torch.cat([s.w[:2], s.v.unsqueeze(0)])),
        (X,),
        {"w": W, "v": V},
    ),
    "functional weights": (
        lambda s, i: F.linear(torch.tanh(F.embedding(i, s.w)), s.w),
        (I,),
        {"w": draw(11, E)},
    ),
    "two tables of one": (
        lambda s, i: F.embedding(i, s.w) * F.embedding((i + 1) % 11, s.w),
        (I,),
        {"w": draw(11, E)},
    ),
    "rows by index": (lambda s, i: s.w[i] + s.w[i - 3], (I,), {"w": draw(11, E)}),
    "columns by index": (lambda s, i: s.w[:, i].movedim(0, -1), (I,), {"w": draw(3, 11)}),
    "positions": (
        lambda s, x: x + F.embedding(torch.arange(T), s.w) + s.w[torch.arange(T)[None]] + s.w[:T],
        (S,),
        {"w": draw(9, E)},
    ),
    "positions twice": (
        lambda s, x: x + F.embedding(torch.tensor([0, 1, 1, 0]), s.w),
        (S,),
        {"w": draw(2, E)},
    ),
    "reused": (
        lambda s, x: F.linear(
            torch.tanh(F.linear(torch.tanh(F.linear(x, s.w, s.c)), s.w, s.c)), s.w, s.c
        ),
        (S,),
        {"w": W, "c": V},
    ),
    "penalty": (
        lambda s, x: F.linear(x, s.w).sum(1) + (s.w**2).sum() + s.v.abs().sum(),
        (X,),
        {"w": W, "v": V},
    ),
    "einsum": (lambda s, x: torch.einsum("btd,hdk->bhtk", x, s.w), (S,), {"w": draw(2, E, 3)}),
    "einsum to a number": (lambda s, x: torch.einsum("bi,ji->b", x, s.w), (X,), {"w": W}),
    "distances": (lambda s, x: torch.cdist(x, s.w), (X,), {"w": draw(3, E)}),
    "matrices": (lambda s, x: x.unsqueeze(1) @ s.w, (S,), {"w": draw(2, E, 3)}),
    "a vector": (lambda s, x: x @ s.w, (S,), {"w": V}),
    "scaled addmm": (
        lambda s, x: torch.addmm(s.c, x, s.w, beta=0.5, alpha=2.0),
        (X,),
        {"w": W, "c": V},
    ),
    "baddbmm": (
        lambda s, x: torch.baddbmm(s.c, x, s.w.expand(len(x), -1, -1)),
        (S,),
        {"w": W, "c": draw(1, 1, E)},
    ),
    "learned queries": (
        lambda s, x: F.scaled_dot_product_attention(s.w.expand(len(x), -1, -1), x, x),
        (S,),
        {"w": draw(2, E)},
    ),
    "learned keys": (
        lambda s, x: F.scaled_dot_product_attention(x, s.w, s.w),
        (S,),
        {"w": draw(1, 3, E)},
    ),
    "learned bias of attention": (
        lambda s, x: F.scaled_dot_product_attention(x, x, x, attn_mask=s.w),
        (S,),
        {"w": draw(1, T, T)},
    ),
    "prelu": (lambda s, x: F.prelu(x, s.w) + F.prelu(x, s.v), (S.mT,), {"w": V, "v": draw(1)}),
    "complex linear": (
        lambda s, x: torch.view_as_real(
            F.linear(torch.view_as_complex(x.view(-1, 3, 2)), torch.view_as_complex(s.w))
        ),
        (X,),
        {"w": draw(4, 3, 2)},
    ),
    "in frequencies": (
        lambda s, x: torch.view_as_real(torch.fft.rfft(x) * torch.fft.rfft(s.w)),
        (X,),
        {"w": V},
    ),
    "unused": (lambda s, x: F.linear(x, s.w) + s.v.detach() + s.v.data, (X,), {"w": W, "v": V}),
    "without gradients": (
        lambda s, x: F.linear(x, s.w) + torch.no_grad()(s.w.sum)(),
        (X,),
        {"w": W},
    ),
    "embedding, sparse": (lambda s, i: F.embedding(i, s.w, sparse=True), (I,), {"w": draw(11, 3)}),
    "bag with its own offsets": (
        own_offsets,
        (I,),
        {"w": draw(11, 3)},
    ),
    "experts for tokens": (
        lambda s, x: (
            F.linear(x.view(-1, E), s.w) * F.linear(x.view(-1, E), s.r).softmax(-1)[:, :1]
        ).view(len(x), -1),
        (S,),
        {"w": W, "r": draw(2, E)},
    ),
}


@pytest.mark.parametrize("form", [None, "ghost", "direct"])
@pytest.mark.parametrize("name", FOLLOWED)
def test_followed(name: str, form: str | None) -> None:
    forward, batch, values = FOLLOWED[name]
    check(forward, *batch, form=form, values=values)


# --- modules ---

MODULES: dict[str, Callable[[], nn.Module]] = {
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(E, 3)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(E, E), orthogonal_map="cayley"),
    "spectral norm, fixed": lambda: parametrizations.spectral_norm(nn.Linear(E, 3)).eval(),
    "tied modules": lambda: tied(nn.Linear(E, E), nn.Linear(E, E)),
    "frozen": lambda: frozen(nn.Sequential(nn.Linear(E, E), nn.LayerNorm(E), nn.Linear(E, 2))),
    "attention": lambda: Attention().train(),
}


def tied(one: nn.Linear, two: nn.Linear) -> nn.Module:
    two.weight = one.weight
    return nn.Sequential(one, nn.Tanh(), two)


def frozen(model: nn.Sequential) -> nn.Module:
    model[0].requires_grad_(False)
    model[1].get_parameter("bias").requires_grad_(False)
    return model


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(E, 2, batch_first=True, add_bias_kv=True)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.inner(x, x.flip(1), x * 2, need_weights=False)[0])


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    torch.manual_seed(1)
    compare(MODULES[name]().double(), cubes, (S,))


def test_spectral_norm_in_train_mode_moves_its_buffers_in_every_pass_and_never_in_trials() -> None:
    """Power iterations see weights only, so that nothing of the records is in the buffers."""
    model = parametrizations.spectral_norm(nn.Linear(E, 3)).double()
    parameters: Any = model.parametrizations.weight[0]  # type: ignore[union-attr, index]
    engine, before = Engine(model), (parameters._u.clone(), parameters._v.clone())
    engine.rehearse(cubes, (S,), B)
    assert torch.equal(parameters._u, before[0])
    list(engine.passes(cubes, (S,), B, B))
    assert engine.one_by_one is None
    once = parameters._u.clone()
    assert not torch.equal(once, before[0])
    parameters._u.copy_(before[0])
    parameters._v.copy_(before[1])
    list(engine.passes(cubes, (S.flip(0) * 3,), B, B))
    assert torch.equal(parameters._u, once)  # other records, the same buffers


def test_two_losses() -> None:
    model = Written(lambda s, x: F.linear(x, s.w), {"w": W})
    engine = compare(model, cubes, (X,)).engine
    with pytest.raises(ModelError, match="one loss for each record"):
        list(engine.passes(lambda m, b: cubes(m, b).mean(), (X,), B, B))
    compare(model, lambda m, b: (m(*b).abs().sum(1), {"metric/size": b[0].sum(1)}), (X,))


# --- what cannot be followed is computed one by one, and told ---


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return gradients[0] * w, (gradients[0] * x).sum(0)


def inner_gradient(s: Any, x: Tensor, function: Callable[[Tensor], Tensor] = torch.tanh) -> Tensor:
    x = x.clone().requires_grad_()
    y = F.linear(function(F.linear(x, s.w)), s.v)
    return torch.as_tensor(torch.autograd.grad(y.sum(), x, create_graph=True)[0])


def changed_after_use(s: Any, x: Tensor) -> Tensor:
    """Torch itself allows this one: the product does not keep what changes."""
    w = s.w * 2.0
    y = F.linear(x, w)
    w.mul_(3.0)
    return y


def added_then_changed(s: Any, x: Tensor) -> Tensor:
    w = s.v * 2.0
    y = x + w
    w.mul_(3.0)
    return torch.as_tensor(y)


ALONE: dict[str, tuple[str, Case]] = {
    "a function of autograd": (
        "cannot be seen",
        (lambda s, x: s.twice.apply(x, s.v), (X,), {"v": V}),
    ),
    "a view from before": ("cannot be seen", (lambda s, x: x @ s.kept[0], (X,), {"w": W})),
    "a view from before, joined": (
        "before the pass",
        (lambda s, x: F.linear(x, s.v @ s.kept[0]), (X,), {"w": W, "v": draw(3, E)}),
    ),
    "a gradient inside": (
        "within its own forward",
        (inner_gradient, (X,), {"w": draw(7, E), "v": draw(1, 7)}),
    ),
    "a gradient inside, linear": (
        "within its own forward",
        (lambda s, x: inner_gradient(s, x, torch.relu), (X,), {"w": draw(7, E), "v": draw(1, 7)}),
    ),
    "as many as records": (
        "more than one row",
        (lambda s, x: x + torch.tile(s.v, (len(x), 1)), (X,), {"v": V}),
    ),
    "as many tensors as records": (
        "own axis is the record axis",
        (lambda s, x: x + torch.stack([s.v] * len(x)), (X,), {"v": V}),
    ),
    "changed after its use": ("changed in place", (changed_after_use, (X,), {"w": W})),
    "added, then changed": ("changed in place", (added_then_changed, (X,), {"v": V})),
    "written into records": (
        "record axis",
        (lambda s, x: torch.zeros_like(x).copy_(s.v) * x, (X,), {"v": V}),
    ),
    "scaled by frequency": (
        "frequency",
        (
            lambda s, i: F.embedding_bag(i, s.w, scale_grad_by_freq=True, mode="sum"),
            (I,),
            {"w": draw(11, 3)},
        ),
    ),
    "the largest of a bag": (
        "embedding bag",
        (lambda s, i: F.embedding_bag(i, s.w, mode="max"), (I,), {"w": draw(11, 3)}),
    ),
    "sparse, one by one": (
        "own axis is the record axis",
        (
            lambda s, i: F.embedding(i, s.w, sparse=True) + torch.stack([s.v] * len(i)),
            (I,),
            {"w": draw(11, 3), "v": draw(1, 1)},
        ),
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_one_by_one(name: str) -> None:
    reason, (forward, batch, values) = ALONE[name]
    model: Any = Written(forward, values)
    model.twice = Double
    if "w" in values:
        model.kept = [model.w.t()]
    found = compare(model, cubes, batch, loop=True)
    assert reason in str(found.engine.one_by_one)


def test_an_input_changed_after_its_use_fails_as_in_torch() -> None:
    """A product keeps its input for the weight's gradient. Were it not noticed, the gradient would
    be that of other numbers.
    """

    def forward(s: Any, x: Tensor) -> Tensor:
        h = x * 1.0
        y = F.linear(h, s.w)
        h.mul_(2.0)
        return y + h

    model = Written(forward, {"w": W})
    engine = Engine(model)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        list(engine.passes(cubes, (X,), B, B))
    assert "changed in place" in str(engine.one_by_one)


def test_recurrent_inputs_changed_after_their_use_are_noticed() -> None:
    cells: Any = nn.LSTM(E, 3, batch_first=True).double()

    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0] * 1.0
        out, _ = model(x)
        x.mul_(2.0)
        return torch.as_tensor(out.square().sum((1, 2)) + x.sum((1, 2)))

    engine = Engine(cells)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        list(engine.passes(loss, (S,), B, B))
    assert "changed in place" in str(engine.one_by_one)


def test_a_batch_that_is_changed_stays_as_it_is_for_others() -> None:
    """It is looked at several times: every pass has a copy of its own."""
    x = X.clone()
    check(lambda s, x: x.mul_(2.0) + s.v, x, values={"v": V})
    assert torch.equal(x, X)


def test_a_mistake_of_the_user_is_the_users() -> None:
    model = Written(lambda s, x: F.linear(x, s.w) + torch.ones(7), {"w": W})
    with pytest.raises(RuntimeError, match="size of tensor"):
        list(Engine(model).passes(cubes, (X,), B, B))


# --- what must not be is refused ---


def test_a_forward_pass_that_writes_through_data_is_refused() -> None:
    model = Written(lambda s, x: (s.w.data.mul_(x.mean()), F.linear(x, s.w))[1], {"w": W})
    with pytest.raises(ModelError, match="writes what records made into 'w'"):
        list(Engine(model).passes(cubes, (X,), B, B))
    assert torch.equal(model.get_parameter("w"), W)


@pytest.mark.parametrize("first", ["recorded", "one by one"])
def test_a_layer_that_is_put_into_another_mode_is_looked_at_again(first: str) -> None:
    """In eval mode harmless, in train mode it writes records into its buffers: at whatever step
    that happens.
    """
    norm = nn.InstanceNorm1d(E, affine=True, track_running_stats=True).double()
    model = nn.Sequential(norm) if first == "recorded" else nn.Sequential(norm, Tiled().double())
    engine = Engine(model.eval())
    for _ in range(4):
        list(engine.passes(cubes, (S.mT,), B, B))
    assert (engine.one_by_one is None) == (first == "recorded")
    model.train()
    with pytest.raises(CoupledRecords, match="running"):
        list(engine.passes(cubes, (S.mT,), B, B))


class Tiled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tile(self.scale, (len(x), 1)).unsqueeze(2)


def test_p11_records_that_are_mixed_at_random_go_one_by_one() -> None:
    model = Written(lambda s, x: F.linear(x + x[torch.randperm(len(x))], s.w), {"w": W})
    engine = Engine(model)
    list(engine.passes(cubes, (X,), B, B))
    assert "index" in str(engine.one_by_one)


@pytest.mark.parametrize(
    "parameter", [nn.Parameter(torch.zeros(2, dtype=torch.complex64)), nn.UninitializedParameter()]
)
def test_parameters_without_a_norm_are_refused(parameter: Tensor) -> None:
    model = nn.Module()
    model.register_parameter("w", parameter)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="grad/w"):
        Engine(model)


def test_an_expanded_parameter_of_one_record() -> None:
    """With one record an expanded value is no copy; it is still a use of its own, and the parameter
    stays as it is.
    """
    check(
        lambda s, x: torch.cat([s.w.expand(len(x), -1, -1), x], 1) * s.w,
        S[:1],
        values={"w": draw(1, 1, E)},
    )


def test_p12_as_many_positions_as_records() -> None:
    """A size that equals the number of records is not taken for it."""
    square = draw(E, E, E)
    check(
        lambda s, x: F.linear(x * s.g + s.p, s.w),
        square,
        values={"w": W, "g": draw(E), "p": draw(E, E)},
    )


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gradient: Tensor = 2 * x * gradients[0]
        return gradient


def test_a_function_of_autograd_without_parameters_needs_no_loop() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 3).double(), nn.Linear(3, 2).double()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.second(_Square.apply(self.first(x)))  # type: ignore[no-untyped-call]
            return out

    compare(
        Model(),
        lambda model, batch: model(batch[0]).sum(1),
        (torch.randn(5, 4, dtype=torch.double),),
    )
