"""Recurrent layers against torch's own: outputs, states, gradients of inputs, and each record's
gradients of the weights.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from discreet.errors import ParameterError
from discreet.training.rules.nodes import Receiver
from discreet.training.rules.recurrent import lstm as _lstm
from discreet.training.rules.recurrent.layer import Kind, LinearMap, Recurrence, Taps

pytestmark = pytest.mark.filterwarnings(
    "ignore:LSTM with projections"
)  # torch takes another way, and says so
KINDS: list[Kind] = ["lstm", "gru", "rnn_tanh", "rnn_relu"]


@dataclass(frozen=True)
class Case:
    kind: Kind = "lstm"
    positions: int = 3
    records: int = 2
    inputs: int = 3
    width: int = 4
    layers: int = 1
    projected: int = 0
    bias: bool = True
    both_ways: bool = False
    batch_first: bool = False
    dtype: torch.dtype = torch.float64
    start: bool = True
    x_needs_grad: bool = True

    def layer(self) -> nn.RNNBase:
        mode = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN_TANH", "rnn_relu": "RNN_RELU"}[
            self.kind
        ]
        return nn.RNNBase(
            mode,
            self.inputs,
            self.width,
            num_layers=self.layers,
            bias=self.bias,
            batch_first=self.batch_first,
            bidirectional=self.both_ways,
            proj_size=self.projected if self.kind == "lstm" else 0,
            dtype=self.dtype,
        )

    def tensors(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Inputs and start."""
        axes = (
            (self.records, self.positions) if self.batch_first else (self.positions, self.records)
        )
        x = torch.randn(*axes, self.inputs, dtype=self.dtype, requires_grad=self.x_needs_grad)
        outputs = (self.projected or self.width) if self.kind == "lstm" else self.width
        count, widths = (
            self.layers * (1 + self.both_ways),
            (outputs, self.width) if self.kind == "lstm" else (outputs,),
        )
        make = torch.randn if self.start else torch.zeros
        return x, tuple(
            make(count, self.records, w, dtype=self.dtype, requires_grad=self.start) for w in widths
        )

    @property
    def tolerance(self) -> float:
        return 1e-10 if self.dtype == torch.float64 else 1e-5


cases = st.builds(
    Case,
    kind=st.sampled_from(KINDS),
    positions=st.integers(1, 6),
    records=st.integers(1, 4),
    inputs=st.integers(1, 5),
    width=st.integers(3, 6),
    layers=st.integers(1, 3),
    projected=st.sampled_from([0, 1, 2]),
    bias=st.booleans(),
    both_ways=st.booleans(),
    batch_first=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    start=st.booleans(),
    x_needs_grad=st.booleans(),
)


def native(
    case: Case, layer: nn.RNNBase, x: Tensor, start: tuple[Tensor, ...], *, dropout: float = 0.0
) -> tuple[Tensor, ...]:
    function = cast("Callable[..., tuple[Tensor, ...]]", getattr(torch, case.kind))
    hx = start if case.kind == "lstm" else start[0]
    flat = list(layer.parameters())
    return function(
        x, hx, flat, case.bias, case.layers, dropout, True, case.both_ways, case.batch_first
    )


Place: TypeAlias = tuple[int, int | None]
"""Where the weight and the bias of a linear map stand among the flat weights."""


class Caught:
    """What each linear map met and the gradient of its value, and from them each record's gradients
    of the weights.
    """

    def __init__(self, flat: Iterable[Tensor]) -> None:
        self.positions = {id(weight): position for position, weight in enumerate(flat)}
        self.met: dict[Place, Tensor] = {}
        self.gradients: dict[Place, Tensor] = {}

    def visit(self, maps: Sequence[LinearMap]) -> Receiver:
        places = []
        for weight, bias, met in maps:
            place = self.positions[id(weight)], self.positions.get(id(bias))
            assert place not in self.met
            assert not met.requires_grad
            self.met[place] = met
            places.append(place)
        return lambda gradient: self.receive(places, gradient)

    def receive(self, places: Sequence[Place], gradient: Tensor) -> None:
        for place in places:
            assert place not in self.gradients
            self.gradients[place] = gradient

    def per_record(self) -> dict[int, Tensor]:
        found = {}
        for (weight, bias), gradient in self.gradients.items():
            found[weight] = torch.bmm(gradient.mT, self.met[weight, bias])
            if bias is not None:
                found[bias] = gradient.sum(1)
        return found


