"""A mechanism bound to the leaves of a record: what every engine executes, step after step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.events import GaussianSum
from discreet.ledger.folding import folded_noise_multiplier
from discreet.mechanisms._frozen import Frozen
from discreet.mechanisms.group import Array, Group

__all__ = ["Bound", "LeafRow", "State", "Threshold", "checked_bound"]

State: TypeAlias = Mapping[str, float]
"""What changes from step to step: public numbers by group name, functions of released values only.
"""

_WIDEST = 2.0**30  # a threshold stays within this factor of its start


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A scale that follows a quantile of the norms (see `AdaptiveClip`).

    Args:
        group: name of the group whose scales it is.
        observed: leaf that carries the centred bit.
        start: the first threshold.
        quantile: fraction of norms that should lie below.
        learning_rate: of the geometric update.
    """

    group: str
    observed: str
    start: float
    quantile: float
    learning_rate: float

    def moved(self, threshold: float, released_fraction: float) -> float:
        """The next threshold: smaller if more than `quantile` of the norms were below it.

        >>> rule = Threshold(
        ...     group="g", observed="g/below", start=1.0, quantile=0.5, learning_rate=0.2
        ... )
        >>> rule.moved(1.0, released_fraction=0.9) < 1.0 < rule.moved(1.0, released_fraction=0.1)
        True
        """
        # The geometric update of [Andrew2021], held where its exponential is finite.
        exponent = -self.learning_rate * (released_fraction - self.quantile)
        moved = threshold * math.exp(min(max(exponent, -60.0), 60.0))
        return min(max(moved, self.start / _WIDEST), self.start * _WIDEST)


