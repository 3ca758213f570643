"""A mechanism bound to the leaves of a record: what every engine executes, step after step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
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

# A threshold stays within this factor of its start.
_WIDEST = 2.0**30


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

        # Noise alone may drive it for thousands of steps, and a group refuses scales at the ends of
        # the range of float32.
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
        # A leaf in two groups would be released twice and charged as if it were two vectors; the
        # folding of groups into one query rests on it (docs/proofs/mechanisms.md, section 4).
        leaves = list(chain.from_iterable(group.leaves for group in self.start))
        _distinct("group", [group.name for group in self.start])
        _distinct("leaf", leaves)
        _distinct("leaf", list(self.dimensions))

        if set(leaves) != set(self.dimensions):
            raise ParameterError(
                owner="Bound",
                name="dimensions",
                expected="one for each leaf of the groups",
                got=f"{sorted(self.dimensions)} for {[group.leaves for group in self.start]}",
            )

    @classmethod
    def merged(cls, bounds: Iterable[Bound]) -> Bound:
        """Several mechanisms on the same sample."""
        # That no two of them take the same leaf, or the same name, is checked by the constructor.
        parts = tuple(bounds)
        pairs = chain.from_iterable(part.dimensions.pairs for part in parts)
        return cls(
            dimensions=Frozen(tuple(pairs)),
            start=tuple(chain.from_iterable(part.start for part in parts)),
            thresholds=tuple(chain.from_iterable(part.thresholds for part in parts)),
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
        # By type, not by isinstance: a subclass may override what the proof is about. Types come
        # first, as another class need not have the names that are compared last.
        names = {group.name for group in self.start}
        return (
            set(map(type, self.start)) <= {Group}
            and set(map(type, self.thresholds)) <= {Threshold}
            and {threshold.group for threshold in self.thresholds} <= names
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

        # Only scales move. Clip norm and noise in the scaled unit stay, and with them the event of
        # every step (docs/proofs/mechanisms.md, section 5).
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
                raise ParameterError(
                    owner="Bound.observations",
                    name="squared_norms",
                    expected=f"squared norms of group {threshold.group!r}",
                    got=f"groups {sorted(squared_norms)}",
                )

            # The same ratio that clips. Centred, because a bit of 0 or 1 would have twice the
            # sensitivity that is charged (P24); zero where the record contributes no vector.
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
            # The half undoes the centring of the bits. With few records, or much noise, the
            # fraction may lie outside of [0, 1]; the threshold then moves by more, and no harm.
            total = _number(released, threshold.observed)
            fraction = total / by_name[threshold.group].divisor(expected_batch_size) + 0.5
            moved[threshold.group] = threshold.moved(now[threshold.group], fraction)

        return Frozen(tuple(moved.items()))

    def explain(self) -> tuple[LeafRow, ...]:
        """One row for each leaf, in the order of the groups."""
        # Exact fractions, so that shares that should be equal are shown as equal.
        total = sum((query.gaussian_cost for query in self.queries), Fraction(0))
        unbounded = len(self.open_groups)

        rows = []
        for group in self.groups(self.initial_state):
            share = _share(group, total, unbounded)
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
        # A state comes back from checkpoints: one of another plan must not set thresholds here.
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

    # Bits of adaptive clipping are leaves of the bound that no record brings.
    brought = {leaf: size for leaf, size in bound.dimensions.items() if leaf not in bound.observed}
    if brought != dict(leaves):
        raise ParameterError(
            owner=owner,
            name="mechanism",
            expected=f"one that takes every leaf, {sorted(leaves)}, with its dimension",
            got=f"groups for {sorted(brought)}",
        )

    return bound


def _share(group: Group, total: Fraction, unbounded: int) -> float:
    """What a group costs of the total; groups without noise cost everything."""
    if not group.private:
        return 1.0 / unbounded

    # Its term (S/noise_std)^2 of Eq. 1; beside a group without noise nothing else counts.
    return 0.0 if unbounded else float(group.query.gaussian_cost / total)


def _number(released: Mapping[str, Array], leaf: str) -> float:
    owner = "Bound.update"
    if leaf not in released:
        raise ParameterError(
            owner=owner,
            name="released",
            expected=f"a value for {leaf!r}",
            got=f"{sorted(released)}",
        )

    # One number in whatever shape: engines release arrays, some of them without axes.
    values = np.asarray(released[leaf], np.float64).reshape(-1)
    if values.size != 1:
        raise ParameterError(
            owner=owner, name=f"released[{leaf!r}]", expected="one number", got=f"{values.size}"
        )

    return check.real(owner, f"released[{leaf!r}]", float(values[0]))


def _distinct(kind: str, names: list[str]) -> None:
    # Counted in one pass: a large model has thousands of leaves.
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ParameterError(
            owner="Bound", name=kind, expected="names that differ", got=f"{twice} more than once"
        )