def ours(
    case: Case, layer: nn.RNNBase, x: Tensor, start: tuple[Tensor, ...], *, dropout: float = 0.0
) -> tuple[tuple[Tensor, ...], Caught]:
    caught = Caught(layer.parameters())
    anchor = torch.zeros((), dtype=case.dtype, requires_grad=True)
    hx = start if case.kind == "lstm" else start[0]
    call = Recurrence.read(
        case.kind,
        (
            x,
            hx,
            list(layer.parameters()),
            case.bias,
            case.layers,
            dropout,
            True,
            case.both_ways,
            case.batch_first,
        ),
    )
    assert call is not None
    return call.run(Taps(caught.visit, anchor)), caught


def close(found: Tensor, wanted: Tensor, case: Case) -> None:
    size = max(1.0, float(wanted.detach().abs().max())) if wanted.numel() else 1.0
    torch.testing.assert_close(found, wanted, rtol=case.tolerance, atol=case.tolerance * size)


def batch_of_one(
    case: Case, layer: nn.RNNBase, x: Tensor, start: tuple[Tensor, ...], d_out: tuple[Tensor, ...]
) -> list[Tensor]:
    """Each weight's gradients, (m, *shape),
    from torch's own layer on one record after the other.
    """
    rows: list[tuple[Tensor, ...]] = []
    axis = 0 if case.batch_first else 1
    for i in range(case.records):
        out = native(
            case,
            layer,
            x.detach().narrow(axis, i, 1),
            tuple(s.detach()[:, i : i + 1] for s in start),
        )
        d = (d_out[0].narrow(axis, i, 1), *(d_last[:, i : i + 1] for d_last in d_out[1:]))
        rows.append(torch.autograd.grad(out, list(layer.parameters()), d))
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def compare(case: Case, seed: int, *, strided: bool = False) -> None:
    """Outputs, states, and gradients of inputs, start and weights."""
    torch.manual_seed(seed)
    layer, (x, start) = case.layer(), case.tensors()
    wanted = native(case, layer, x, start)
    found, caught = ours(case, layer, x, start)
    for mine, theirs in zip(found, wanted, strict=True):
        close(mine, theirs, case)
    d_out = tuple(torch.randn_like(out.mT if strided else out) for out in wanted)
    d_out = tuple(d.mT for d in d_out) if strided else d_out
    torch.autograd.backward(found, d_out)
    leaves = [leaf for leaf in (x, *start) if leaf.requires_grad]
    for leaf, theirs in zip(
        leaves, torch.autograd.grad(wanted, leaves, d_out) if leaves else (), strict=True
    ):
        assert leaf.grad is not None
        close(leaf.grad, theirs, case)
    weights = caught.per_record()
    assert all(weight.grad is None for weight in layer.parameters())
    for position, theirs in enumerate(batch_of_one(case, layer, x, start, d_out)):
        close(weights.pop(position), theirs, case)
    assert not weights


