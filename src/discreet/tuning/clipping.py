"""ClipSearch: the smallest clip norm that hurts only slightly, without noise [Ponomareva2023,
section 5.4.1].

A clip norm that is too large lets the noise drown the gradients, one that is too small cuts all of
them to the same length. Without noise only the second is seen: scores fall below some clip norm.
The smallest one above that is taken, as what is lost there comes back when the learning rate is
tuned with the noise on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.plan import Plan
from discreet.tuning.data import Data, Private
from discreet.tuning.record import Method, Tuning
from discreet.tuning.settings import checked_plan, distinct, gaussian_of, with_gaussian
from discreet.tuning.shown import Picture, PlottedLine, draw, source, trials_table
from discreet.tuning.sweep import TrialFunction, sweep

__all__ = ["ClipSearch", "clip_search"]

# Noise multiplier: engines execute no plan without noise, and nobody can see this much.
_NEXT_TO_NOTHING = 1e-6


@dataclass(frozen=True, slots=True)
class ClipSearch:
    """The trials of `clip_search`, and the clip norm that they lead to.

    Args:
        tuning: all trials, for the report.
        tolerance: how far below the best score the chosen one may be.
    """

    tuning: Tuning
    tolerance: float

    @property
    def clip_norm(self) -> float:
        """The smallest whose score is within the tolerance of the best."""
        return self.tuning.trials[self.tuning.chosen or 0].values["clip_norm"]

    @property
    def best(self) -> float:
        """The best score of all clip norms that were tried."""
        # There is one: a search without any score is an error, and no `ClipSearch`.
        return max(score for _, score in self._points)

    @property
    def _points(self) -> tuple[tuple[float, float], ...]:
        """Clip norm and score of every trial that has one, from the smallest clip norm on."""
        return self.tuning.points("clip_norm")

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know before taking the number."""
        # Trials stand in ascending order of the clip norm.
        smallest = self.tuning.trials[0].values["clip_norm"]
        if self.clip_norm > smallest:
            return ()

        note = "The smallest clip norm that was tried is good enough: a smaller one may be too."
        return (f"{note} Try smaller ones.",)

    def __str__(self) -> str:
        return "\n".join([*trials_table(self.tuning), *self.notes])

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw scores against clip norms, as PNG or SVG."""
        picture = Picture(
            title=f"ClipSearch: score without noise, on {source(self.tuning)}",
            across="clip norm",
            lines=(PlottedLine("score without noise", self._points),),
            chosen=(self.clip_norm, dict(self._points)[self.clip_norm]),
            level=(self.best - self.tolerance, f"the best minus {self.tolerance:g}"),
        )
        return draw("ClipSearch.plot", path, picture)


def clip_search(
    trial: TrialFunction,
    plan: Plan,
    clip_norms: Iterable[float] = (0.01, 0.1, 1.0, 10.0, 100.0),
    *,
    data: Data,
    tolerance: float = 0.01,
    progress: bool | None = None,
) -> ClipSearch:
    """Try clip norms without noise, and take the smallest that hurts only slightly.

    Guarantee: none; there is no privacy without noise. Private data are refused. Trials get a plan
    with a noise multiplier of a millionth, which engines can execute.

    Args:
        trial: trains once with `settings.plan` (or `settings.plan_for(records)`), everything else
            as is good without privacy.
        plan: with one clip norm, as `Plan.dpsgd` makes it; its noise does not matter.
        clip_norms: to try, two or more, on a logarithmic scale.
        data: public or synthetic.
        tolerance: how much of the score may be given up, in its unit.
        progress: whether a bar is shown; None: in a terminal.

    Raises:
        ParameterError: private data.

    >>> from discreet.tuning import Public
    >>> plan = Plan.dpsgd(records=1_000, expected_batch_size=100, steps=10, noise_multiplier=1.0)
    >>> def trial(settings):
    ...     return min(0.9, settings.clip_norm)
    >>> clip_search(trial, plan, data=Public("a formula")).clip_norm
    1.0
    """
    owner = "clip_search"
    if isinstance(data, Private):
        raise ParameterError(
            owner=owner,
            name="data",
            expected="public or synthetic data: trials without noise have no privacy at all",
            got=f"private data, {data.name!r}",
            do=(
                "Search on public or synthetic data of the same kind, let the clip norm adapt "
                "under privacy (AdaptiveClip), or do without one (Normalised). Nothing was tried."
            ),
        )

    # Asked for its error: a plan with several clip norms has none to search for.
    gaussian_of(owner, checked_plan(owner, plan))
    slack = check.not_negative(owner, "tolerance", tolerance)

    tries = []
    for clip_norm in sorted(distinct(owner, "clip_norms", clip_norms, least=2)):
        quiet = with_gaussian(plan, clip_norm=clip_norm, noise_multiplier=_NEXT_TO_NOTHING)
        tries.append(({"clip_norm": clip_norm}, quiet))

    results = sweep(owner, trial, tries, data=data, progress=progress)

    # The smallest number is that of the smallest clip norm, which needs the least noise.
    scores = results.scores(owner)
    best = max(scores.values())
    chosen = min(number for number, score in scores.items() if score >= best - slack)
    return ClipSearch(results.record(Method.CLIP_SEARCH, chosen), slack)