@dataclass(frozen=True, slots=True)
class LeafRow:
    """One leaf of `explain()`. Sensitivity and noise_std are in the group's scaled unit; times
    `scale` in the leaf's own.

    `share` is what the leaf's whole group costs, (S_g/noise_std_g)^2 as a part of the sum over
    groups.
    """

    leaf: str
    group: str
    dimension: int
    scale: float
    sensitivity: float
    noise_std: float
    noise_multiplier: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Groups for every step, and how they follow what was released. Every field is public.

    The queries are the same in every step, so that parameters are fixed in advance even where
    thresholds adapt.

    Args:
        dimensions: of every leaf, those observed included.
        start: the groups of the first step.
        thresholds: scales that move.
    """

    dimensions: Frozen[int]
    start: tuple[Group, ...]
    thresholds: tuple[Threshold, ...] = ()

    def __post_init__(self) -> None:
        _distinct("group", [group.name for group in self.start])
        _distinct("leaf", [leaf for group in self.start for leaf in group.leaves])
        _distinct("leaf", list(self.dimensions))
        if {leaf for group in self.start for leaf in group.leaves} != set(self.dimensions):
            got = f"{sorted(self.dimensions)} for {[group.leaves for group in self.start]}"
            raise ParameterError(
                owner="Bound",
                name="dimensions",
                expected="one for each leaf of the groups",
                got=got,
            )

    @classmethod
    def merged(cls, bounds: Iterable[Bound]) -> Bound:
        """Several mechanisms on the same sample."""
        parts = tuple(bounds)
        return cls(
            dimensions=Frozen(tuple(pair for part in parts for pair in part.dimensions.pairs)),
            start=tuple(group for part in parts for group in part.start),
            thresholds=tuple(threshold for part in parts for threshold in part.thresholds),
        )

    @property
    def private(self) -> bool:
        """False if any group is not clipped and noised. The run must then be marked
        `unsafe_no_privacy`.
        """
        return not self.open_groups

    @property
    def open_groups(self) -> tuple[str, ...]:
        """Names of the groups that are neither clipped nor noised."""
        return tuple(group.name for group in self.start if not group.private)

    @property
    def observed(self) -> tuple[str, ...]:
        """Leaves that `observations` fills; records do not bring them."""
        return tuple(threshold.observed for threshold in self.thresholds)

    @property
    def is_of_the_library(self) -> bool:
        """Whether every group and every threshold is exactly of this library's class, and every
        threshold moves a group that is there.
        """
        names = {group.name for group in self.start}
        return (
            all(type(group) is Group for group in self.start)
            and all(type(threshold) is Threshold for threshold in self.thresholds)
            and all(threshold.group in names for threshold in self.thresholds)
        )

    @property
    def initial_state(self) -> State:
        """The state of the first step."""
        return Frozen(tuple((threshold.group, threshold.start) for threshold in self.thresholds))

    @property
    def queries(self) -> tuple[GaussianSum, ...]:
        """What every step asks of its sample, whatever the state."""
        return tuple(group.query for group in self.start if group.private)

    @property
    def noise_multiplier(self) -> float:
        """All groups folded into one, rounded down; 0 if any group is not private."""
        return folded_noise_multiplier(self.queries) if self.private else 0.0

    def groups(self, state: State) -> tuple[Group, ...]:
        """The groups of one step: the same object clips, noises and scales back, so all three use
        one threshold (P02, P24).
        """
        now = self._checked(state)
        if not now:
            return self.start
        return tuple(
            replace(group, scales=(now[group.name],) * len(group.leaves))
            if group.name in now
            else group
            for group in self.start
        )

    def observations(self, state: State, squared_norms: Mapping[str, Array]) -> dict[str, Array]:
        """The centred bits of this step: +1/2 for a norm up to the threshold, -1/2 above, 0 for a
        norm that is not a number.

        Args:
            state: of this step.
            squared_norms: by group name, records x leaves, as for `Group.weights`; sensitive.

        Returns:
            For each observed leaf one value per row of the squared norms (a record, or a slot: not
            to be averaged again), to be clipped, summed and noised as every other leaf. Sensitive.
        """
        bits: dict[str, Array] = {}
        if not self.thresholds:
            return bits
        by_name = {group.name: group for group in self.groups(state)}
        for threshold in self.thresholds:
            if threshold.group not in squared_norms:
                expected, got = (
                    f"squared norms of group {threshold.group!r}",
                    f"groups {sorted(squared_norms)}",
                )
                raise ParameterError(
                    owner="Bound.observations", name="squared_norms", expected=expected, got=got
                )
            ratio, valid = by_name[threshold.group].ratios(squared_norms[threshold.group])
            bits[threshold.observed] = ((ratio <= 1.0) * 1.0 - 0.5) * valid
        return bits

    def update(
        self, state: State, released: Mapping[str, Array], *, expected_batch_size: float
    ) -> State:
        """The next state, from released values only.

        Args:
            state: of this step.
            released: the noised sum of each observed leaf, one number each. Other leaves are
                ignored.
            expected_batch_size: public; a sum of bits divided by it (or by the number of slots)
                plus 1/2 is the fraction below.
        """
        now = self._checked(state)
        by_name = {group.name: group for group in self.start}
        moved = dict(now)
        for threshold in self.thresholds:
            total = _number(released, threshold.observed)
            fraction = total / by_name[threshold.group].divisor(expected_batch_size) + 0.5
            moved[threshold.group] = threshold.moved(now[threshold.group], fraction)
        return Frozen(tuple(moved.items()))

    def explain(self) -> tuple[LeafRow, ...]:
        """One row for each leaf, in the order of the groups."""
        costs = {group.name: _cost(group) for group in self.start}
        unbounded = sum(cost is None for cost in costs.values())
        total = sum((cost for cost in costs.values() if cost is not None), Fraction(0))
        rows = []
        for group in self.groups(self.initial_state):
            share = _share(costs[group.name], total, unbounded)
            multiplier = folded_noise_multiplier([group.query]) if group.private else 0.0
            rows += [
                LeafRow(
                    leaf,
                    group.name,
                    self.dimensions[leaf],
                    scale,
                    group.sensitivity,
                    group.noise_std,
                    multiplier,
                    share,
                )
                for leaf, scale in zip(group.leaves, group.scales, strict=True)
            ]
        return tuple(rows)

    def _checked(self, state: State) -> dict[str, float]:
        if not state and not self.thresholds:
            return {}
        names = [threshold.group for threshold in self.thresholds]
        if sorted(state) != sorted(names):
            raise ParameterError(
                owner="Bound",
                name="state",
                expected=f"thresholds for {names}",
                got=f"{sorted(state)}",
            )
        return {name: check.positive("Bound", f"state[{name!r}]", state[name]) for name in names}


def checked_bound(owner: str, bound: object, leaves: Mapping[str, int]) -> Bound:
    """What a mechanism's `bind` returned, if the proofs are about it: groups of this library, which
    take every leaf once and invent none.

    A class derived from `Group` could clip by a rule of its own and still state its sensitivity; a
    leaf that no group takes would be released by whoever adds it later, without a charge.

    Args:
        owner: who asks, for the error.
        bound: what `bind` returned.
        leaves: that it was called with.
    """
    if type(bound) is not Bound or not bound.is_of_the_library:
        raise ParameterError(
            owner=owner,
            name="mechanism",
            expected="one that binds to a Bound of Groups and Thresholds, not of other classes",
            got=f"a mechanism that binds to {type(bound).__name__}",
            do=(
                "What one record contributes is proved for these classes alone "
                "(docs/proofs/mechanisms.md): another clipping rule goes into "
                "discreet/mechanisms/group.py, with its proof."
            ),
        )
    brought = {leaf: size for leaf, size in bound.dimensions.items() if leaf not in bound.observed}
    if brought != dict(leaves):
        raise ParameterError(
            owner=owner,
            name="mechanism",
            expected=f"one that takes every leaf, {sorted(leaves)}, with its dimension",
            got=f"groups for {sorted(brought)}",
        )
    return bound


def _cost(group: Group) -> Fraction | None:
    """The term (S/noise_std)^2 of Eq. 1; None without noise."""
    return group.query.gaussian_cost if group.private else None


def _share(cost: Fraction | None, total: Fraction, unbounded: int) -> float:
    """What a group costs of the total; groups without noise cost everything."""
    if cost is None:
        return 1.0 / unbounded
    return 0.0 if unbounded else float(cost / total)


def _number(released: Mapping[str, Array], leaf: str) -> float:
    owner = "Bound.update"
    if leaf not in released:
        raise ParameterError(
            owner=owner,
            name="released",
            expected=f"a value for {leaf!r}",
            got=f"{sorted(released)}",
        )
    values = np.asarray(released[leaf], np.float64).reshape(-1)
    if values.size != 1:
        raise ParameterError(
            owner=owner, name=f"released[{leaf!r}]", expected="one number", got=f"{values.size}"
        )
    return check.real(owner, f"released[{leaf!r}]", float(values[0]))


def _distinct(kind: str, names: list[str]) -> None:
    twice = (
        sorted({name for name in names if names.count(name) > 1})
        if len(set(names)) < len(names)
        else []
    )
    if twice:
        raise ParameterError(
            owner="Bound", name=kind, expected="names that differ", got=f"{twice} more than once"
        )
