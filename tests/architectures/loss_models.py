"""Losses of many kinds, each with a model that needs no more than a few layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn

from .harness import (
    RECORDS,
    Case,
    Catalogue,
    Function,
    Output,
    classification,
    classify,
    padding_mask,
    random_labels,
    random_tokens,
    regress,
    regression,
)

CATALOGUE = Catalogue()


def _mlp(inputs: int = 4, hidden: int = 6, outputs: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def _points(width: int = 4) -> Tensor:
    return torch.randn(RECORDS, width)


def _loss(
    name: str, loss: Callable[[Tensor, Tensor], Tensor], target: Callable[[], Tensor]
) -> None:
    """Add a loss of three outputs and a target."""

    def of_batch(model: nn.Module, batch: Any) -> Output:
        inputs, targets = batch
        return loss(model(inputs), targets)

    CATALOGUE.add(name, lambda: Case(_mlp(), of_batch, (_points(), target())))


def _own_mean(losses: Tensor) -> Tensor:
    """The mean of a record's own numbers."""
    return losses.flatten(1).mean(1)


# --- losses of torch ---

_loss(
    "label smoothing",
    lambda out, y: F.cross_entropy(out, y, reduction="none", label_smoothing=0.1),
    lambda: random_labels(3),
)
_loss(
    "weights of classes",
    lambda out, y: F.cross_entropy(out, y, torch.tensor([1.0, 2.0, 0.5]), reduction="none"),
    lambda: random_labels(3),
)
_loss(
    "soft labels",
    lambda out, y: F.cross_entropy(out, y, reduction="none"),
    lambda: torch.rand(RECORDS, 3).softmax(1),
)
_loss(
    "several labels",
    lambda out, y: _own_mean(F.binary_cross_entropy_with_logits(out, y, reduction="none")),
    lambda: torch.randint(2, (RECORDS, 3)).float(),
)
_loss(
    "probabilities",
    lambda out, y: _own_mean(F.binary_cross_entropy(torch.sigmoid(out), y, reduction="none")),
    lambda: torch.randint(2, (RECORDS, 3)).float(),
)
_loss(
    "negative log likelihood",
    lambda out, y: F.nll_loss(out.log_softmax(1), y, reduction="none"),
    lambda: random_labels(3),
)
_loss("huber", lambda out, y: _own_mean(F.huber_loss(out, y, reduction="none")), lambda: _points(3))
_loss(
    "smooth l1",
    lambda out, y: _own_mean(F.smooth_l1_loss(out, y, reduction="none")),
    lambda: _points(3),
)
_loss(
    "kullback-leibler",
    lambda out, y: F.kl_div(out.log_softmax(1), y, reduction="none").sum(1),
    lambda: torch.rand(RECORDS, 3).softmax(1),
)
_loss(
    "multi-class margin",
    lambda out, y: F.multi_margin_loss(out, y, reduction="none"),
    lambda: random_labels(3),
)
_loss(
    "poisson counts",
    lambda out, y: _own_mean(F.poisson_nll_loss(out, y, full=True, reduction="none")),
    lambda: torch.randint(6, (RECORDS, 3)).float(),
)
_loss(
    "gaussian with a variance",
    lambda out, y: F.gaussian_nll_loss(out[:, :1], y, out[:, 1:2].exp(), reduction="none").squeeze(
        1
    ),
    lambda: _points(1),
)
_loss(
    "soft margin",
    lambda out, y: _own_mean(F.soft_margin_loss(out, y, reduction="none")),
    lambda: torch.randint(2, (RECORDS, 3)).float() * 2 - 1,
)
_loss(
    "cosine embedding",
    lambda out, y: F.cosine_embedding_loss(out, y, torch.ones(len(y)), reduction="none"),
    lambda: _points(3),
)
_loss(
    "multi-label margin",
    lambda out, y: F.multilabel_soft_margin_loss(out, y, reduction="none"),
    lambda: torch.randint(2, (RECORDS, 3)).float(),
)

# --- losses by hand ---


def _focal(outputs: Tensor, labels: Tensor) -> Tensor:
    losses = F.cross_entropy(outputs, labels, reduction="none")
    return (1 - torch.exp(-losses)).square() * losses