@settings(max_examples=100, deadline=None)
@given(cases, st.integers(0, 2**31))
def test_everything_equals_torch_and_a_loop_over_records(case: Case, seed: int) -> None:
    compare(case, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_in_any_layout(kind: Kind) -> None:
    compare(Case(kind, records=3, projected=2), 0, strided=True)


@pytest.mark.parametrize("kind", KINDS)
def test_no_records(kind: Kind) -> None:
    case = Case(kind, records=0, layers=2, both_ways=True, projected=2)
    layer, (x, start) = case.layer(), case.tensors()
    found, caught = ours(case, layer, x, start)
    width = 2 * (2 if kind == "lstm" else case.width)
    assert found[0].shape == (case.positions, 0, width)
    torch.autograd.backward(found, [torch.ones_like(out) for out in found])
    assert all(
        gradient.shape == (0, *w.shape)
        for (_, gradient), w in zip(
            sorted(caught.per_record().items()), layer.parameters(), strict=True
        )
    )
    assert x.grad is not None


def test_gradients_of_one_output_only() -> None:
    """As when a classifier looks at the last position, or only at the last state."""
    picks: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda out, _: out[-1].sum(),
        lambda _, h: h.square().sum(),
        lambda out, _: out.sum(),
    ]
    for pick in picks:
        case = Case("gru", both_ways=True)
        layer, (x, start) = case.layer(), case.tensors()
        (out, h), caught = ours(case, layer, x, start)
        torch.autograd.backward(pick(out, h))
        out, h = native(case, layer, x, start)
        theirs = torch.autograd.grad(pick(out, h), list(layer.parameters()))
        for position, gradient in caught.per_record().items():
            close(gradient.sum(0), theirs[position], case)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_between_layers_draws_as_torch_does(kind: Kind) -> None:
    case = Case(kind, layers=3, both_ways=True, batch_first=True, positions=5, records=4)
    layer, (x, start) = case.layer(), case.tensors()
    torch.manual_seed(7)
    wanted = native(case, layer, x, start, dropout=0.5)
    torch.manual_seed(7)
    found, _ = ours(case, layer, x, start, dropout=0.5)
    close(found[0], wanted[0], case)
    assert not torch.allclose(found[0], ours(case, layer, x, start)[0][0])


@pytest.mark.parametrize("kind", KINDS)
def test_p08_outputs_and_states_may_be_changed_in_place(kind: Kind) -> None:
    case = Case(kind)
    layer, (x, start) = case.layer(), case.tensors()
    found, caught = ours(case, layer, x, start)
    reference = native(case, layer, x, start)
    torch.autograd.backward([out.mul_(2.0).sum() for out in found])
    theirs = torch.autograd.grad([2.0 * out.sum() for out in reference], list(layer.parameters()))
    for position, gradient in caught.per_record().items():
        close(gradient.sum(0), theirs[position], case)


@pytest.mark.parametrize("what", ["weight", "x"])
def test_weights_or_inputs_changed_before_the_backward_pass_are_noticed(what: str) -> None:
    case = Case(x_needs_grad=False)
    layer, (x, start) = case.layer(), case.tensors()
    found, caught = ours(case, layer, x, start)
    with torch.no_grad():
        (layer.get_parameter("weight_hh_l0") if what == "weight" else x).mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(found[0].sum())
    assert not caught.gradients


def test_outputs_hang_on_the_anchor_alone() -> None:
    """A pass towards the anchor reaches every layer, and gives the anchor no gradient."""
    case = Case(layers=2, start=False, x_needs_grad=False)
    layer, (x, start) = case.layer(), case.tensors()
    caught, anchor = Caught(layer.parameters()), torch.zeros((), requires_grad=True)
    call = Recurrence("lstm", x, start, tuple(layer.parameters()), True, 2, 0.0, True, False, False)
    out, *_ = call.run(Taps(caught.visit, anchor))
    torch.autograd.backward(out.sum(), inputs=[anchor])
    assert anchor.grad is None
    assert len(caught.gradients) == 4


def test_a_second_derivative_is_refused() -> None:
    case = Case()
    layer, (x, start) = case.layer(), case.tensors()
    found, caught = ours(case, layer, x, start)
    with pytest.raises(ParameterError, match="create_graph"):
        torch.autograd.grad(found[0].sum(), [x], create_graph=True)
    assert not caught.gradients


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_backward_pass_is_refused(kind: Kind) -> None:
    """It would hand out gradients twice, of gates that are overwritten."""
    case = Case(kind)
    layer, (x, start) = case.layer(), case.tensors()
    found, _ = ours(case, layer, x, start)
    torch.autograd.backward(found[0].sum(), retain_graph=True)
    with pytest.raises(ParameterError, match="retain_graph"):
        torch.autograd.backward(found[0].sum())


