"""Can this model train privately? What is proved, what is computed one by one, what is refused and
how to mend it.

Nothing is released or charged, and everything is left as it was: the model is looked at in a copy
of the process, which ends (`state/processes.py`). Where there can be none (Linux only, and while no
accelerator is in use), a deep copy of model and loss is looked at, and what only the loss can reach
is not protected. Asked is what a run asks: before it begins, before its first `backward`, and in a
step.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from discreet.aggregation.session import Session
from discreet.errors import DiscreetError
from discreet.ledger import Ledger
from discreet.plan import Plan
from discreet.training.clipping import refuse_slots
from discreet.training.data.seeding import generators_seeded
from discreet.training.data.trees import count_rows, select
from discreet.training.engine import USER_ERRORS, Engine, Loss, trained
from discreet.training.gradients import GradientWatch, refuse_parallel
from discreet.training.passes.batch_norm import PrivateBatchNorm
from discreet.training.passes.hooks import refuse_hooks
from discreet.training.passes.sandbox import plain_forward, seeded_pass
from discreet.training.rehearsal import check_statistics, own_names
from discreet.training.rounding.margin import ClipMargin
from discreet.training.state.processes import can_copy, in_a_copy
from discreet.units import Numerics

__all__ = ["Problem", "Problems", "check"]

_HALF = (torch.bfloat16, torch.float16)
# Records that are tried; of a batch that has no more, all: some models bear one number of them.
_MOST = 64


@final
@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend, or (`refused` false) to know.

    Args:
        where: a layer, a parameter, the loss or the batch.
        what: is the matter.
        fix: what to do.
        refused: whether training would be refused.
    """

    where: str
    what: str
    fix: str
    refused: bool = True


