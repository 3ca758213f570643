"""Models that use torch's machinery: gradients in the loss, scripts, compilation, own backwards."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call, grad, jvp, stack_module_state, vmap
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from .harness import (
    RECORDS,
    Case,
    Catalogue,
    Function,
    Output,
    classification,
    classify,
    random_labels,
    regress,
    regression,
)

CATALOGUE = Catalogue()


def _mlp(inputs: int = 4, hidden: int = 6, outputs: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


# --- torch.func ---


@CATALOGUE.entry("vmap over records")
def vmap_over_records() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        parameters: dict[str, Tensor] = dict(model.named_parameters())

        def single(inputs: Tensor, label: Tensor) -> Output:
            scores = functional_call(model, parameters, (inputs.unsqueeze(0),))
            return F.cross_entropy(scores, label.unsqueeze(0))

        return vmap(single)(*batch)

    return Case(_mlp(), loss, (torch.randn(RECORDS, 4), random_labels(3)))


@CATALOGUE.entry("vmap over a model's own copies")
def ensemble_by_vmap() -> Case:
    """An ensemble whose members are stacked in one parameter."""

    def forward(module: Any, inputs: Tensor) -> Output:
        members = {"0.weight": module.first, "2.weight": module.second}
        skeleton = module.skeleton[0]
        scores = vmap(lambda weights: functional_call(skeleton, weights, (inputs,)))(members)
        return scores.mean(0)

    def member() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 5, bias=False), nn.Tanh(), nn.Linear(5, 3, bias=False))

    weights, _ = stack_module_state([member() for _ in range(3)])
    parts: dict[str, Any] = {
        "first": nn.Parameter(weights["0.weight"].detach()),
        "second": nn.Parameter(weights["2.weight"].detach()),
    }
    model = Function(forward, parts)
    model.skeleton = [member().requires_grad_(False)]  # type: ignore[assignment]
    return classification(model, torch.randn(RECORDS, 4))


@CATALOGUE.entry("gradient of an energy by torch.func")
def energy_gradient() -> Case:
    """Forces are the negative gradient of a learnt energy."""

    def loss(model: nn.Module, batch: Any) -> Output:
        places, forces = batch

        def energy(place: Tensor) -> Output:
            return model(place.unsqueeze(0)).sum()

        return (vmap(grad(energy))(places) + forces).square().sum(1)

    return Case(_mlp(outputs=1), loss, (torch.randn(RECORDS, 4), torch.randn(RECORDS, 4)))


@CATALOGUE.entry("directional derivative by jvp")
def directional_derivative() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        places, directions = batch
        outputs, changes, *_ = jvp(model, (places,), (directions,))
        return outputs.square().sum(1) + changes.square().sum(1)

    return Case(_mlp(), loss, (torch.randn(RECORDS, 4), torch.randn(RECORDS, 4)))


@CATALOGUE.entry("functional call with scaled weights")
def functional_call_with_scaled_weights() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        inputs, labels = batch
        weights = {name: 0.5 * weight for name, weight in model.named_parameters()}
        return F.cross_entropy(functional_call(model, weights, (inputs,)), labels, reduction="none")

    return Case(_mlp(), loss, (torch.randn(RECORDS, 4), random_labels(3)))


# --- gradients within the loss ---


@CATALOGUE.entry("gradient penalty of a critic")
def gradient_penalty() -> Case:
    """WGAN-GP: the norm of a record's own gradient at a mixture of its own two images."""

    def loss(model: nn.Module, batch: Any) -> Output:
        real, fake, share = batch
        mixture = (share * real + (1 - share) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(model(mixture).sum(), mixture, create_graph=True)
        penalty = (slope.norm(dim=1) - 1.0).square()
        return (model(fake) - model(real)).squeeze(1) + 10.0 * penalty

    batch = (torch.randn(RECORDS, 4), torch.randn(RECORDS, 4), torch.rand(RECORDS, 1))
    return Case(_mlp(outputs=1), loss, batch)


@CATALOGUE.entry("score matching")
def score_matching() -> Case:
    """Sliced: a random direction of each record comes with its batch."""

    def loss(model: nn.Module, batch: Any) -> Output:
        points, directions = batch
        points = points.detach().requires_grad_()
        scores = model(points)
        projected = (scores * directions).sum()
        (change,) = torch.autograd.grad(projected, points, create_graph=True)
        return (change * directions).sum(1) + 0.5 * scores.square().sum(1)

    batch = (torch.randn(RECORDS, 4), torch.randn(RECORDS, 4))
    return Case(_mlp(outputs=4), loss, batch)


@CATALOGUE.entry("physics informed, second derivative")
def physics_informed() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        (places,) = batch
        places = places.detach().requires_grad_()
        height = model(places)
        (slope,) = torch.autograd.grad(height.sum(), places, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), places, create_graph=True)
        return (bend + torch.sin(places)).square().mean(1)

    return Case(_mlp(1, 6, 1), loss, (torch.randn(RECORDS, 1),))


