"""Runs of the public interface on two neighbouring data sets, and what may be said of their sums.

Full batches, next to no noise, the same test key, and parameters that never change: what is left
of the difference between two runs is what the special record did. It may move the sums by one clip
norm in every step, whatever the loss is. A typed refusal is as good.
"""

from __future__ import annotations

import math
import tempfile
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

import discreet as dp
from discreet.errors import DiscreetError
from discreet.randomness import Source
from discreet.training import PrivateRun

from .scenes import Case, Clock, Setup, Timing

KEY = bytes(range(32))
CLIP_NORM = 1.0
NOISE_MULTIPLIER = 1e-9
TOLERANCE = 1e-3
_SEED = 7
_DEEPEST = 6
_FILE = "checkpoint"
_OWN = frozenset(vars(nn.Module()))  # hooks, which have numbers of their own; parameters; buffers


# --- the run ---


def begin(
    model: nn.Module, *, records: int, steps: int, source: Source | None = None
) -> PrivateRun:
    """A run of full batches with hardly any noise, on a ledger of its own."""
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Everything(), records=records, steps=steps),
        mechanism=dp.Groups({"grad/*": dp.Gaussian(CLIP_NORM, NOISE_MULTIPLIER)}),
        adjacency=dp.Adjacency.ADD_OR_REMOVE,
    )
    own = Source.unsafe_test_key(KEY) if source is None else source
    return PrivateRun(model, plan, ledger=dp.Ledger.in_memory(), source=own)


def way_of(run: PrivateRun) -> str:
    """How the last step was computed: "fast", or every record "alone", as the engine says."""
    reasons = [getattr(run.engine, name, None) for name in ("one_by_one", "loop_because")]
    return "fast" if reasons == [None, None] else "alone"


def charged(run: PrivateRun) -> bool:
    """Whether the ledger was charged with anything."""
    return any(True for _ in run.ledger.charges())


def summed(model: nn.Module, divisor: float) -> Tensor:
    """The released sums of all trained parameters, one after the other."""
    parts = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parts.append(gradient.detach().flatten().double() * divisor)
    return torch.cat(parts)


@dataclass
class Outcome:
    """What one run released, how it was computed, and how it ended."""

    sums: list[Tensor] = field(default_factory=list)
    ways: list[str] = field(default_factory=list)
    error: Exception | None = None
    charged: bool = False
    state: dict[str, object] = field(default_factory=dict)

    @property
    def refused(self) -> bool:
        return isinstance(self.error, DiscreetError)


def execute(case: Case, timing: Timing, *, special: bool) -> Outcome:
    """Run a case to its end, or to its first exception."""
    outcome = Outcome()
    torch.default_generator.manual_seed(_SEED)
    scene = case.scene(timing, special=special)
    setup = case.make(scene)
    before = _state_of(setup.model)
    run: PrivateRun | None = None
    try:
        run = begin(setup.model, records=len(setup.dataset), steps=timing.steps)
        _loop(run, setup, scene.clock, outcome)
    except Exception as error:  # noqa: BLE001  (whatever ended the run is what is judged)
        outcome.error = error
    outcome.charged = run is not None and charged(run)
    after = _state_of(setup.model)
    outcome.state = {name: value for name, value in after.items() if before.get(name) != value}
    if run is not None and case.kind == "state" and outcome.error is None:
        outcome.state[_FILE] = _checkpoint(run)
    return outcome


def _loop(run: PrivateRun, setup: Setup, clock: Clock, outcome: Outcome) -> None:
    for batch in run.batches(setup.dataset, setup.collate):
        setup.model.zero_grad()
        if setup.before is not None:
            setup.before(setup.model, batch)
        run.backward(setup.loss, batch)
        if setup.after is not None:
            setup.after(setup.model, batch)
        outcome.sums.append(summed(setup.model, run.plan.expected_batch_size))
        outcome.ways.append(way_of(run))
        clock.step += 1  # before the next batch is fetched


# --- what is left in the model ---


def _state_of(model: nn.Module) -> dict[str, object]:
    """Everything in a model but released gradients and what every module has."""
    state: dict[str, object] = {"state_dict": plain(model.state_dict())}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in _OWN:
                state[f"attribute {path}.{name}"] = plain(value)
        for name, buffer in module.named_buffers(recurse=False):
            state[f"buffer {path}.{name}"] = plain(buffer)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            state[f"gradient of frozen {name}"] = plain(parameter.grad)
    return state