def test_the_two_maps_of_an_lstm_share_their_gradient() -> None:
    for kind, shared in (("lstm", True), ("gru", False), ("rnn_relu", True)):
        case = Case(cast("Kind", kind))
        layer, (x, start) = case.layer(), case.tensors()
        found, caught = ours(case, layer, x, start)
        torch.autograd.backward(found[0].sum())
        first, second = caught.gradients.values()
        assert (first.data_ptr() == second.data_ptr()) is shared


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_autocast_computes_in_the_precision_of_the_weights(dtype: torch.dtype) -> None:
    case = Case(dtype=torch.float32)
    layer, (x, start) = case.layer(), case.tensors()
    x, start = (
        x.detach().to(dtype).requires_grad_(),
        tuple(state.detach().to(dtype) for state in start),
    )
    wanted = native(case, layer, x.float(), tuple(state.float() for state in start))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, caught = ours(case, layer, x, start)
    torch.autograd.backward(found[0].sum())
    close(found[0], wanted[0], case)
    assert x.grad is not None
    assert x.grad.dtype == dtype
    assert {gradient.dtype for gradient in caught.gradients.values()} == {torch.float32}


def test_state_of_torch_is_left_alone() -> None:
    before = (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.get_rng_state(),
    )
    case = Case()
    layer, (x, start) = case.layer(), case.tensors()
    torch.set_rng_state(before[3])
    found, _ = ours(case, layer, x, start)
    torch.autograd.backward(found[0].sum())
    assert (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()) == before[
        :3
    ]
    assert torch.equal(torch.get_rng_state(), before[3])


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision(kind: Kind) -> None:
    case = Case(kind, layers=2, dtype=torch.bfloat16)
    layer, (x, start) = case.layer(), case.tensors()
    found, caught = ours(case, layer, x, start)
    torch.autograd.backward(found[0].sum())
    out, *_ = native(case, layer.float(), x.float(), tuple(state.float() for state in start))
    torch.testing.assert_close(found[0].float(), out, rtol=0.05, atol=0.05)
    for position, theirs in enumerate(torch.autograd.grad(out.sum(), list(layer.parameters()))):
        torch.testing.assert_close(
            caught.per_record()[position].float().sum(0), theirs, rtol=0.1, atol=0.3
        )


@pytest.mark.parametrize("worth", [-1, 10**18])
@pytest.mark.parametrize("kind", KINDS)
def test_p13_a_record_that_is_not_finite_changes_no_other(
    kind: Kind, worth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lstm, "_WORTH", worth)
    monkeypatch.setattr(_lstm, "_is_compiled", lambda: False)
    case = Case(kind, dtype=torch.float32, records=5, layers=2, both_ways=True)
    layer, (x, start) = case.layer(), case.tensors()
    others = torch.tensor([0, 1, 3, 4])
    results = []
    for broken in (0.5, torch.nan, torch.inf):
        changed = x.detach().clone()
        changed[1, 2] = broken
        (out, *_), caught = ours(case, layer, changed, start)
        torch.autograd.backward(out.nan_to_num().sum())
        results.append(
            [
                out.detach()[:, others],
                *(gradient[others] for _, gradient in sorted(caught.per_record().items())),
            ]
        )
    assert all(
        torch.equal(a, b) and bool(a.isfinite().all())
        for other in results[1:]
        for a, b in zip(results[0], other, strict=True)
    )


def test_packed_sequences_are_left_to_others() -> None:
    for kind in KINDS:
        case = Case(kind)
        layer, (x, start) = case.layer(), case.tensors()
        packed = nn.utils.rnn.pack_sequence(list(x.detach().unbind(1)))
        hx = start if kind == "lstm" else start[0]
        arguments = (
            packed.data,
            packed.batch_sizes,
            hx,
            list(layer.parameters()),
            True,
            1,
            0.0,
            True,
            False,
        )
        assert Recurrence.read(kind, arguments) is None
        assert Recurrence.read(kind, arguments[:4]) is None