@CATALOGUE.entry("adversarial example of each record")
def adversarial_training() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        inputs, labels = batch
        inputs = inputs.detach().requires_grad_()
        first = F.cross_entropy(model(inputs), labels, reduction="sum")
        (slope,) = torch.autograd.grad(first, inputs)
        return F.cross_entropy(model(inputs + 0.1 * slope.sign()), labels, reduction="none")

    return Case(_mlp(), loss, (torch.randn(RECORDS, 4), random_labels(3)))


@CATALOGUE.entry("inner step of each record (MAML)")
def inner_step() -> Case:
    """A linear head takes a gradient step on a record's support, and is scored on its query."""

    def loss(model: Any, batch: Any) -> Output:
        support, targets, query, answers = batch
        features = torch.tanh(model.body(support))
        head: Tensor = model.head.expand(len(support), -1)
        errors = torch.einsum("bnd,bd->bn", features, head) - targets
        inner = torch.einsum("bn,bnd->bd", errors, features) / targets.shape[1]
        moved = head - 0.3 * inner
        scores = torch.einsum("bnd,bd->bn", torch.tanh(model.body(query)), moved)
        return (scores - answers).square().mean(1)

    parts = {"body": nn.Linear(3, 5), "head": nn.Parameter(torch.randn(5))}
    model = Function(lambda module, inputs: inputs, parts)
    batch = (
        torch.randn(RECORDS, 4, 3),
        torch.randn(RECORDS, 4),
        torch.randn(RECORDS, 2, 3),
        torch.randn(RECORDS, 2),
    )
    return Case(model, loss, batch)


@CATALOGUE.entry("inner step of all weights by vmap and grad (MAML)")
def inner_step_of_all_weights() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        weights: dict[str, Tensor] = dict(model.named_parameters())

        def single(support: Tensor, targets: Tensor, query: Tensor, answers: Tensor) -> Output:
            def inner(own: dict[str, Tensor]) -> Output:
                return (functional_call(model, own, (support,)) - targets).square().mean()

            slopes = grad(inner)(weights)
            moved = {name: weight - 0.1 * slopes[name] for name, weight in weights.items()}
            return (functional_call(model, moved, (query,)) - answers).square().mean()

        return vmap(single)(*batch)

    batch = (
        torch.randn(RECORDS, 4, 3),
        torch.randn(RECORDS, 4, 1),
        torch.randn(RECORDS, 2, 3),
        torch.randn(RECORDS, 2, 1),
    )
    return Case(_mlp(3, 5, 1), loss, batch)