def _checkpoint(run: PrivateRun) -> object:
    """The objects in a checkpoint of this run, without what tells of the plan or the ledger."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "checkpoint"
        run.save(place)
        content = torch.load(place, map_location="cpu", weights_only=True)
    return plain(content["objects"])


def plain(value: Any, depth: int = 0) -> object:
    """The same as values that can be compared: the bits of tensors, and what containers hold."""
    if isinstance(value, Tensor | np.ndarray):
        array = value.detach().numpy() if isinstance(value, Tensor) else value
        return (str(array.dtype), array.shape, array.tobytes())
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return value
    return type(value).__name__ if depth == _DEEPEST else _parts(value, depth + 1)


def _parts(value: Any, depth: int) -> object:
    """What a container or an object holds."""
    if isinstance(value, Mapping):
        return {str(name): plain(part, depth) for name, part in value.items()}
    if isinstance(value, list | tuple | deque):
        return [plain(part, depth) for part in value]
    if isinstance(value, set | frozenset):
        return sorted(str(plain(part, depth)) for part in value)
    if callable(value) or not hasattr(value, "__dict__"):
        return type(value).__name__
    return {name: plain(part, depth) for name, part in vars(value).items()}


# --- the verdict ---


@dataclass(frozen=True)
class Verdict:
    """What two runs of a case came to.

    Args:
        case: that was run.
        timing: of its coupling.
        way: how the last step with the special record was computed; empty if there was none.
        moved: the largest difference of the sums of a step, in clip norms.
        kept: names of what the two runs left in the model and that differs.
        errors: by which the runs ended, without and with the special record.
    """

    case: Case
    timing: Timing
    way: str
    moved: float
    kept: tuple[str, ...]
    errors: tuple[Exception | None, Exception | None]

    @property
    def refused(self) -> bool:
        return any(isinstance(error, DiscreetError) for error in self.errors)

    @property
    def one_sided(self) -> bool:
        """Whether one run was refused and the other was not: then the refusal tells of a record."""
        left, right = (type(error) for error in self.errors)
        return self.refused and left is not right

    @property
    def foreign(self) -> tuple[Exception, ...]:
        """Exceptions that are neither the library's nor declared by the case."""
        allowed: tuple[type[Exception], ...] = (DiscreetError, *self.case.raises)
        return tuple(error for error in self.errors if error and not isinstance(error, allowed))

    @property
    def far(self) -> bool:
        """Whether the sums moved further than one record may move them."""
        in_turn = self.case.drawn_in_turn and self.way == "alone"
        return not in_turn and self.moved > self.case.relation.value + TOLERANCE

    @property
    def safe(self) -> bool:
        leaves_nothing = self.refused or not self.kept
        serves = not (self.case.served and self.refused)
        return not self.far and not self.foreign and leaves_nothing and serves

    @property
    def words(self) -> str:
        """Such as "alone 0.99 C", or "refused by CoupledRecords"."""
        parts = [f"{self.way} {self.moved:.2f} C"] if self.way else []
        names = [type(error).__name__ if error else "nothing" for error in self.errors]
        if any(self.errors):
            how = "refused" if self.refused and not self.foreign else "RAISED"
            one_sided = names[0] != names[1]
            parts.append(f"{how} by {'/'.join(names) if one_sided else names[0]}")
        if self.kept:
            parts.append(f"{'left' if self.refused else 'KEPT'} {', '.join(self.kept)}")
        return "; ".join(parts) + ("" if self.safe else "  UNSAFE")


def judge(case: Case, timing: Timing) -> Verdict:
    """Run a case without and with its special record, and compare."""
    without, with_it = (execute(case, timing, special=special) for special in (False, True))
    moved = furthest(without.sums, with_it.sums)
    kept = _different(without.state, with_it.state)
    way = with_it.ways[-1] if with_it.ways else ""
    errors = (without.error, with_it.error)
    return Verdict(case, timing, way, moved, kept, errors)


def _different(state: dict[str, object], other: dict[str, object]) -> tuple[str, ...]:
    """What differs in two models after their runs; checkpoints, if both could be written."""
    names = {*state, *other}
    if not (_FILE in state and _FILE in other):
        names.discard(_FILE)
    return tuple(sorted(name for name in names if state.get(name) != other.get(name)))


def furthest(sums: Iterable[Tensor], others: Iterable[Tensor]) -> float:
    """The largest difference of two runs' sums in any step that both took, in clip norms."""
    distances = [0.0]
    for left, right in zip(sums, others, strict=False):
        distance = float((left - right).norm()) / CLIP_NORM
        distances.append(math.inf if math.isnan(distance) else distance)
    return max(distances)


# --- what happens to who believes it ---


def believed(case: Case, timing: Timing) -> float:
    """By how much the sums move if the rows of a pass are clipped as if they were apart.

    Of the steps in which the coupling is awake.
    """
    both = []
    for special in (False, True):
        torch.default_generator.manual_seed(_SEED)
        scene = case.scene(timing, special=special)
        setup = case.make(scene)
        sums = []
        for step in range(max(timing.first, timing.wakes), timing.first + timing.steps):
            scene.clock.step = step
            sums.append(_clipped_rows(setup))
        both.append(sums)
    return furthest(*both)


def _clipped_rows(setup: Setup) -> Tensor:
    parameters = [leaf for leaf in setup.model.parameters() if leaf.requires_grad]
    result = setup.loss(setup.model, _whole_batch(setup))
    losses, statistics = result if isinstance(result, tuple) else (result, {})
    dict(statistics)  # whoever believes the loss asks for its statistics, too
    total = torch.zeros(sum(leaf.numel() for leaf in parameters), dtype=torch.float64)
    for row in range(len(losses)):
        gradients = torch.autograd.grad(
            losses[row], parameters, retain_graph=True, allow_unused=True
        )
        flat = torch.cat(
            [
                (torch.zeros_like(leaf) if gradient is None else gradient.to_dense()).flatten()
                for leaf, gradient in zip(parameters, gradients, strict=True)
            ]
        ).double()
        total += flat * min(1.0, CLIP_NORM / max(float(flat.norm()), 1e-12))
    return total


def _whole_batch(setup: Setup) -> Any:
    indices = list(range(len(setup.dataset)))
    several = getattr(setup.dataset, "__getitems__", None)
    entries = several(indices) if callable(several) else [setup.dataset[index] for index in indices]
    return (setup.collate or default_collate)(list(entries))