def _dice(outputs: Tensor, targets: Tensor) -> Tensor:
    shares = torch.sigmoid(outputs)
    return 1.0 - (2.0 * (shares * targets).sum(1) + 1.0) / (shares.sum(1) + targets.sum(1) + 1.0)


def _quantiles(outputs: Tensor, targets: Tensor) -> Tensor:
    errors = targets - outputs
    levels = torch.tensor([0.1, 0.5, 0.9])
    return torch.maximum(levels * errors, (levels - 1.0) * errors).mean(1)


def _ordinal(outputs: Tensor, labels: Tensor) -> Tensor:
    above = labels.unsqueeze(1) > torch.arange(3)
    return F.binary_cross_entropy_with_logits(outputs, above.float(), reduction="none").sum(1)


def _evidential(outputs: Tensor, labels: Tensor) -> Tensor:
    evidence = F.softplus(outputs) + 1.0
    chosen = evidence.gather(1, labels.unsqueeze(1)).squeeze(1)
    return torch.digamma(evidence.sum(1)) - torch.digamma(chosen)


def _censored(outputs: Tensor, targets: Tensor) -> Tensor:
    """A Weibull survival time, seen or not."""
    times, seen = targets[:, 0], targets[:, 1]
    shape, scale = F.softplus(outputs[:, 0]) + 0.5, F.softplus(outputs[:, 1]) + 0.5
    power = (times / scale) ** shape
    density = torch.log(shape / scale) + (shape - 1) * torch.log(times / scale)
    return power - seen * density


def _beta(outputs: Tensor, targets: Tensor) -> Tensor:
    first, second = F.softplus(outputs[:, 0]) + 0.1, F.softplus(outputs[:, 1]) + 0.1
    normal = torch.lgamma(first) + torch.lgamma(second) - torch.lgamma(first + second)
    share = targets.squeeze(1)
    return normal - (first - 1) * torch.log(share) - (second - 1) * torch.log1p(-share)


_loss("focal", _focal, lambda: random_labels(3))
_loss("dice", _dice, lambda: torch.randint(2, (RECORDS, 3)).float())
_loss("quantiles", _quantiles, lambda: _points(1))
_loss("ordinal", _ordinal, lambda: random_labels(4))
_loss("evidential", _evidential, lambda: random_labels(3))
_loss(
    "censored times",
    _censored,
    lambda: torch.stack([torch.rand(RECORDS) + 0.2, torch.tensor([1.0, 0.0, 1.0, 0.0])], 1),
)
_loss("beta likelihood", _beta, lambda: torch.rand(RECORDS, 1) * 0.8 + 0.1)


@CATALOGUE.entry("distribution of torch")
def normal_distribution() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        inputs, targets = batch
        mean, spread = model(inputs).chunk(2, 1)
        normal = torch.distributions.Normal(mean, F.softplus(spread) + 0.1, validate_args=False)
        return -normal.log_prob(targets).sum(1)  # type: ignore[no-untyped-call]

    return Case(_mlp(outputs=4), loss, (_points(), _points(2)))


@CATALOGUE.entry("distribution of torch that validates")
def validated_distribution() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        inputs, labels = batch
        chosen = torch.distributions.Categorical(logits=model(inputs), validate_args=True)
        return -chosen.log_prob(labels) - 0.1 * chosen.entropy()  # type: ignore[no-untyped-call]

    return Case(_mlp(), loss, (_points(), random_labels(3)))


@CATALOGUE.entry("connectionist temporal classification")
def temporal_classification() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        signal, targets, times, lengths = batch
        scores = model(signal).log_softmax(2).transpose(0, 1)
        return F.ctc_loss(scores, targets, times, lengths, reduction="none")

    def forward(module: Any, signal: Tensor) -> Output:
        return module.head(torch.tanh(module.filter(signal)).transpose(1, 2))

    parts = {"filter": nn.Conv1d(2, 5, 3, padding=1), "head": nn.Linear(5, 6)}
    batch = (
        torch.randn(RECORDS, 2, 9),
        torch.randint(1, 6, (RECORDS, 3)),
        torch.tensor([9, 8, 9, 7]),
        torch.tensor([3, 2, 3, 1]),
    )
    return Case(Function(forward, parts), loss, batch)