@final
@dataclass(frozen=True, slots=True)
class Problems:
    """Everything that was noticed, what is refused first.

    >>> print(Problems(()))
    Ready for private training: proved that no record touches another.
    """

    notices: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether private training would start with this model."""
        return not any(problem.refused for problem in self.notices)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.notices)

    def __len__(self) -> int:
        return len(self.notices)

    def __str__(self) -> str:
        refused = sum(problem.refused for problem in self.notices)
        lines = [f"{refused} to mend before private training:" if refused else self._ready()]
        for problem in self.notices:
            mark = "-" if problem.refused else "  note:"
            lines.append(f"{mark} {problem.where}: {problem.what}\n    {problem.fix}")

        return "\n".join(lines)

    def _ready(self) -> str:
        if any(problem.where == "speed" for problem in self.notices):
            return "Ready for private training, record by record."

        return "Ready for private training: proved that no record touches another."


def check(
    model: nn.Module,
    loss: Loss,
    batch: Any,
    plan: Plan | None = None,
    *,
    statistics: Mapping[str, int] | None = None,
) -> Problems:
    """List what is proved of a model, a loss and a batch, what is computed one by one, and what is
    refused.

    One pass is tried as in a run: it is proved that no record changes what another contributes, or
    the operation and the layer are named because of which records would be computed one by one,
    with what that costs; state that would keep records is refused by name. Also looked at: layers
    that normalise over the batch, hooks, wrappers for several devices, gradients that are there
    already, shape of the loss and of the batch, parameters that are not real numbers, or not used;
    with a plan, whether its groups claim every parameter and statistic.

    Args:
        model: in the mode it will train in.
        loss: (model, batch) to one loss for each record.
        batch: a few records, at least two; sensitive. No number of it appears in the list.
        plan: of the run, if it is known: a group for batch statistics makes such layers private.
        statistics: as for `PrivateRun`: name and size of what the loss returns for each record
            besides its loss.

    >>> model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    >>> findings = check(model, lambda model, x: model(x).mean(), torch.eye(2))
    >>> print(findings)  # doctest: +NORMALIZE_WHITESPACE
    1 to mend before private training:
    - layer '1': BatchNorm1d uses statistics of the whole batch, so every record changes all others
        model.set_submodule("1", torch.nn.GroupNorm(1, 4));
        or put it in eval mode, or plan a group "bn/*".
    """
    if can_copy():
        notices = in_a_copy(lambda: _look(model, loss, batch, plan, statistics))
    else:
        copied_model, copied_loss = copy.deepcopy((model, loss))
        with generators_seeded():
            notices = _look(copied_model, copied_loss, batch, plan, statistics)

    # Out of a copy of the process come plain values.
    return Problems(tuple(Problem(*notice) for notice in notices))


def _look(
    model: nn.Module,
    loss: Loss,
    batch: Any,
    plan: Plan | None,
    statistics: Mapping[str, int] | None,
) -> list[tuple[str, str, str, bool]]:
    """Everything that is noticed, what is refused first: where, what, how to mend it, whether it is
    refused.
    """
    # Before any pass: what is in the gradients now was there when the user asked.
    gradients = [*_of_gradients(model)]
    norms, notices = _of_layers(model, plan)
    notices += [*_of_parameters(model), *_of_rows(batch), *_of_hooks(model), *_of_wrappers(model)]

    # Passes are tried only where a run would get so far.
    if not any(problem.refused for problem in notices):
        notices += _of_passes(model, loss, batch, _Run(norms, plan, statistics))

    notices += gradients
    notices.sort(key=lambda problem: not problem.refused)
    return [(problem.where, problem.what, problem.fix, problem.refused) for problem in notices]


@final
@dataclass(frozen=True, slots=True)
class _Run:
    """What a run would be given besides model, loss and data.

    Args:
        norms: private statistics of batch normalisation; None if they are not known.
        plan: None if it is not known.
        statistics: None if none were named.
    """

    norms: PrivateBatchNorm | None
    plan: Plan | None
    statistics: Mapping[str, int] | None

    def check_plan(self, engine: Engine) -> None:
        """Ask of the plan what a run asks when it begins, on a ledger of its own."""
        statistics = own_names(self.statistics or {})
        if self.plan is None:
            return

        bound = self.plan.for_leaves({**engine.leaves, **statistics})
        refuse_slots(bound.bound.start)

        # As in a run: what is not idealised is certified.
        level = Numerics.IDEALISED if bound.numerics is Numerics.IDEALISED else Numerics.CERTIFIED
        with Ledger.in_memory() as ledger:
            session = Session(bound, ledger=ledger, numerics=level)
            ClipMargin(session.bound, session.sampler, level, None).check(session.bound.start)

    def check_statistics(self, returned: Mapping[str, Tensor], engine: Engine) -> None:
        """Ask of the statistics what a run asks before its first step, where it is known which they
        should be.
        """
        if self.plan is not None or self.statistics is not None:
            check_statistics(returned, self.statistics or {}, engine)


def _refused(where: str, question: Callable[[], object]) -> Iterator[Problem]:
    """The problem of which an error of the library tells, if the question raises one."""
    try:
        question()
    except DiscreetError as error:
        yield Problem(where, error.got, error.do or f"Expected is {error.expected}.")


def _of_layers(
    model: nn.Module, plan: Plan | None
) -> tuple[PrivateBatchNorm | None, list[Problem]]:
    """Private statistics, if the plan has them; layers that normalise over the batch, and nothing
    makes them private.
    """
    if plan is not None:
        try:
            return PrivateBatchNorm.in_plan(model, plan), []
        except DiscreetError as error:
            return None, [Problem("the plan", error.got, error.do)]

    problems: list[Problem] = []
    for name, layer in model.named_modules():
        problems += [*_of_norm(name, layer), *_of_table(name, layer)]

    return None, problems


def _of_norm(name: str, layer: nn.Module) -> Iterator[Problem]:
    """What is the matter with a layer that normalises over the batch."""
    kind = nn.modules.batchnorm._BatchNorm  # noqa: SLF001  (there is no other name for all of them)
    if not isinstance(layer, kind) or not (layer.training or layer.running_mean is None):
        return

    # Without running statistics, eval mode would use those of the batch as well.
    instead = _replacement(name, layer.num_features) if name else "Use GroupNorm"
    if layer.running_mean is not None:
        instead += '; or put it in eval mode, or plan a group "bn/*"'

    yield Problem(
        _layer(name),
        f"{type(layer).__name__} uses statistics of the whole batch, so every record "
        "changes all others",
        f"{instead}.",
    )


def _of_table(name: str, layer: nn.Module) -> Iterator[Problem]:
    """What is to be known of a table of vectors with sparse gradients."""
    is_table = isinstance(layer, (nn.Embedding, nn.EmbeddingBag))
    if is_table and layer.sparse and layer.weight.requires_grad:
        yield Problem(
            _layer(name),
            "sparse gradients would show which rows were looked up; private gradients are dense",
            "Use an optimizer for dense gradients, and sparse=False.",
            refused=False,
        )


def _replacement(name: str, channels: int) -> str:
    """Code that puts group normalisation in the place of a layer.

    >>> _replacement("blocks.0.norm", 48)
    'model.set_submodule("blocks.0.norm", torch.nn.GroupNorm(12, 48))'
    """
    # As many groups as there can be, up to 32, with at least four channels in each, or all in one.
    most_groups = max(1, min(32, channels // 4))
    groups = max(count for count in range(1, most_groups + 1) if channels % count == 0)
    return f'model.set_submodule("{name}", torch.nn.GroupNorm({groups}, {channels}))'


def _of_parameters(model: nn.Module) -> Iterator[Problem]:
    parameters = trained(model)

    # Refused where a run would refuse, noted where it would go on.
    if not parameters:
        yield Problem(
            "the model",
            "no parameter requires a gradient",
            "Call requires_grad_() on what is to be trained.",
        )

    for leaf, parameter in parameters.items():
        if parameter.is_complex():
            yield Problem(
                _name(leaf),
                "complex numbers",
                "Hold real and imaginary part as two real parameters.",
            )

    half = [_name(leaf) for leaf, parameter in parameters.items() if parameter.dtype in _HALF]
    if half:
        yield Problem(
            _some(half),
            "half precision: clipping, sums and noise are computed in float32 and float64, then "
            "rounded to these parameters",
            "Prefer float32 parameters with autocast: small steps are not lost.",
            refused=False,
        )


def _of_rows(batch: Any) -> Iterator[Problem]:
    # One number of rows for all leaves: that of the records.
    counts = count_rows(batch)
    if len(counts) != 1:
        yield Problem(
            "the batch",
            "tensors with different numbers of rows" if counts else "no tensor with rows",
            "Collate one row for each record; keep constants out of the batch.",
        )
    elif counts == {0}:
        yield Problem("the batch", "no records", "Pass a batch with a few records.")


def _of_hooks(model: nn.Module) -> Iterator[Problem]:
    return _refused("hooks", lambda: refuse_hooks(model, trained(model)))


def _of_wrappers(model: nn.Module) -> Iterator[Problem]:
    return _refused("the model", lambda: refuse_parallel(model))


def _of_gradients(model: nn.Module) -> Iterator[Problem]:
    return _refused("gradients", GradientWatch(trained(model)).check)


def _of_passes(model: nn.Module, loss: Loss, batch: Any, run: _Run) -> list[Problem]:
    (records,) = count_rows(batch)
    # At least two, if need be the same twice: with one there is nobody to be mixed with.
    count = max(2, min(records, _MOST))
    rows = select(batch, torch.arange(count) % records)
    try:
        engine = Engine(model, batch_norm=run.norms)
        with seeded_pass(0), plain_forward(model, function=loss):
            passes = [*engine.passes(loss, rows, count, count)]
    except DiscreetError as error:
        return [Problem("the loss", error.got, error.do)]
    except USER_ERRORS as error:
        return [
            Problem(
                "the loss",
                f"raises {type(error).__name__} for {count} records",
                "Run loss(model, batch) by itself first, with other numbers of records: take sizes "
                "from x.shape[0].",
            )
        ]

    returned = passes[0][1]
    return [
        *_refused("the plan", lambda: run.check_plan(engine)),
        *_refused("statistics", lambda: run.check_statistics(returned, engine)),
        *_of_speed(engine, loss, rows, count),
        *_of_unused(engine, {leaf for contribution, _ in passes for leaf in contribution.pieces}),
    ]


def _of_speed(engine: Engine, loss: Loss, rows: Any, count: int) -> Iterator[Problem]:
    # The reason why the proof failed, with the operation and the layer.
    if engine.one_by_one is not None:
        cost = _times_slower(engine, loss, rows, count)
        yield Problem(
            "speed",
            f"records are computed one by one, {cost} a plain pass: {engine.one_by_one}",
            "It is exact, and slow. Let every layer and the loss treat each record by itself, "
            "with operations of torch.",
            refused=False,
        )


def _of_unused(engine: Engine, used: set[str]) -> Iterator[Problem]:
    # No use of them was recorded in any of the passes.
    unused = [_name(leaf) for leaf in engine.parameters if leaf not in used]
    if unused:
        yield Problem(
            _some(unused),
            "the loss does not depend on it: it would receive noise alone",
            "Freeze it with requires_grad_(False), or use it.",
            refused=False,
        )


def _times_slower(engine: Engine, loss: Loss, rows: Any, count: int) -> str:
    """How long records take one by one, in units of one pass forward and backward over all."""
    start = time.perf_counter()
    with seeded_pass(0), plain_forward(engine.model, function=loss):
        for _ in engine.passes(loss, rows, count, count):
            pass

    alone = time.perf_counter() - start

    start = time.perf_counter()
    with seeded_pass(0):
        engine.plain_pass(loss, rows, count)

    plain = max(time.perf_counter() - start, 1e-9)

    return f"about {max(1.0, alone / plain):.0f} times"


def _layer(name: str) -> str:
    return f"layer {name!r}" if name else "the model"


def _name(leaf: str) -> str:
    return leaf.removeprefix("grad/")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
