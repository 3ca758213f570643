"""Train a small model privately, and compare what is released with a loop over single records.

A private run on the whole data set with hardly any noise releases the sum of the records' clipped
gradients. torch gives the gradient of each record by itself: a batch of one. Both are compared
twice: with a clip norm that no record reaches, in certified numerics, and with one that most
records exceed, in idealised numerics. (Certified sums clip to a little less than the clip norm, and
further where a record's positions cancel, so that they could not be compared closely.)
"""

from __future__ import annotations

import statistics as numbers
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.errors import DiscreetError
from discreet.randomness import Source
from discreet.training import PrivateRun

RECORDS = 4
"""Records of every batch."""

KEY = bytes(range(32))
SEED = 7
STEPS = 2  # the second step goes the way of all later ones
NOISE_MULTIPLIER = 1e-7

TOLERANCE = 3e-4
"""Largest distance of the sums, relative to the sum of the records' norms: rounding of float32."""

Output: TypeAlias = Any
"""A tensor that a module gave: torch does not say that it is one."""

Loss: TypeAlias = Callable[[Any, Any], Output]
"""(model, batch) to one loss for each record, or to losses and statistics."""


@dataclass(frozen=True)
class Case:
    """A model, its loss for each record, and a batch of `RECORDS` records.

    Args:
        model: with at least one trained parameter; nothing in it is random in a pass.
        loss: (model, batch) to one loss for each record, or to losses and statistics.
        batch: tensors with one row for each record, in any nesting of tuples, lists and dicts.
        statistics: size of each statistic that the loss returns, by name.
    """

    model: nn.Module
    loss: Loss
    batch: Any
    statistics: Mapping[str, int] = field(default_factory=dict)


Factory: TypeAlias = Callable[[], Case]


class Outcome(StrEnum):
    """How a model fared."""

    RIGHT = "right"
    """Sums are those of single records."""
    WRONG = "wrong"
    """Sums are others."""
    REFUSED = "refused"
    """The library raised an error of its own."""
    RAISED = "raised"
    """Something else was raised."""
    ABSENT = "absent"
    """The libraries that are installed have no such model."""


class Absent(Exception):
    """The libraries that are installed have no such model."""


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue.

    Args:
        name: that nobody else has.
        factory: makes the case; torch is seeded before it is called.
        acceptable: outcomes that are no fault.
        is_slow: whether only the full suite has time for it: it takes more than 1.5 seconds, or
            it is a near relative of another model.
    """

    name: str
    factory: Factory
    acceptable: frozenset[Outcome] = frozenset({Outcome.RIGHT})
    is_slow: bool = False


class Catalogue:
    """The models of one file, in the order in which they were added."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def add(self, name: str, factory: Factory) -> None:
        """Add a model that must be right."""
        self._insert(Entry(name, factory))

    def add_coupled(self, name: str, factory: Factory) -> None:
        """Add a model in which records meet: refused, or every record computed by itself."""
        self._insert(Entry(name, factory, frozenset({Outcome.REFUSED, Outcome.RIGHT})))

    def add_refused(self, name: str, factory: Factory) -> None:
        """Add a model that must be refused: it keeps state from records, or cannot be clipped."""
        self._insert(Entry(name, factory, frozenset({Outcome.REFUSED})))

    def entry(self, name: str) -> Callable[[Factory], Factory]:
        """Add the factory that is decorated; it must be right."""

        def added(factory: Factory) -> Factory:
            self.add(name, factory)
            return factory

        return added

    def leave_to_full_suite(self, *names: str) -> None:
        """Mark models that are slow, or near relatives of others."""
        for name in names:
            self._entries[name] = replace(self._entries[name], is_slow=True)

    def leave_all_to_full_suite_but(self, *names: str) -> None:
        """Mark all other models, where most are near relatives."""
        self.leave_to_full_suite(*(self._entries.keys() - {*names}))

    def _insert(self, entry: Entry) -> None:
        if entry.name in self._entries:
            raise ValueError(f"two models are called {entry.name!r}")
        self._entries[entry.name] = entry

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True)
class Verdict:
    """What became of a model.

    Args:
        outcome: of both comparisons.
        is_fast: whether all records went in one pass; None where nothing was computed.
        reason: why records went one by one, why it was refused, or what was raised.
        distance: the largest, in units of its tolerance.
        seconds: of the processor, the reference included.
    """

    outcome: Outcome
    is_fast: bool | None
    reason: str
    distance: float
    seconds: float

    @property
    def route(self) -> str:
        """One word for how gradients were computed."""
        if self.is_fast is None:
            return "-"
        return "fast" if self.is_fast else "alone"


# --- losses and batches that many models share ---


def regress(model: nn.Module, batch: Any) -> Tensor:
    """Mean squared distance of a record's outputs from public numbers between -1 and 1."""
    outputs: Tensor = model(*batch)
    outputs = outputs.flatten(1)
    targets = torch.linspace(-1.0, 1.0, outputs.shape[1], dtype=outputs.dtype)
    return (outputs - targets).square().mean(1)