@CATALOGUE.entry("conditional random field")
def random_field() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        inputs, tags = batch
        scores, moves = model.score(inputs), model.moves
        path = scores.gather(2, tags.unsqueeze(2)).squeeze(2).sum(1)
        path = path + moves[tags[:, :-1], tags[:, 1:]].sum(1)
        total = scores[:, 0]
        for moment in range(1, scores.shape[1]):
            total = torch.logsumexp(total.unsqueeze(2) + moves, 1) + scores[:, moment]
        return torch.logsumexp(total, 1) - path

    parts = {"score": nn.Linear(4, 3), "moves": nn.Parameter(torch.randn(3, 3))}
    model = Function(lambda module, inputs: module.score(inputs), parts)
    return Case(model, loss, (torch.randn(RECORDS, 5, 4), torch.randint(3, (RECORDS, 5))))


@CATALOGUE.entry("tokens with ignored positions")
def ignored_positions() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        tokens, padding = batch
        targets = tokens.masked_fill(padding, -100)
        scores = model(tokens).transpose(1, 2)
        losses = F.cross_entropy(scores, targets, ignore_index=-100, reduction="none")
        return losses.sum(1) / (targets != -100).sum(1)

    model = nn.Sequential(nn.Embedding(9, 5), nn.Tanh(), nn.Linear(5, 9))
    return Case(model, loss, (random_tokens(9, 6), padding_mask(6)))


@CATALOGUE.entry("negatives of each record")
def own_negatives() -> Case:
    """Word vectors: a word, its neighbour, and negatives that come with the record."""

    def loss(model: Any, batch: Any) -> Output:
        words, neighbours, negatives = batch
        centre = model.inward(words)
        near = (centre * model.outward(neighbours)).sum(1)
        far = torch.einsum("bd,bnd->bn", centre, model.outward(negatives))
        return -F.logsigmoid(near) - F.logsigmoid(-far).sum(1)

    parts = {"inward": nn.Embedding(9, 4), "outward": nn.Embedding(9, 4)}
    model = Function(lambda module, words: module.inward(words), parts)
    batch = (random_labels(9), random_labels(9), torch.randint(9, (RECORDS, 3)))
    return Case(model, loss, batch)


@CATALOGUE.entry("sampled softmax over a table")
def sampled_softmax() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        inputs, candidates = batch
        scores = torch.einsum("bd,bnd->bn", model.body(inputs), model.items(candidates))
        return F.cross_entropy(scores, torch.zeros(len(inputs), dtype=torch.long), reduction="none")

    parts = {"body": _mlp(outputs=4), "items": nn.Embedding(20, 4)}
    model = Function(lambda module, inputs: module.body(inputs), parts)
    return Case(model, loss, (_points(), torch.randint(20, (RECORDS, 5))))


# --- several views of a record ---


@CATALOGUE.entry("siamese pair")
def siamese_pair() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        first, second, same = batch
        distance = (model(first) - model(second)).norm(dim=1)
        return same * distance.square() + (1 - same) * F.relu(1.0 - distance).square()

    return Case(_mlp(), loss, (_points(), _points(), torch.tensor([1.0, 0.0, 1.0, 0.0])))


@CATALOGUE.entry("triplet of own views")
def triplet_of_views() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        anchor, near, far = (model(view) for view in batch)
        return F.triplet_margin_loss(anchor, near, far, margin=2.0, reduction="none")

    return Case(_mlp(), loss, (_points(), _points(), _points()))


@CATALOGUE.entry("contrast within a record")
def contrast_within_a_record() -> Case:
    """Views of one record against each other; no other record is a negative."""

    def loss(model: nn.Module, batch: Any) -> Output:
        (views,) = batch
        codes = F.normalize(model(views), dim=2)
        scores = codes[:, :3] @ codes[:, 3:].transpose(1, 2) / 0.2
        labels = torch.arange(3).expand(len(views), 3)
        return F.cross_entropy(scores.transpose(1, 2), labels, reduction="none").mean(1)

    return Case(_mlp(), loss, (torch.randn(RECORDS, 6, 4),))


