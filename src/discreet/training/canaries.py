"""Canaries in gradient space: records that are nothing but one long spike, each on a coordinate of
its own.

    drawn, and in ──> a spike far longer than the clip norm ──> clipped, summed and noised as every
    record is released value on the canary's coordinate ──> log-likelihood ratio, step after step
    (`Likelihood`)

Nothing of it is special but where the vector comes from: it goes through the same norms, weights,
sums and noise as gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.aggregation.session import Session
from discreet.canaries import Canaries, Likelihood, Scores
from discreet.errors import ParameterError, SampleMisuse
from discreet.mechanisms import Bound, Group
from discreet.randomness import Purpose, Source
from discreet.randomness.draws import permutation, subset
from discreet.sampling import Sample
from discreet.training.factors.factors import Lookups
from discreet.training.passes.contributions import Contributions, Piece
from discreet.training.rounding.precision import LARGEST_INPUT
from discreet.units import Adjacency

__all__ = ["GradientCanaries"]

_FAR = 10  # binary digits by which a spike is longer than the clip norm


class GradientCanaries:
    """The last `count` records of a plan, as spikes that the engine makes; give them to one
    `PrivateRun`.

    The data set of the run then has `count` entries fewer than the plan has records. In every group
    of gradients that has room, a canary has one coordinate, drawn at random from all of the group's
    (so every layer is looked at in proportion to its size, and nothing of the data has a say); no
    two canaries share one. A canary that is in contributes a spike there, at least 2^10 times the
    clip norm, whenever it is drawn; one that is out contributes nothing, or under replace-one
    adjacency the opposite spike. A group that is not private gets spikes of length 1.

    Guarantee: that of the run, unchanged: a canary is one of its records (docs/proofs/sums.md,
    section 6). Scores are functions of what was released, and of public values. Spikes are visible
    in the run's gradients, and do a model no good.

    Args:
        count: how many, below the number of records; public.
        source: of coins and coordinates; a fresh one from the operating system by default.

    >>> from discreet import Ledger, Plan
    >>> from discreet.training import GradientCanaries, PrivateRun
    >>> plan = Plan.dpsgd(records=60, expected_batch_size=30, steps=2, noise_multiplier=1.0)
    >>> canaries = GradientCanaries(50)
    >>> run = PrivateRun(torch.nn.Linear(8, 8), plan, ledger=Ledger.in_memory(), canaries=canaries)
    >>> for batch in run.batches(torch.utils.data.TensorDataset(torch.randn(10, 8))):
    ...     _ = run.backward(lambda model, batch: model(batch[0]).sum(1), batch)
    >>> len(canaries.scores())
    50
    """

    __slots__ = ("_adjacency", "_coins", "_count", "_head", "_likelihood", "_source", "_spots")

    def __init__(self, count: int, *, source: Source | None = None) -> None:
        self._count = check.whole("GradientCanaries", "count", count, least=1)
        self._source = (
            Source.system()
            if source is None
            else check.instance("GradientCanaries", "source", source, Source)
        )
        self._coins: Canaries | None = None
        self._likelihood: Likelihood | None = None
        self._adjacency = Adjacency.ADD_OR_REMOVE
        self._spots: dict[str, _Spots] = {}
        self._head = ""

    def __len__(self) -> int:
        return self._count

    def begin(self, session: Session) -> None:
        """Toss the coins and draw the coordinates, for one run.

        Raises:
            SampleMisuse: they have a run already; coins that served twice are not independent.
            ParameterError: no record besides them, or no group of gradients with as many
                coordinates.
        """
        if self._coins is not None:
            raise SampleMisuse(
                expected="canaries of their own for each run",
                got="those of another run",
                do="Make new GradientCanaries, and pool the scores: Scores.pooled([...]).",
            )

        records = session.sampler.records
        if self._count >= records:
            raise ParameterError(
                owner="GradientCanaries",
                name="count",
                expected=f"fewer canaries than the plan's {records} records",
                got=str(self._count),
            )

        rooms = [_room(group, session.bound) for group in session.groups()]
        if max(map(sum, rooms)) < self._count:
            raise ParameterError(
                owner="GradientCanaries",
                name="count",
                expected="at most as many as the largest group of gradients has coordinates",
                got=str(self._count),
                do="Plant fewer, and pool the scores of several runs.",
            )

        # A group with fewer coordinates than canaries has none: no two may share one.
        self._spots = {
            group.name: self._drawn(lane, room)
            for lane, (group, room) in enumerate(zip(session.groups(), rooms, strict=True))
            if sum(room) >= self._count
        }
        # No other ledger has this head: by it scores say whose they are.
        self._head = session.ledger.head()
        self._adjacency = session.plan.adjacency
        self._likelihood = Likelihood(
            session.sampler.event, canaries=self._count, adjacency=self._adjacency
        )
        self._coins = Canaries(np.arange(records - self._count, records), source=self._source)

    def _drawn(self, lane: int, sizes: list[int]) -> _Spots:
        stream = self._source.stream(Purpose.CANARY, step=1, lane=1 + lane)
        coordinates = subset(stream.child("which"), self._count, sum(sizes))[
            permutation(stream.child("order"), self._count)
        ]

        # From numbers among all coordinates of the group to leaves, and places in them.
        ends: NDArray[np.int64] = np.cumsum(sizes, dtype=np.int64)
        leaves = np.searchsorted(ends, coordinates, side="right")
        return _Spots(leaves, coordinates - np.append(0, ends)[leaves])

    def spikes(
        self, sample: Sample, bound: Bound, groups: tuple[Group, ...], device: torch.device
    ) -> Contributions | None:
        """What the canaries of a sample contribute, in the place of gradients; None if none does.
        Sensitive.
        """
        coins = self._begun()
        numbers = coins.numbers(sample.indices)
        numbers = numbers[numbers >= 0]

        # Under replace-one adjacency one that is out has the opposite spike; otherwise none at all.
        if self._adjacency is not Adjacency.REPLACE_ONE:
            numbers = numbers[coins.inside[numbers]]

        if not numbers.size:
            return None

        signs = np.where(coins.inside[numbers], 1.0, -1.0)
        pieces = {}
        for group in groups:
            spots = self._spots.get(group.name)
            if spots is None:
                continue

            for number, (leaf, scale) in enumerate(zip(group.leaves, group.scales, strict=True)):
                here = spots.leaves[numbers] == number
                if here.any():
                    rows = _rows(
                        here,
                        spots.places[numbers],
                        signs * _length(group, scale),
                        bound.dimensions[leaf],
                        device,
                    )
                    pieces[leaf] = (Piece(((bound.dimensions[leaf],), (1,), 0), rows),)

        return Contributions(pieces, numbers.size, numbers.size)

    def observe(self, groups: tuple[Group, ...], released: Mapping[str, NDArray[Any]]) -> None:
        """Read the canaries' coordinates in one release: noised sums in the leaves' own unit."""
        observations = []
        for group in groups:
            spots = self._spots.get(group.name)
            if spots is None:
                continue

            readings = np.empty(self._count)
            for number, (leaf, scale) in enumerate(zip(group.leaves, group.scales, strict=True)):
                here = spots.leaves == number
                if here.any():
                    readings[here] = released[leaf][spots.places[here]].astype(np.float64) / _unit(
                        group, scale
                    )

            # Without noise there is no ratio; any number in the place of the noise orders canaries
            # by what was read.
            observations.append(
                (readings, group.noise_std / group.clip_norm if group.private else 1.0)
            )

        # Without noise anything may come; `scores` refuses what is no number.
        if self._likelihood is not None:
            with np.errstate(all="ignore"):
                self._likelihood.observe(observations)

    def scores(self) -> Scores:
        """The log-likelihood ratio of each canary, from all steps that are over, and its coin.

        Raises:
            SampleMisuse: no run has them.
        """
        coins = self._begun()
        values = np.zeros(self._count) if self._likelihood is None else self._likelihood.scores()
        return Scores(
            values,
            coins.inside,
            attack="gradient canaries, likelihood ratio of every release",
            heads=[self._head],
        )

    def _begun(self) -> Canaries:
        if self._coins is None:
            raise SampleMisuse(
                expected="canaries of a run",
                got="canaries that no run has",
                do="Give them to PrivateRun(..., canaries=...).",
            )

        return self._coins

    def __repr__(self) -> str:
        return f"GradientCanaries({self._count}, in or out: not shown)"


@dataclass(frozen=True, slots=True, eq=False)
class _Spots:
    """Where each canary of one group stands: the number of its leaf, and the place in it."""

    leaves: NDArray[np.int64]
    places: NDArray[np.int64]


def _room(group: Group, bound: Bound) -> list[int]:
    """Coordinates of each leaf that canaries may take: those of gradients."""
    return [bound.dimensions[leaf] if leaf.startswith("grad/") else 0 for leaf in group.leaves]


def _unit(group: Group, scale: float) -> float:
    """What a canary of a group amounts to on its coordinate, without noise."""
    return scale * group.clip_norm if group.private else 1.0


def _length(group: Group, scale: float) -> float:
    """The length of a spike: a power of two, so that products with it are exact; 1 where nothing is
    clipped.
    """
    if not group.private:
        return 1.0

    _, digits = math.frexp(_unit(group, scale))
    return min(math.ldexp(1.0, digits + _FAR), 0.5 * LARGEST_INPUT)


def _rows(
    here: NDArray[np.bool_], places: NDArray[np.int64], values: Any, size: int, device: torch.device
) -> Lookups:
    """One number for each canary, nowhere where it is not `here`: as rows of one number, looked up
    once.
    """
    ids = torch.from_numpy(np.where(here, places, -1))[:, None].to(device)
    return Lookups(
        ids, torch.from_numpy(np.where(here, values, 0.0))[:, None, None].to(device), (size, 1)
    )
