"""A group as it is executed: from norms to weights, how much noise, which event.

For the vectors v_1 ... v_k of one record, with public scales alpha_j and the clip norm S:

    v_j / alpha_j  ->  n = sqrt(sum_j |v_j|^2 / alpha_j^2)  ->  one weight w(n)  ->  sum over
    records of w * v_j / alpha_j
                   ->  + noise_std on every coordinate, once  ->  * alpha_j (post-processing)

Flat clipping is alpha_j = 1; joint clipping has scales of its own; adaptive clipping has alpha_j =
the current threshold and S = 1. So there is one code path, and the event (S, noise_std) is in the
scaled unit, which is the unit the noise is added in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from discreet import _validate as check
from discreet.errors import NumericsError, ParameterError
from discreet.ledger.events import GaussianSum
from discreet.numerics.norms import tree_sums

__all__ = ["Array", "Clipping", "Group"]

Array: TypeAlias = Any
"""An array of NumPy or torch (or anything with their operators): float32 or float64."""

# Writes the normalised fields of a frozen value during its construction.
_set = object.__setattr__

# By bytes of one number: unit roundoff, least and most scale * clip_norm. The least is such that a
# square that underflows, or is flushed to zero, is below the roundoff when divided by (scale *
# clip_norm)^2.
_RANGES = {4: (2.0**-24, 2.0**-48, 2.0**120), 8: (2.0**-53, 2.0**-480, 2.0**1000)}

# Of any other format: every comparison with it is false, so that all of them are refused.
_NO_RANGE = (math.nan, math.nan, math.nan)
# Besides two per leaf; docs/proofs/mechanisms.md, section 1, counts 8.5 and one per leaf.
_ROUNDINGS = 16
# Relative to the clip norm and to 1: far above what squares of float32 lose by underflow.
_LEAST_STABILITY = 2.0**-40


class Clipping(Enum):
    """How the norm n of a record becomes its weight, with clip norm S."""

    CLIP = "clip"  # min(1, S/n)
    NORMALISE = "normalise"  # S/(n + stability)
    NONE = "none"  # 1: not private


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The vectors that share a clipping rule and a noise scale. Made by `bind`; every field is
    public.

    Guarantee: for squared norms that are not below the true ones, |w * (v_1/alpha_1, ...,
    v_k/alpha_k)| <= clip_norm in real arithmetic, whatever the record (docs/proofs/mechanisms.md,
    section 1). What an engine's own products and sums round is the engine's to add or to check.
    Without a guarantee: `Clipping.NONE`.

    Args:
        name: of the group, in the ledger.
        leaves: names of its vectors.
        scales: alpha_j, one for each leaf.
        clip_norm: S, in the scaled unit; infinite without clipping.
        noise_std: on every coordinate of the scaled sum; 0 without clipping.
        clipping: how norms become weights.
        stability: added to the norm where it is normalised, in the scaled unit.
        slots: None, or the number of slots whose averages are clipped in the place of records (see
            `Microbatches`).
    """

    name: str
    leaves: tuple[str, ...]
    scales: tuple[float, ...]
    clip_norm: float
    noise_std: float
    clipping: Clipping = Clipping.CLIP
    stability: float = 0.0
    slots: int | None = None

    def __post_init__(self) -> None:
        if not self.leaves or len(self.scales) != len(self.leaves):
            raise ParameterError(
                owner="Group",
                name="scales",
                expected="one for each leaf, at least one",
                got=f"{len(self.leaves)} leaves, {len(self.scales)} scales",
            )

        # Stored as checked: with numbers of float32, engines would compute in float32.
        _set(self, "name", check.label("Group", "name", self.name))
        _set(self, "leaves", tuple(self.leaves))
        _set(self, "scales", tuple(check.positive("Group", "scales", s) for s in self.scales))
        if self.slots is not None:
            _set(self, "slots", check.whole("Group", "slots", self.slots, least=1))

        # Numbers of a group without clipping must say that there are none: a finite clip norm that
        # nobody applies could be read as a bound.
        if self.clipping is not Clipping.NONE:
            _set(self, "clip_norm", check.positive("Group", "clip_norm", self.clip_norm))
            _set(self, "noise_std", check.positive("Group", "noise_std", self.noise_std))
        elif (self.clip_norm, self.noise_std) != (math.inf, 0.0):
            raise ParameterError(
                owner="Group",
                name="clip_norm",
                expected="infinite, noise_std 0, without clipping",
                got=f"{self.clip_norm!r} and {self.noise_std!r}",
            )

        # It has to cover what underflow hides of a norm (docs/proofs/mechanisms.md, section 1).
        least = _LEAST_STABILITY * max(self.clip_norm, 1.0 / min(self.scales))
        if self.clipping is Clipping.NORMALISE and not least <= check.positive(
            "Group", "stability", self.stability
        ):
            raise ParameterError(
                owner="Group",
                name="stability",
                expected="at least 2^-40 of the clip norm, and 2^-40 in the unit of the vectors: "
                f"{least:.3g}",
                got=repr(self.stability),
            )

    @property
    def private(self) -> bool:
        """Whether there is a bound and noise at all."""
        return self.clipping is not Clipping.NONE

    @property
    def sensitivity(self) -> float:
        """Largest change of the scaled sum when one record is added, removed or zeroed out; twice
        the bound for slots.
        """
        # A record may turn the clipped average of its slot around (docs/proofs/mechanisms.md,
        # section 6).
        return self.clip_norm if self.slots is None else 2.0 * self.clip_norm

    @property
    def query(self) -> GaussianSum:
        """What is executed, as the ledger records it. A group that is not private has no event: an
        error.
        """
        if not self.private:
            raise ParameterError(
                owner="Group",
                name="query",
                expected="a group that is clipped and noised",
                got=f"{self.name!r} with clipping none",
                do="Mark the run unsafe_no_privacy.",
            )

        return GaussianSum(self.name, self.sensitivity, self.noise_std)

    def divisor(self, expected_batch_size: float) -> float:
        """What turns the released sum into an average: the number of slots, or else the expected
        batch size. Public.
        """
        size = check.positive("Group.divisor", "expected_batch_size", expected_batch_size)
        return size if self.slots is None else float(self.slots)

    def weights(self, squared_norms: Array) -> Array:
        """One weight for each record (or slot), rounded down.

        A record with a norm that is not finite, or negative, has weight 0. Leave such a record out:
        0 * NaN is NaN. Without clipping needed (n <= S up to the margin) the weight is exactly 1; a
        zero norm has weight 1, or S/stability.

        Args:
            squared_norms: |v_j|^2 of the unscaled vectors, records x leaves, float32 or float64;
                sensitive.

        Raises:
            NumericsError: half precision, in which a squared norm is meaningless, or a scale
                outside the range of the numbers.

        >>> group = Group(
        ...     name="g", leaves=("a", "b"), scales=(1.0, 100.0), clip_norm=1.0, noise_std=1.0
        ... )
        >>> squares = np.array([[0.25, 0.0], [4.0, 0.0], [0.0, 90_000.0], [math.nan, 0.0]])
        >>> group.weights(squares).round(6).tolist()
        [1.0, 0.5, 0.333333, 0.0]
        """
        with np.errstate(all="ignore"):  # infinities are meant; torch has no such state
            ratio, valid = self.ratios(squared_norms)

            # Arithmetic on the norms in the place of a constant: weights are then an array of their
            # kind, in their format and on their device.
            if self.clipping is Clipping.NONE:
                weights = squared_norms[:, 0] * 0.0 + 1.0
            elif self.clipping is Clipping.NORMALISE:
                weights = 1.0 / (ratio + self.stability / self.clip_norm)
            else:
                weights = 1.0 / ratio.clip(min=1.0)

            # Last, whatever came out for it above (P13).
            weights[~valid] = 0.0
            return weights

    def ratios(self, squared_norms: Array) -> tuple[Array, Array]:
        """n/S of each record, rounded up, and whether its norms are numbers (sensitive). Without
        clipping: zeros.
        """
        self._check_shape(squared_norms)

        # Comparisons are false for NaN, so that it needs no test of its own.
        valid = ((squared_norms >= 0.0) & (squared_norms < math.inf)).all(-1)

        # Leaves of one scale are summed before they are divided: mostly all of them.
        columns: dict[float, list[int]] = {}
        for column, scale in enumerate(self.scales):
            columns.setdefault(scale, []).append(column)

        with np.errstate(all="ignore"):
            square: Array = 0.0
            for scale, numbers in columns.items():
                bound = scale * self.clip_norm
                alike = squared_norms if len(columns) == 1 else squared_norms[:, numbers]

                # Divided twice: the square of the bound may under- or overflow. Summed by a tree
                # whose order depends on the number of leaves only: otherwise the bits of one
                # record's weight could depend on how many records there are.
                square = tree_sums(alike + 0.0) / bound / bound + square

            return square**0.5 * (1.0 + self._margin(square.dtype.itemsize)), valid

    def _check_shape(self, squared_norms: Array) -> None:
        if len(squared_norms.shape) != 2 or squared_norms.shape[1] != len(self.leaves):
            raise ParameterError(
                owner="Group.weights",
                name="squared_norms",
                expected=f"of shape (records, {len(self.leaves)})",
                got=str(tuple(squared_norms.shape)),
            )

    def _margin(self, width: int) -> float:
        """More than all roundings of `ratios` and `weights` together, relative."""
        unit_roundoff, smallest, largest = _RANGES.get(width, _NO_RANGE)
        bounds = [scale * self.clip_norm for scale in self.scales] if self.private else [1.0]

        # Each of these is a premise of the claim: underflow below the roundoff, no overflow of a
        # bound, and so few leaves that products of errors do not count.
        in_range = smallest <= min(bounds) and max(bounds) <= largest
        if not (in_range and len(self.leaves) * unit_roundoff < 0.1):
            raise NumericsError(
                expected=(
                    "squared norms in float32 or float64, and scale * clip_norm well inside their "
                    "range"
                ),
                got=(
                    f"{8 * width} bits, {len(self.leaves)} leaves, scale * clip_norm from "
                    f"{min(bounds):g} to {max(bounds):g}"
                ),
                do="Measure norms in float32 or float64; check the units of clip_norm and scales.",
            )

        return (2 * len(self.leaves) + _ROUNDINGS) * unit_roundoff