@CATALOGUE.entry("prediction of one view from the other")
def view_prediction() -> Case:
    """BYOL: the target is a second pass without gradients."""

    def loss(model: Any, batch: Any) -> Output:
        first, second = batch
        with torch.no_grad():
            target = model.encoder(second)
        return 2.0 - 2.0 * F.cosine_similarity(model.predictor(model.encoder(first)), target)

    parts = {"encoder": _mlp(), "predictor": _mlp(3, 5, 3)}
    model = Function(lambda module, inputs: module.encoder(inputs), parts)
    return Case(model, loss, (_points(), _points()))


@CATALOGUE.entry("distillation from a frozen teacher")
def distillation() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        (inputs,) = batch
        with torch.no_grad():
            target = (model.teacher(inputs) / 2.0).softmax(1)
        student = (model.student(inputs) / 2.0).log_softmax(1)
        return F.kl_div(student, target, reduction="none").sum(1)

    parts = {"student": _mlp(), "teacher": _mlp().requires_grad_(False)}
    model = Function(lambda module, inputs: module.student(inputs), parts)
    return Case(model, loss, (_points(),))


@CATALOGUE.entry("preference of one answer over another")
def preference() -> Case:
    """DPO with a frozen reference."""

    def likelihood(layers: Any, tokens: Tensor) -> Output:
        scores = layers(tokens[:, :-1]).log_softmax(2)
        return scores.gather(2, tokens[:, 1:].unsqueeze(2)).squeeze(2).sum(1)

    def loss(model: Any, batch: Any) -> Output:
        better, worse = batch
        margin = likelihood(model.policy, better) - likelihood(model.policy, worse)
        with torch.no_grad():
            reference = likelihood(model.reference, better) - likelihood(model.reference, worse)
        return -F.logsigmoid(0.5 * (margin - reference))

    def policy() -> nn.Sequential:
        return nn.Sequential(nn.Embedding(9, 5), nn.Tanh(), nn.Linear(5, 9))

    parts = {"policy": policy(), "reference": policy().requires_grad_(False)}
    model = Function(lambda module, tokens: module.policy(tokens), parts)
    return Case(model, loss, (random_tokens(9, 6), random_tokens(9, 6)))


@CATALOGUE.entry("policy gradient with a critic")
def policy_gradient() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        states, actions, returns = batch
        values = model.critic(states).squeeze(1)
        advantage = (returns - values).detach()
        chosen = model.actor(states).log_softmax(1).gather(1, actions.unsqueeze(1)).squeeze(1)
        return -chosen * advantage + 0.5 * (returns - values).square()

    parts = {"actor": _mlp(), "critic": _mlp(outputs=1)}
    model = Function(lambda module, states: module.actor(states), parts)
    return Case(model, loss, (_points(), random_labels(3), torch.randn(RECORDS)))


@CATALOGUE.entry("temporal difference of two critics")
def temporal_difference() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        states, actions, rewards, following = batch
        with torch.no_grad():
            best = torch.minimum(model.first(following), model.second(following)).amax(1)
        target = rewards + 0.9 * best
        chosen = [
            critic(states).gather(1, actions.unsqueeze(1)).squeeze(1)
            for critic in (model.first, model.second)
        ]
        return sum((value - target).square() for value in chosen)

    parts = {"first": _mlp(), "second": _mlp()}
    model = Function(lambda module, states: module.first(states), parts)
    return Case(model, loss, (_points(), random_labels(3), torch.randn(RECORDS), _points()))


# --- batches and results of other shapes ---


@CATALOGUE.entry("several tasks from a dict")
def several_tasks() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        features = model.body(batch["inputs"]["numbers"]) + model.words(batch["inputs"]["word"])
        price = (model.price(features).squeeze(1) - batch["targets"]["price"]).square()
        kind = F.cross_entropy(model.kind(features), batch["targets"]["kind"], reduction="none")
        return torch.exp(-model.doubt) * price + kind + model.doubt

    parts = {
        "body": nn.Sequential(nn.Linear(4, 6), nn.ReLU()),
        "words": nn.Embedding(9, 6),
        "price": nn.Linear(6, 1),
        "kind": nn.Linear(6, 3),
        "doubt": nn.Parameter(torch.zeros(())),
    }
    model = Function(lambda module, inputs: module.body(inputs), parts)
    batch = {
        "inputs": {"numbers": _points(), "word": random_labels(9)},
        "targets": {"price": torch.randn(RECORDS), "kind": random_labels(3)},
    }
    return Case(model, loss, batch)


