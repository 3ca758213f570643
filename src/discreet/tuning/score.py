"""The score of a trial on private data: the number of right answers, released with noise and
charged like everything else.

    trial -> one value in [0, 1] for each validation record -> sum, clipped record by record ->
    noise -> score

Guarantee: one Gaussian query of sensitivity 1 on the validation records, charged to the ledger
before it is answered. Records that train and records that validate may be the same or not: both are
charged in full. It holds if the value of a record is computed from that record and from released
values (the trained model) alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.aggregation import Aggregator
from discreet.errors import ParameterError
from discreet.ledger import Everything, RunRecord, Snapshot
from discreet.mechanisms import Gaussian, Groups
from discreet.plan import Plan
from discreet.sampling import Sampler
from discreet.tuning.data import Private
from discreet.tuning.settings import checked_plan

__all__ = ["planned_trials", "released_score", "score_plan"]

_LEAF = "score"


def planned_trials(plans: Iterable[Plan], *, records: int, noise_std: float) -> Snapshot:
    """What trials with these plans and their scores take together: for `Budget(plans=...)`, where
    all are fixed in advance.

    A list is accounted for tightly, where a filter asks for about a tenth more. In return every
    trial counts, whether it is made or not, and a value that comes to mind later is refused.

    Args:
        plans: of the trials, one for each, in any order; a final training too, if there is to be
            one.
        records: number of validation records [public], as for `Private`.
        noise_std: of the noise on the number of right answers, as for `Private`.

    >>> plan = Plan.dpsgd(records=1_000, expected_batch_size=100, steps=20, noise_multiplier=4.0)
    >>> [count for _, count in planned_trials([plan] * 3, records=500, noise_std=20.0).counted()]
    [60, 3]
    """
    trials = [checked_plan("planned_trials", plan) for plan in plans]
    if not trials:
        raise ParameterError(
            owner="planned_trials", name="plans", expected="one plan for each trial", got="none"
        )

    validation = check.whole("planned_trials", "records", records, least=1)
    noise = check.positive("planned_trials", "noise_std", noise_std)

    # Not a Programme, whose plans have one number of records: those that validate may be others.
    runs: list[RunRecord] = []
    for plan in trials:
        score = _score_plan(plan, validation, noise)
        runs += [*plan.snapshot().runs, *score.snapshot().runs]

    return Snapshot(runs=tuple(runs))


def score_plan(data: Private, plan: Plan) -> Plan:
    """Plan one noised sum over all validation records, of the unit and adjacency of the trials."""
    return _score_plan(plan, data.records, data.noise_std)


def _score_plan(plan: Plan, records: int, noise_std: float) -> Plan:
    # One value in [0, 1] for each record: the clip norm 1 changes none, and noise_std is the
    # multiplier. Every record takes part, so that sampling hides nobody.
    return Plan(
        sampler=Sampler(Everything(), records=records, steps=1),
        mechanism=Groups({_LEAF: Gaussian(1.0, noise_std)}),
        unit=plan.unit,
        adjacency=plan.adjacency,
        leaves={_LEAF: 1},
    )


def released_score(values: object, data: Private, plan: Plan, label: str) -> float:
    """Release the share of right answers, with noise.

    Args:
        values: what the trial returned; sensitive.
        data: where it is charged.
        plan: of the trial.
        label: of the run that is charged.

    Raises:
        BudgetExceeded: the score does not fit; nothing was charged or released.
    """
    # Checked before anything is charged.
    rows = _rows(values, data.records)
    run = Aggregator(
        score_plan(data, plan), ledger=data.ledger, label=label, parameters=data.parameters
    )

    # One sample of everybody; the engine clips, charges and noises as in training.
    (sample,) = run.samples()
    released = run.release(sample, {_LEAF: rows[sample.indices]})
    return float(released[_LEAF][0]) / data.records


def _rows(values: object, records: int) -> NDArray[np.float64]:
    """Make one row in [0, 1] for each record; what is not a number counts as wrong.

    No error depends on a value.
    """
    if not isinstance(values, np.ndarray):
        raise _no_values(records, f"a {type(values).__name__}")

    if values.dtype.kind not in "biuf" or values.shape != (records,):
        # Not how many there are: of a selection, such as all that are right, that would be the
        # score.
        raise _no_values(records, f"another array, of {values.dtype}")

    with np.errstate(all="ignore"):  # no record may raise
        numbers = np.nan_to_num(np.asarray(values).astype(np.float64), nan=0.0)
        return np.clip(numbers, 0.0, 1.0)[:, np.newaxis]


def _no_values(records: int, got: str) -> ParameterError:
    return ParameterError(
        owner="trial",
        name="score",
        expected=(
            f"one value in [0, 1] for each of {records} validation records, for private data: the "
            "tuner releases their sum"
        ),
        got=got,
        do="Return a NumPy array, such as (predicted == labels). Nothing was released.",
    )