def classify(model: nn.Module, batch: Any) -> Tensor:
    """Cross entropy of the last entry of the batch."""
    *inputs, classes = batch
    return F.cross_entropy(model(*inputs), classes, reduction="none")


def predict_tokens(model: nn.Module, batch: Any) -> Tensor:
    """Cross entropy of the tokens themselves, averaged over the positions of a record."""
    (tokens,) = batch
    outputs: Tensor = model(tokens)
    return F.cross_entropy(outputs.transpose(1, 2), tokens, reduction="none").mean(1)


def random_labels(classes: int) -> Tensor:
    """One class for each record."""
    return torch.randint(classes, (RECORDS,))


def random_tokens(words: int, length: int) -> Tensor:
    """Token ids, none of them 0, which may be padding."""
    return torch.randint(1, words, (RECORDS, length))


def padding_mask(length: int) -> Tensor:
    """True where records 1 and 2 have no token: at the end."""
    mask = torch.zeros(RECORDS, length, dtype=torch.bool)
    mask[1, length // 2 + 1 :] = True
    mask[2, length - 1 :] = True
    return mask


def regression(model: nn.Module, *inputs: Tensor) -> Case:
    """A case whose model maps the inputs to numbers of any shape."""
    return Case(model, regress, inputs)


def classification(model: nn.Module, *inputs: Tensor, classes: int = 3) -> Case:
    """A case whose model maps the inputs to scores of classes."""
    return Case(model, classify, (*inputs, random_labels(classes)))


class Function(nn.Module):
    """Layers and weights by name, and a function of this module and of its inputs."""

    def __init__(self, function: Callable[..., Output], parts: Mapping[str, Any]) -> None:
        super().__init__()
        self._function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any) -> Output:
        return self._function(self, *inputs)


# --- single records ---


def rows(batch: Any, index: slice | Tensor) -> Any:
    """The rows of a batch that an index names."""
    if isinstance(batch, Tensor):
        return batch[index]
    if isinstance(batch, dict):
        return {name: rows(part, index) for name, part in batch.items()}
    return type(batch)(rows(part, index) for part in batch)


def data_set(batch: Any) -> tuple[Any, Callable[[Sequence[Any]], Any] | None]:
    """The records of a batch as a data set, and what joins its entries, if that is needed."""
    if isinstance(batch, tuple):
        return TensorDataset(*batch), None
    return Records(batch), collate


class Records:
    """A batch of any nesting as a data set: one entry for each record."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> Any:
        return rows(self._batch, torch.tensor([int(index)]))


def collate(entries: Sequence[Any]) -> Any:
    """Join entries of `Records` to a batch."""
    first = entries[0]
    if isinstance(first, Tensor):
        return torch.cat(list(entries))
    if isinstance(first, dict):
        return {name: collate([entry[name] for entry in entries]) for name in first}
    return type(first)(collate(parts) for parts in zip(*entries, strict=True))


@dataclass(frozen=True)
class Reference:
    """Gradients and statistics of every record by itself, (records, numbers) in float64 each."""

    gradients: Tensor
    statistics: Mapping[str, Tensor]

    @classmethod
    def of(cls, case: Case) -> Reference:
        """Ask torch, with batches of one record."""
        gradients, statistics = [], []
        for index in range(RECORDS):
            result = case.loss(case.model, rows(case.batch, slice(index, index + 1)))
            losses, returned = result if isinstance(result, tuple) else (result, {})
            gradients.append(_flat_gradient(losses, case.model))
            statistics.append(returned)

        together = {
            name: torch.cat([returned[name] for returned in statistics]).detach().double()
            for name in case.statistics
        }
        return cls(torch.stack(gradients), together)

    @property
    def norms(self) -> list[float]:
        """The norm of each record's gradient, over all parameters."""
        return [float(norm) for norm in self.gradients.norm(dim=1)]

    def clipped_sum(self, clip_norm: float) -> Tensor:
        """The sum of the records' gradients, each scaled down to the clip norm if longer."""
        weights = torch.tensor([min(1.0, clip_norm / max(norm, 1e-300)) for norm in self.norms])
        return weights.double() @ self.gradients