@CATALOGUE.entry("descent on an energy within the loss")
def descent_on_energy() -> Case:
    """An energy-based model whose answer is found by three unrolled steps of each record."""

    def loss(model: nn.Module, batch: Any) -> Output:
        inputs, targets = batch
        answer = torch.zeros_like(targets).requires_grad_()
        for _ in range(3):
            energy = model(torch.cat([inputs, answer], 1)).sum() + answer.square().sum()
            (slope,) = torch.autograd.grad(energy, answer, create_graph=True)
            answer = answer - 0.3 * slope
        return (answer - targets).square().sum(1)

    return Case(_mlp(6, 5, 1), loss, (torch.randn(RECORDS, 4), torch.randn(RECORDS, 2)))


# --- own backward passes ---


class Reversed(torch.autograd.Function):
    """The identity, whose gradient is turned round."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return -gradients[0]


class OwnLinear(torch.autograd.Function):
    """A linear layer with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return inputs @ weight.t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        inputs, weight = ctx.saved_tensors
        return gradients[0] @ weight, gradients[0].t() @ inputs


class OwnSwish(torch.autograd.Function):
    """An activation that is computed again instead of kept."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        return values * torch.sigmoid(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (values,) = ctx.saved_tensors
        share = torch.sigmoid(values)
        return gradients[0] * share * (1 + values * (1 - share))


@CATALOGUE.entry("reversed gradient of a domain classifier")
def reversed_gradient() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        inputs, labels, domains = batch
        features = model.body(inputs)
        task = F.cross_entropy(model.task(features), labels, reduction="none")
        reversed_features = Reversed.apply(features)  # type: ignore[no-untyped-call]
        scores = model.domain(reversed_features)
        domain = F.cross_entropy(scores, domains, reduction="none")
        return task + domain

    parts = {
        "body": nn.Sequential(nn.Linear(4, 6), nn.Tanh()),
        "task": nn.Linear(6, 3),
        "domain": nn.Linear(6, 2),
    }
    model = Function(lambda module, inputs: module.task(module.body(inputs)), parts)
    return Case(model, loss, (torch.randn(RECORDS, 4), random_labels(3), random_labels(2)))


@CATALOGUE.entry("own linear function")
def own_linear() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden: Tensor = OwnLinear.apply(inputs, module.weight)  # type: ignore[no-untyped-call]
        return module.head(torch.tanh(hidden))

    parts = {"weight": nn.Parameter(torch.randn(5, 4)), "head": nn.Linear(5, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("own activation function")
def own_activation() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden = OwnSwish.apply(module.before(inputs))  # type: ignore[no-untyped-call]
        return module.after(hidden)

    parts = {"before": nn.Linear(4, 6), "after": nn.Linear(6, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("hook that scales a record's gradient")
def scaling_hook() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden: Output = torch.tanh(module.before(inputs))
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: 0.5 * gradient)
        return module.after(hidden)

    parts = {"before": nn.Linear(4, 6), "after": nn.Linear(6, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


# --- checkpoints, scripts, compilation ---


@CATALOGUE.entry("checkpointed blocks")
def checkpointed_blocks() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden = module.first(inputs)
        for block in module.blocks:
            hidden = hidden + checkpoint(block, hidden, use_reentrant=False)
        return module.head(hidden)

    parts = {
        "first": nn.Linear(4, 5),
        "blocks": nn.ModuleList(_mlp(5, 6, 5) for _ in range(2)),
        "head": nn.Linear(5, 3),
    }
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("checkpointed attention")
def checkpointed_attention() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        outputs: Tensor = checkpoint(module.layer, inputs, use_reentrant=False)
        return outputs

    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
    return regression(Function(forward, {"layer": layer}), torch.randn(RECORDS, 4, 8))


@CATALOGUE.entry("checkpointed sequence")
def checkpointed_sequence() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        run: Any = checkpoint_sequential
        return run(module.layers, 2, inputs, use_reentrant=False)

    layers = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3))
    return classification(Function(forward, {"layers": layers}), torch.randn(RECORDS, 4))


def _scripted_activation(values: Tensor) -> Tensor:
    return values * torch.tanh(F.softplus(values))


@CATALOGUE.entry("scripted activation")
def scripted_activation() -> Case:
    activation = torch.jit.script(_scripted_activation)

    def forward(module: Any, inputs: Tensor) -> Output:
        return module.after(activation(module.before(inputs)))

    parts = {"before": nn.Linear(4, 6), "after": nn.Linear(6, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("scripted layers")
def scripted_layers() -> Case:
    body = torch.jit.script(nn.Sequential(nn.Linear(4, 6), nn.Tanh()))
    return classification(nn.Sequential(body, nn.Linear(6, 3)), torch.randn(RECORDS, 4))


@CATALOGUE.entry("traced layers")
def traced_layers() -> Case:
    layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
    body = torch.jit.trace(layers, torch.randn(2, 4))  # type: ignore[no-untyped-call]
    return classification(nn.Sequential(body, nn.Linear(6, 3)), torch.randn(RECORDS, 4))


@CATALOGUE.entry("compiled model, eager backend")
def compiled_model() -> Case:
    model = _mlp()
    compiled: Any = torch.compile(model, backend="eager")

    def loss(module: nn.Module, batch: Any) -> Output:
        return classify(compiled, batch)

    return Case(model, loss, (torch.randn(RECORDS, 4), random_labels(3)))


@CATALOGUE.entry("compiled module, autograd ahead of time")
def compiled_ahead_of_time() -> Case:
    model: Any = torch.compile(_mlp(), backend="aot_eager")
    return Case(model, classify, (torch.randn(RECORDS, 4), random_labels(3)))


@CATALOGUE.entry("compiled activation")
def compiled_activation() -> Case:
    activation = torch.compile(_scripted_activation, backend="eager")

    def forward(module: Any, inputs: Tensor) -> Output:
        return module.after(activation(module.before(inputs)))

    parts = {"before": nn.Linear(4, 6), "after": nn.Linear(6, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


# --- how numbers are written ---


@CATALOGUE.entry("outputs written into prepared memory")
def prepared_memory() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        outputs = inputs.new_zeros(len(inputs), 3, 5)
        for moment in range(3):
            outputs[:, moment] = torch.tanh(module.layer(inputs[:, moment]))
        return outputs

    return regression(Function(forward, {"layer": nn.Linear(4, 5)}), torch.randn(RECORDS, 3, 4))


@CATALOGUE.entry("records one by one in the loss")
def loop_in_the_loss() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        inputs, labels = batch
        losses = [
            F.cross_entropy(model(own.unsqueeze(0)), label.unsqueeze(0))
            for own, label in zip(inputs, labels, strict=True)
        ]
        return torch.stack(losses)

    return Case(_mlp(), loss, (torch.randn(RECORDS, 4), random_labels(3)))


@CATALOGUE.entry("records on the second axis")
def records_on_the_second_axis() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden = module.before(inputs.transpose(0, 1).contiguous())
        return module.after(torch.relu_(hidden)).transpose(0, 1)

    parts = {"before": nn.Linear(4, 5), "after": nn.Linear(5, 2)}
    return regression(Function(forward, parts), torch.randn(RECORDS, 3, 4))


@CATALOGUE.entry("records on the last axis")
def records_on_the_last_axis() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden = torch.tanh(module.weight @ inputs.t() + module.shift)
        return (module.second @ hidden).t()

    parts = {
        "weight": nn.Parameter(torch.randn(5, 4)),
        "shift": nn.Parameter(torch.zeros(5, 1)),
        "second": nn.Parameter(torch.randn(2, 5)),
    }
    return regression(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("copies of records, repeated")
def repeated_copies() -> Case:
    def forward(module: Any, inputs: Tensor, noise: Tensor) -> Output:
        copies = inputs.repeat_interleave(3, dim=0) + noise.flatten(0, 1)
        return module.layers(copies).unflatten(0, (len(inputs), 3)).mean(1)

    return classification(
        Function(forward, {"layers": _mlp()}), torch.randn(RECORDS, 4), torch.randn(RECORDS, 3, 4)
    )


@CATALOGUE.entry("two views joined in one batch")
def two_views_joined() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        first, second = batch
        left, right = model(torch.cat([first, second])).chunk(2)
        return 1.0 - F.cosine_similarity(left, right)

    return Case(_mlp(), loss, (torch.randn(RECORDS, 4), torch.randn(RECORDS, 4)))


@CATALOGUE.entry("double precision")
def double_precision() -> Case:
    model = _mlp().double()
    return classification(model, torch.randn(RECORDS, 4, dtype=torch.float64))


@CATALOGUE.entry("single precision with a part in double")
def mixed_precision() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden = torch.tanh(module.before(inputs))
        return module.after(hidden.double()).float()

    parts = {"before": nn.Linear(4, 5), "after": nn.Linear(5, 3).double()}
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("mask made of the inputs' type")
def mask_of_the_inputs_type() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        mask = torch.tensor([1, 0, 1, 1]).to(inputs)
        steps = inputs.new_tensor([0.5, 1.0, 1.5, 2.0])
        return module.layers(inputs * mask * steps)

    return classification(Function(forward, {"layers": _mlp()}), torch.randn(RECORDS, 4))


# --- dynamics and complex numbers ---


@CATALOGUE.entry("neural differential equation, Euler")
def euler_steps() -> Case:
    def forward(module: Any, state: Tensor) -> Output:
        for step in range(4):
            clock = torch.full((len(state), 1), step / 4)
            state = state + 0.25 * module.field(torch.cat([state, clock], 1))
        return module.head(state)

    parts = {"field": _mlp(5, 6, 4), "head": nn.Linear(4, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("neural differential equation, Runge-Kutta")
def runge_kutta_steps() -> Case:
    def forward(module: Any, state: Tensor) -> Output:
        for _ in range(2):
            first = module.field(state)
            second = module.field(state + 0.25 * first)
            third = module.field(state + 0.25 * second)
            fourth = module.field(state + 0.5 * third)
            state = state + (first + 2 * second + 2 * third + fourth) / 12
        return state

    return regression(Function(forward, {"field": _mlp(4, 5, 4)}), torch.randn(RECORDS, 4))


@CATALOGUE.entry("hamiltonian dynamics")
def hamiltonian_dynamics() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        start, end = batch
        state = start.detach().requires_grad_()
        for _ in range(2):
            (slope,) = torch.autograd.grad(model(state).sum(), state, create_graph=True)
            place, momentum = slope.chunk(2, 1)
            state = state + 0.1 * torch.cat([momentum, -place], 1)
        return (state - end).square().sum(1)

    return Case(_mlp(outputs=1), loss, (torch.randn(RECORDS, 4), torch.randn(RECORDS, 4)))


@CATALOGUE.entry("fixed point of a fixed number of rounds")
def fixed_point() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        state = torch.zeros(len(inputs), 5)
        with torch.no_grad():
            for _ in range(6):
                state = torch.tanh(module.inner(state) + module.outer(inputs))
        return module.head(torch.tanh(module.inner(state) + module.outer(inputs)))

    parts = {"inner": nn.Linear(5, 5), "outer": nn.Linear(4, 5), "head": nn.Linear(5, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("complex numbers between real layers")
def complex_between_real() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        pairs = torch.complex(module.real(inputs), module.imaginary(inputs))
        turned = pairs * torch.polar(torch.ones(5), torch.linspace(0.0, 3.0, 5))
        return module.head(torch.cat([turned.abs(), turned.angle()], 1))

    parts = {"real": nn.Linear(4, 5), "imaginary": nn.Linear(4, 5), "head": nn.Linear(10, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 4))


@CATALOGUE.entry("complex weights made of real ones")
def complex_weights() -> Case:
    def forward(module: Any, signal: Tensor) -> Output:
        weights = torch.view_as_complex(module.weights)
        spectrum = torch.fft.rfft(signal) * weights
        return torch.fft.irfft(spectrum, n=signal.shape[-1])

    model = Function(forward, {"weights": nn.Parameter(torch.randn(3, 5, 2))})
    return regression(model, torch.randn(RECORDS, 3, 8))


@CATALOGUE.entry("fourier neural operator")
def fourier_operator() -> Case:
    def forward(module: Any, signal: Tensor) -> Output:
        hidden = module.lift(signal)
        spectrum = torch.fft.rfft(hidden)[..., :3]
        weights = torch.complex(module.real, module.imaginary)
        mixed = torch.einsum("bik,iok->bok", spectrum, weights)
        smooth = torch.fft.irfft(mixed, n=signal.shape[-1])
        return module.lower(F.gelu(smooth + module.skip(hidden)))

    parts = {
        "lift": nn.Conv1d(1, 4, 1),
        "real": nn.Parameter(torch.randn(4, 4, 3)),
        "imaginary": nn.Parameter(torch.randn(4, 4, 3)),
        "skip": nn.Conv1d(4, 4, 1),
        "lower": nn.Conv1d(4, 1, 1),
    }
    return regression(Function(forward, parts), torch.randn(RECORDS, 1, 8))


@CATALOGUE.entry("spectrogram within the model")
def spectrogram() -> Case:
    def forward(module: Any, signal: Tensor) -> Output:
        window = torch.hann_window(8)
        waves = torch.stft(signal, 8, 4, window=window, return_complex=True).abs()
        return module.head(torch.log1p(module.mix(waves).square()).mean(2))

    parts = {"mix": nn.Conv1d(5, 4, 1), "head": nn.Linear(4, 3)}
    return classification(Function(forward, parts), torch.randn(RECORDS, 24))


@CATALOGUE.entry("linear algebra of a record's own matrix")
def own_linear_algebra() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        factors = module.maker(inputs).unflatten(1, (3, 3))
        covariance = factors @ factors.transpose(1, 2) + torch.eye(3)
        return torch.linalg.cholesky(covariance).flatten(1) + torch.logdet(covariance).unsqueeze(1)

    return regression(Function(forward, {"maker": nn.Linear(4, 9)}), torch.randn(RECORDS, 4))


@CATALOGUE.entry("learnt optimiser step with solve")
def ridge_head() -> Case:
    """A ridge regression on a record's own support, solved in closed form."""

    def forward(module: Any, support: Tensor, targets: Tensor, query: Tensor) -> Output:
        features = torch.tanh(module.body(support))
        gram = features.transpose(1, 2) @ features + module.ridge.exp() * torch.eye(4)
        weights = torch.linalg.solve(gram, features.transpose(1, 2) @ targets.unsqueeze(2))
        return (torch.tanh(module.body(query)) @ weights).squeeze(2)

    parts = {"body": nn.Linear(3, 4), "ridge": nn.Parameter(torch.zeros(()))}
    return Case(
        Function(forward, parts),
        regress,
        (torch.randn(RECORDS, 5, 3), torch.randn(RECORDS, 5), torch.randn(RECORDS, 2, 3)),
    )


# --- what cannot be served ---


def _complex_parameter() -> Case:
    def forward(module: Any, signal: Tensor) -> Output:
        return torch.fft.irfft(torch.fft.rfft(signal) * module.weights, n=8)

    weights = nn.Parameter(torch.randn(5, dtype=torch.complex64))
    return regression(Function(forward, {"weights": weights}), torch.randn(RECORDS, 3, 8))


CATALOGUE.add_refused("complex parameter", _complex_parameter)


# --- what takes long, and near relatives ---

CATALOGUE.leave_to_full_suite(
    "compiled module, autograd ahead of time",
    "neural differential equation, Runge-Kutta",
    "checkpointed attention",
    "gradient of an energy by torch.func",
)