@CATALOGUE.entry("a list of inputs")
def list_of_inputs() -> Case:
    def loss(model: Any, batch: Any) -> Output:
        *inputs, labels = batch
        hidden = sum(layer(values) for layer, values in zip(model.layers, inputs, strict=True))
        return F.cross_entropy(hidden, labels, reduction="none")

    layers = nn.ModuleList(nn.Linear(width, 3) for width in (2, 3, 4))
    model = Function(lambda module, inputs: module.layers[0](inputs), {"layers": layers})
    return Case(model, loss, [_points(2), _points(3), _points(4), random_labels(3)])


@CATALOGUE.entry("losses with statistics")
def losses_with_statistics() -> Case:
    def loss(model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        inputs, labels = batch
        scores = model(inputs)
        right = (scores.argmax(1) == labels).float()
        shares = scores.softmax(1)
        losses = F.cross_entropy(scores, labels, reduction="none")
        return losses, {"metric/right": right, "metric/shares": shares}

    batch = (_points(), random_labels(3))
    return Case(_mlp(), loss, batch, {"metric/right": 1, "metric/shares": 3})


@CATALOGUE.entry("weights of records")
def weights_of_records() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        inputs, labels, weights = batch
        return weights * F.cross_entropy(model(inputs), labels, reduction="none")

    return Case(_mlp(), loss, (_points(), random_labels(3), torch.rand(RECORDS) + 0.5))


@CATALOGUE.entry("penalty of the weights in every loss")
def weight_penalty() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        penalty = sum(weight.square().sum() for weight in model.parameters())
        return classify(model, batch) + 0.1 * penalty

    return Case(_mlp(), loss, (_points(), random_labels(3)))


@CATALOGUE.entry("frozen body, trained head")
def frozen_body() -> Case:
    model = nn.Sequential(_mlp(4, 6, 5).requires_grad_(False), nn.ReLU(), nn.Linear(5, 3))
    return classification(model, _points())


@CATALOGUE.entry("biases alone")
def biases_alone() -> Case:
    model = _mlp()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    return classification(model, _points())


@CATALOGUE.entry("an unused layer")
def unused_layer() -> Case:
    parts = {"layers": _mlp(), "unused": nn.Linear(3, 3)}
    return classification(Function(lambda module, inputs: module.layers(inputs), parts), _points())


@CATALOGUE.entry("boolean rows of one's own")
def boolean_rows() -> Case:
    """Positions that are there are picked out by a mask, and summed up for their record."""

    def forward(module: Any, inputs: Tensor, padding: Tensor) -> Output:
        present = module.layer(inputs[~padding])
        owners = torch.arange(len(inputs)).unsqueeze(1).expand_as(padding)[~padding]
        return torch.zeros(len(inputs), 3).index_add(0, owners, torch.tanh(present))

    model = Function(forward, {"layer": nn.Linear(4, 3)})
    return classification(model, torch.randn(RECORDS, 5, 4), padding_mask(5))


@CATALOGUE.entry("trimmed to the longest record")
def trimmed_to_the_longest() -> Case:
    def forward(module: Any, inputs: Tensor, padding: Tensor) -> Output:
        longest = int((~padding).sum(1).max())
        outputs = torch.tanh(module.layer(inputs[:, :longest]))
        return outputs.masked_fill(padding[:, :longest].unsqueeze(2), 0.0).sum(1)

    model = Function(forward, {"layer": nn.Linear(4, 3)})
    return classification(model, torch.randn(RECORDS, 5, 4), padding_mask(5))


@CATALOGUE.entry("a branch on a record's value")
def branch_on_a_value() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        rows = [module.left(row) if row[0] > 0 else module.right(row) for row in inputs]
        return torch.stack(rows)

    parts = {"left": nn.Linear(4, 3), "right": nn.Linear(4, 3)}
    return classification(Function(forward, parts), _points())


# --- losses in which records meet ---


def _in_batch_contrast() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        first, second = (F.normalize(model(view), dim=1) for view in batch)
        return F.cross_entropy(first @ second.t() / 0.5, torch.arange(len(first)), reduction="none")

    # A record by itself has no negatives and so no gradient: another term gives it one.
    def with_own_term(model: nn.Module, batch: Any) -> Output:
        return loss(model, batch) + model(batch[0]).square().mean(1)

    return Case(_mlp(), with_own_term, (_points(), _points()))


def _centred_outputs() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        hidden = torch.tanh(module.before(inputs))
        return module.after(hidden - 0.5 * hidden.mean(0))

    parts = {"before": nn.Linear(4, 6), "after": nn.Linear(6, 3)}
    return regression(Function(forward, parts), _points())


def _attention_across_records() -> Case:
    def forward(module: Any, inputs: Tensor) -> Output:
        query, key, value = module.qkv(inputs).chunk(3, 1)
        return (query @ key.t()).softmax(1) @ value

    return regression(Function(forward, {"qkv": nn.Linear(4, 12)}), _points())


def _proportional_hazards() -> Case:
    """Cox: a record's risk against all that are still at risk."""

    def loss(model: nn.Module, batch: Any) -> Output:
        inputs, times = batch
        risks = model(inputs).squeeze(1)
        at_risk = times.unsqueeze(0) >= times.unsqueeze(1)
        totals = torch.logsumexp(risks.masked_fill(~at_risk, float("-inf")), 1)
        return totals - risks + 0.1 * risks.square()

    return Case(_mlp(outputs=1), loss, (_points(), torch.rand(RECORDS)))


def _hard_negatives() -> Case:
    def loss(model: nn.Module, batch: Any) -> Output:
        inputs, labels = batch
        losses = F.cross_entropy(model(inputs), labels, reduction="none")
        return losses * (losses.detach() >= losses.detach().median()).float()

    return Case(_mlp(), loss, (_points(), random_labels(3)))


CATALOGUE.add_coupled("contrast with other records", _in_batch_contrast)
CATALOGUE.add_coupled("outputs centred over the batch", _centred_outputs)
CATALOGUE.add_coupled("attention across records", _attention_across_records)
CATALOGUE.add_coupled("proportional hazards", _proportional_hazards)
CATALOGUE.add_coupled("the hardest half of a batch", _hard_negatives)


# --- state of records ---


def _batch_norm() -> Case:
    # A record by itself has no variance; more than one position makes the reference possible.
    return regression(
        nn.Sequential(nn.Conv1d(4, 5, 1), nn.BatchNorm1d(5), nn.Tanh()), torch.randn(RECORDS, 4, 6)
    )


def _running_instance_norm() -> Case:
    layers = [nn.Conv1d(4, 5, 1), nn.InstanceNorm1d(5, track_running_stats=True), nn.Tanh()]
    return regression(nn.Sequential(*layers), torch.randn(RECORDS, 4, 6))


def _momentum_of_outputs() -> Case:
    """Centres of the outputs so far are kept, as against collapse."""

    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = _mlp()
            self.register_buffer("centre", torch.zeros(3))

        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.layers(inputs)
            centre = self.get_buffer("centre")
            centre.mul_(0.9).add_(0.1 * outputs.detach().mean(0))
            return outputs - centre

    return Case(Centred(), regress, (_points(),))


def _memory_bank() -> Case:
    """Outputs of earlier batches are negatives of this one."""
    bank: list[Tensor] = []

    def loss(model: nn.Module, batch: Any) -> Output:
        (inputs,) = batch
        outputs: Tensor = model(inputs)
        losses = outputs.square().mean(1)
        if bank:
            losses = losses + (outputs @ bank[-1].t()).mean(1)
        bank.append(outputs.detach())
        return losses

    return Case(_mlp(), loss, (_points(),))


CATALOGUE.add_refused("batch norm", _batch_norm)
CATALOGUE.add_refused("instance norm with running statistics", _running_instance_norm)
CATALOGUE.add_refused("running centre of outputs", _momentum_of_outputs)
CATALOGUE.add_refused("memory bank of earlier batches", _memory_bank)


# --- what takes long, and near relatives ---

CATALOGUE.leave_to_full_suite(
    "smooth l1",
    "probabilities",
    "soft margin",
    "multi-label margin",
    "several labels",
    "kullback-leibler",
    "cosine embedding",
    "ordinal",
    "dice",
)