@pytest.mark.parametrize("shape", [(3,), (0, 2, 3)])
def test_inputs_without_positions_are_refused(shape: tuple[int, ...]) -> None:
    case = Case()
    layer, (_, start) = case.layer(), case.tensors()
    with pytest.raises(ParameterError, match="at least one position"):
        ours(case, layer, torch.zeros(shape, dtype=torch.float64), start)


@pytest.mark.parametrize("kind", KINDS)
def test_another_number_of_states_is_refused(kind: Kind) -> None:
    case = Case(kind)
    layer, (x, start) = case.layer(), case.tensors()
    anchor = torch.zeros((), requires_grad=True)
    for states in ((), start * 3):
        with pytest.raises(ParameterError, match="'start' parameter"):
            Recurrence(
                kind, x, states, tuple(layer.parameters()), True, 1, 0.0, True, False, False
            ).run(Taps(Caught(layer.parameters()).visit, anchor))


@pytest.mark.parametrize("kind", KINDS)
def test_another_number_of_weights_is_refused(kind: Kind) -> None:
    case = Case(kind)
    layer, (x, start) = case.layer(), case.tensors()
    anchor = torch.zeros((), requires_grad=True)
    for weights in ([], list(layer.parameters())[:3], [*layer.parameters()] * 2):
        call = Recurrence(kind, x, start, tuple(weights), True, 1, 0.0, True, False, False)
        with pytest.raises(ParameterError, match="4 tensors for each of 1 layers"):
            call.run(Taps(Caught(layer.parameters()).visit, anchor))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code from the first step on."""
    monkeypatch.setattr(_lstm, "_WORTH", -1)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    cases.map(lambda case: replace(case, kind="lstm", dtype=torch.float32)), st.integers(0, 2**31)
)
def test_compiled_steps_equal_torch_and_a_loop_over_records(
    compiled: None, case: Case, seed: int
) -> None:
    compare(case, seed)


def test_compiled_steps_without_records_and_on_strided_gradients(compiled: None) -> None:
    compare(Case(width=40, records=3, dtype=torch.float32), 0, strided=True)
    case = Case(records=0, dtype=torch.float32)
    found, _ = ours(case, case.layer(), *case.tensors())
    torch.autograd.backward(found, [torch.ones_like(out) for out in found])


def test_compiled_code_waits_until_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(_lstm, "_kernels", lambda: asked.append(1))
    monkeypatch.setattr(_lstm, "_is_compiled", lambda: False)
    monkeypatch.setattr(_lstm, "_cells_so_far", [0])
    case = Case(dtype=torch.float32)
    for worth, times in ((10**9, 0), (10, 1)):
        monkeypatch.setattr(_lstm, "_WORTH", worth)
        ours(case, case.layer(), *case.tensors())
        assert len(asked) == times
    ours(
        replace(case, dtype=torch.float64),
        case.layer().double(),
        *replace(case, dtype=torch.float64).tensors(),
    )
    assert len(asked) == 1


def test_without_a_compiler_torch_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("discreet.native.kernels", lambda **_: None)
    monkeypatch.setattr(_lstm, "_WORTH", -1)
    _lstm._kernels.cache_clear()
    assert _lstm._kernels() is None
    compare(Case(dtype=torch.float32), 0)
    _lstm._kernels.cache_clear()


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_w_hh_met_the_start_first(kind: Kind, both_ways: bool) -> None:
    """A rule that took the outputs, one position late, for what W_hh met would be caught here."""
    case = Case(kind, both_ways=both_ways)
    layer, (x, start) = case.layer(), case.tensors()
    (out, *_), caught = ours(case, layer, x, start)
    first = caught.met[1, 3]
    assert torch.equal(first[:, 0], start[0][0].detach())
    assert torch.equal(first[:, 1:], out.detach()[:-1, :, : case.width].transpose(0, 1))
    if both_ways:
        second = caught.met[5, 7]
        assert torch.equal(second[:, -1], start[0][1].detach())
        assert torch.equal(second[:, :-1], out.detach()[1:, :, case.width :].transpose(0, 1))
