"""Private data to tune on, and trials that are fast: one noised sum, and validation records of
which a known share is right.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import discreet as dp
from discreet.tuning import Method, Private, Settings, Trial, Tuning, TuningKind

RECORDS = 400  # that validate
PLAN = dp.Plan(
    sampler=dp.Sampler(dp.Everything(), records=50, steps=2),
    mechanism=dp.Groups({"grad/*": dp.Gaussian(1.0, 20.0)}),
    leaves={"grad/w": 2},
)
BUDGET = dp.Filter(epsilon=2.0, delta=1e-5)
RIGHT = {0.1: 0.25, 1.0: 0.75, 10.0: 0.5}  # share of right answers by learning rate
RATES = tuple(RIGHT)

Answers = Callable[[Settings], object]


def private(
    budget: dp.Budget | dp.Filter | dp.Odometer = BUDGET,
    noise_std: float = 8.0,
    ledger: dp.Ledger | None = None,
) -> Private:
    own = dp.Ledger.in_memory(budget=budget) if ledger is None else ledger
    return Private(own, "patients", "of one hospital", records=RECORDS, noise_std=noise_std)


def train(
    settings: Settings,
    ledger: dp.Ledger,
    parameters: dp.units.Parameters = dp.units.Parameters.CHOSEN_FROM_OUTPUTS,
) -> None:
    """Charged as training is."""
    run = dp.Aggregator(settings.plan, ledger=ledger, label=settings.label, parameters=parameters)
    for sample in run.samples():
        run.release(sample, {"grad/w": np.ones((len(sample), 2))})


def answers(share: float, records: int = RECORDS) -> NDArray[np.bool_]:
    return np.arange(records) < share * records


def honest(data: Private) -> Answers:
    """Trains on the ledger, and answers with the known share."""

    def trial(settings: Settings) -> object:
        train(settings, data.ledger, data.parameters)
        return answers(RIGHT[settings.learning_rate])

    return trial


def charged(ledger: dp.Ledger) -> dict[str, int]:
    """Steps by label, of everything that was charged."""
    found: dict[str, int] = {}
    for charge in ledger.charges():
        found[charge.run.label] = found.get(charge.run.label, 0) + charge.count
    return found


def scores(ledger: dp.Ledger) -> int:
    """How many scores were released."""
    return sum(charge.count for charge in ledger.charges() if charge.step.groups == ("score",))


def public_record() -> Tuning:
    return Tuning(
        method=Method.OTHER,
        kind=TuningKind.PUBLIC,
        name="digits",
        about="of other people",
        trials=(
            Trial({"learning_rate": 0.5, "momentum": 0.9}, 0.91),
            Trial({"learning_rate": 2.0, "momentum": 0.9}, None),
        ),
        chosen=0,
        made="2026-01-31T12:00:00+00:00",
    )
