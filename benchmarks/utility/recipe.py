"""What a recipe is: data to public features,
features to a model whose training one ledger covers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from benchmarks.utility.data import DATA_SETS
from discreet.errors import ParameterError
from discreet.plan import Target
from discreet.randomness import Source

__all__ = ["Goal", "Recipe", "Train"]

Prepared = TypeVar("Prepared")
Prepared_contra = TypeVar("Prepared_contra", contravariant=True)


class Train(Protocol[Prepared_contra]):
    """Trains one model and tests it.

    Whatever is computed from the training data goes into a plan that the target calibrates, and is
    charged to the ledger.
    The harness reads that ledger back: what a recipe believes to have spent counts for nothing.
    """

    def __call__(
        self,
        prepared: Prepared_contra,
        target: Target | None,
        ledger: Path,
        source: Source | None = None,
    ) -> float:
        """The accuracy on the test data, from 0 to 1.

        Args:
            prepared: what `Recipe.prepare` gave; not to be changed, further runs are given it too.
            target: of everything together; None for the same recipe without privacy.
            ledger: path of a file that does not exist yet.
            source: of noise and samples, for tests.
        """
        ...


@dataclass(frozen=True, slots=True)
class Goal:
    """What the mean of at least three runs should reach.

    Attributes:
        epsilon: at which.
        accuracy: from 0 to 1; or None, and then
        gap: at most so much below the same recipe without privacy.
    """

    epsilon: float
    accuracy: float | None = None
    gap: float | None = None

    def __post_init__(self) -> None:
        if (self.accuracy is None) == (self.gap is None):
            raise ParameterError(
                owner="Goal",
                name="accuracy",
                expected="given, or a gap in its place",
                got=repr(self),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Generic[Prepared]):
    """How a model is trained, and what there is to say about it.

    Attributes:
        name: as the command line has it.
        data_set: a name of `DATA_SETS`.
        model: in words: features and model, one sentence.
        epsilons: at which the page shows it, in ascending order; the goals' are among them.
        delta: of every statement.
        goals: one for each epsilon that has one.
        tuned: what was chosen by looking at data, and at which; nothing of it is charged.
        without_privacy: how the same recipe is trained without privacy, in words.
        prepare: folder of the data to whatever `train` needs. Loads the data and computes features
            that are functions of one record alone. Called once for several runs, and timed.
        train: one run.
    """

    name: str
    data_set: str
    model: str
    epsilons: tuple[float, ...]
    delta: float = 1e-5
    goals: tuple[Goal, ...] = ()
    tuned: str
    without_privacy: str
    prepare: Callable[[Path], Prepared]
    train: Train[Prepared]

    def __post_init__(self) -> None:
        if self.data_set not in DATA_SETS:
            expected = f"one of {', '.join(DATA_SETS)}"
            raise ParameterError(
                owner="Recipe", name="data_set", expected=expected, got=repr(self.data_set)
            )
        if list(self.epsilons) != sorted({*self.epsilons, *(goal.epsilon for goal in self.goals)}):
            expected = "in ascending order, with those of the goals"
            raise ParameterError(
                owner="Recipe", name="epsilons", expected=expected, got=repr(self.epsilons)
            )

    @property
    def title(self) -> str:
        """Of the data set."""
        return DATA_SETS[self.data_set].title

    def goal(self, epsilon: float) -> Goal | None:
        """At this epsilon, if there is one."""
        return next((goal for goal in self.goals if goal.epsilon == epsilon), None)