def trained(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are trained; one that is shared once."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _flat_gradient(losses: Tensor, model: nn.Module) -> Tensor:
    parameters = trained(model)
    gradients = torch.autograd.grad(losses.sum(), parameters, allow_unused=True)
    parts = []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        values = torch.zeros_like(parameter) if gradient is None else gradient
        values = values.to_dense() if values.is_sparse else values
        parts.append(values.detach().double().flatten())
    return torch.cat(parts)


# --- private runs ---


def loop_reason(run: PrivateRun) -> str | None:
    """Return why records are computed one by one; None if they are not.

    Only this function knows the name: `one_by_one` was `loop_because` before the rebuild.
    """
    engine: Any = run.engine
    for name in ("one_by_one", "loop_because"):
        if name in dir(engine):
            reason: str | None = getattr(engine, name)
            return reason
    raise AttributeError("the engine does not say how it computes")


@dataclass(frozen=True)
class Release:
    """What a private run gave out in its steps, times the divisor: sums with hardly any noise."""

    gradients: list[Tensor]
    statistics: list[Mapping[str, Tensor]]
    loop_reason: str | None


def released(case: Case, clip_norm: float, numerics: dp.Numerics) -> Release:
    """Train privately on all records, `STEPS` times at the same parameters."""
    mechanisms: dict[str, Any] = {"grad/*": dp.Gaussian(clip_norm, NOISE_MULTIPLIER)}
    if case.statistics:
        mechanisms["metric/*"] = dp.Gaussian(100.0, NOISE_MULTIPLIER)
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Everything(), records=RECORDS, steps=STEPS),
        mechanism=dp.Groups(mechanisms),
        numerics=numerics,
    )
    run = PrivateRun(
        case.model,
        plan,
        ledger=dp.Ledger.in_memory(),
        statistics=case.statistics,
        source=Source.unsafe_test_key(KEY),
    )
    gradients: list[Tensor] = []
    statistics: list[Mapping[str, Tensor]] = []
    records, join = data_set(case.batch)
    for batch in run.batches(records, join, workers=0, progress=False):
        for parameter in trained(case.model):
            parameter.grad = None
        release = run.backward(case.loss, batch)
        gradients.append(_flat_release(case.model) * plan.expected_batch_size)
        statistics.append(
            {name: torch.as_tensor(release[name]).double() for name in case.statistics}
        )
    return Release(gradients, statistics, loop_reason(run))


def _flat_release(model: nn.Module) -> Tensor:
    parts = []
    for parameter in trained(model):
        if parameter.grad is None:
            raise AssertionError("a trained parameter has no gradient")
        parts.append(parameter.grad.double().flatten())
    return torch.cat(parts)


# --- verdicts ---


def find(library: Any, name: str) -> Any:
    """What a library calls by this name.

    Raises:
        Absent: this version of it has none.
    """
    try:
        return getattr(library, name)
    except AttributeError as error:
        raise Absent(f"{library.__name__} has no {name}") from error


def build(entry: Entry) -> Case:
    """Make the case of an entry, the same each time."""
    torch.manual_seed(SEED)
    return entry.factory()


def judge(entry: Entry) -> Verdict:
    """Train a model of the catalogue twice, and compare with single records.

    Warnings of other libraries are theirs, and not judged. What the reference raises is a fault of
    the catalogue, and raised.
    """
    start = time.process_time()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            reference = Reference.of(build(entry))
        except Absent as error:
            return _failure(Outcome.ABSENT, error)
        try:
            verdict = _compare(entry, reference)
        except DiscreetError as error:
            verdict = _failure(Outcome.REFUSED, error)
        except Exception as error:  # noqa: BLE001  (what else is raised is a verdict)
            verdict = _failure(Outcome.RAISED, error)
    return replace(verdict, seconds=time.process_time() - start)


def _failure(outcome: Outcome, error: Exception) -> Verdict:
    return Verdict(outcome, None, f"{type(error).__name__}: {error}", 0.0, 0.0)


def _compare(entry: Entry, reference: Reference) -> Verdict:
    norms = [norm for norm in reference.norms if norm > 0.0]
    comparisons = [
        (4.0 * max(norms), dp.Numerics.CERTIFIED),
        (0.9 * numbers.median_low(norms), dp.Numerics.IDEALISED),
    ]
    distances: list[float] = []
    reasons: list[str] = []
    for clip_norm, numerics in comparisons:
        release = released(build(entry), clip_norm, numerics)
        distances += _distances(release, reference, clip_norm)
        reasons += [release.loop_reason] if release.loop_reason is not None else []

    # A distance that is not a number is no agreement.
    agree = all(distance <= TOLERANCE for distance in distances)
    return Verdict(
        outcome=Outcome.RIGHT if agree else Outcome.WRONG,
        is_fast=not reasons,
        reason=reasons[0] if reasons else "",
        distance=max(distances) / TOLERANCE,
        seconds=0.0,
    )


def _distances(release: Release, reference: Reference, clip_norm: float) -> Iterator[float]:
    expected = reference.clipped_sum(clip_norm)
    scale = sum(min(norm, clip_norm) for norm in reference.norms)
    for gradients in release.gradients:
        yield float((gradients - expected).norm()) / scale
    for statistics in release.statistics:
        for name, values in reference.statistics.items():
            total = values.sum(0).flatten()
            yield float((statistics[name].flatten() - total).norm()) / RECORDS
