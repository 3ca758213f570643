"""One group of vectors: clipped together, summed, noised."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.folding import root_above
from discreet.mechanisms._claims import checked_leaves, claim_leaves
from discreet.mechanisms._frozen import Frozen, frozen
from discreet.mechanisms.bound import Bound
from discreet.mechanisms.group import Clipping, Group
from discreet.mechanisms.mechanism import Mechanism

__all__ = ["Gaussian", "Joint", "Normalised", "NotPrivate"]

# Writes the normalised fields of a frozen value during its construction.
_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class Gaussian(Mechanism):
    """Flat clipping: the leaves are one concatenated vector, clipped to norm `clip_norm`: v *
    min(1, clip_norm/|v|).

    Guarantee: one Gaussian sum with sensitivity clip_norm and noise_std >= noise_multiplier *
    clip_norm (the nearest float64 above), under add-or-remove and zero-out adjacency. [McMahan2018,
    section 2, "separate"]

    ================================  ==============================================
    a record whose norm is            contributes
    ================================  ==============================================
    0                                 the zero vector, at weight 1
    at most clip_norm                 itself: the weight is exactly 1
    within rounding of clip_norm      itself, scaled down by the margin
    above clip_norm                   its direction, at a norm of at most clip_norm
    NaN, infinite                     nothing: its weight is 0
    ================================  ==============================================

    No record at all: the release is noise alone. A clip norm or multiplier that is 0, negative, NaN
    or infinite is refused, and so is a product of the two that float64 cannot hold.

    Args:
        clip_norm: bound on the norm of one record, in its own unit; public.
        noise_multiplier: noise_std / sensitivity; public.

    >>> Gaussian(clip_norm=0.5, noise_multiplier=2.0).bind({"w": 10, "b": 2}).queries
    (GaussianSum(group='all', sensitivity=0.5, noise_std=1.0),)
    """

    clip_norm: float
    noise_multiplier: float

    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        _store_numbers(self)

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """One group of all leaves, at scale 1."""
        sizes = checked_leaves("Gaussian", leaves)
        return _single_group(sizes, name, self)

    def bind_without_leaves(self, name: str = "all") -> Bound:
        """One leaf stands for any: sensitivity and noise do not depend on them."""
        return self.bind({name: 1}, name)

    def with_noise_times(self, factor: float) -> Gaussian:
        """Multiply the noise; the clip norm stays as it is.

        >>> Gaussian(clip_norm=0.5, noise_multiplier=2.0).with_noise_times(1.5)
        Gaussian(clip_norm=0.5, noise_multiplier=3.0)
        """
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def with_clip_norm(self, clip_norm: float) -> Gaussian:
        """Change the clip norm; the multiplier stays, so noise follows."""
        return replace(self, clip_norm=clip_norm)


@dataclass(frozen=True, slots=True)
class Joint(Mechanism):
    """Joint clipping of vectors that live on different scales: clip (v_1/alpha_1, ...,
    v_k/alpha_k), multiply back by alpha_j.

    Guarantee: one Gaussian sum, in the scaled unit, with sensitivity clip_norm; the release is a
    post-processing of it. The noise on leaf j is alpha_j * noise_std. [McMahan2018, section 2,
    "joint"]

    ================================  ==============================================
    case                              what happens
    ================================  ==============================================
    scaled norm 0, small, large, NaN  as in `Gaussian`, with v_j/alpha_j for v_j
    clip_norm above sqrt k            refused: no record on its scales is that long
    a leaf without a scale            refused, with the names
    a scale that no leaf has          refused, with its pattern
    a scale of 0, NaN, infinity       refused
    ================================  ==============================================

    Args:
        clip_norm: S, in the scaled unit, in (0, sqrt k] for k leaves; public.
        noise_multiplier: noise_std / clip_norm; public.
        scales: alpha by pattern over the leaves, first match wins: what the norm of a leaf is
            expected not to exceed; public.

    >>> joint = Joint(clip_norm=1.0, noise_multiplier=0.5, scales={"small": 1.0, "large": 100.0})
    >>> rows = joint.bind({"small": 3, "large": 3}).explain()
    >>> [(row.leaf, row.scale * row.noise_std) for row in rows]
    [('small', 0.5), ('large', 50.0)]
    """

    clip_norm: float
    noise_multiplier: float
    scales: Mapping[str, float]

    kind: ClassVar[str] = "joint"

    def __post_init__(self) -> None:
        _store_numbers(self)
        scales = frozen("Joint", "scales", self.scales)
        checked = (
            (key, check.positive("Joint", f"scales[{key!r}]", value)) for key, value in scales.pairs
        )
        _set(self, "scales", Frozen(tuple(checked)))

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """One group of all leaves, each at the scale of the first pattern that matches it."""
        sizes = checked_leaves("Joint", leaves)
        claimed = claim_leaves("Joint", "scales", self.scales, sizes)

        # A record whose k leaves are as long as their scales has the norm sqrt(k): with a larger
        # clip norm it would not be clipped, and the scales would say nothing.
        if self.clip_norm > math.sqrt(len(sizes)):
            raise ParameterError(
                owner="Joint",
                name="clip_norm",
                expected=f"at most the root of the number of leaves, {math.sqrt(len(sizes))!r}",
                got=repr(self.clip_norm),
                do="It is in the unit of the scaled vectors: enlarge the scales instead.",
            )

        # Back in the order of the leaves, which is the order of a group's scales.
        scale_of = {
            leaf: self.scales[pattern] for pattern, names in claimed.items() for leaf in names
        }
        return _single_group(sizes, name, self, scales=tuple(scale_of[leaf] for leaf in sizes))

    def bind_without_leaves(self, name: str = "all") -> Bound:
        """One leaf for each scale: sensitivity and noise, in the scaled unit, do not depend on
        them. Whether clip_norm suits the number of leaves is checked by `bind`.
        """
        sizes = {f"{name}/{pattern}": 1 for pattern in self.scales}
        return _single_group(sizes, name, self, scales=tuple(self.scales.values()))

    def with_noise_times(self, factor: float) -> Joint:
        """Multiply the noise; clip norm and scales stay as they are."""
        return replace(self, noise_multiplier=self.noise_multiplier * factor)


@dataclass(frozen=True, slots=True)
class Normalised(Mechanism):
    """Automatic clipping: every record is scaled to almost the same norm, v * clip_norm / (|v| +
    stability). [Bu2023]

    Guarantee: as `Gaussian`, since |v| / (|v| + stability) < 1.

    ================================  ==============================================
    a record whose norm is            contributes
    ================================  ==============================================
    0                                 the zero vector, at weight clip_norm/stability
    far below the stability           itself, times clip_norm/stability
    far above the stability           its direction, at a norm just below clip_norm
    NaN, infinite                     nothing: its weight is 0
    ================================  ==============================================

    A stability below 2^-40, or below 2^-40 of the clip norm, is refused: float32 squares underflow.

    Args:
        clip_norm: bound on the norm of one record; with normalised updates it only sets the unit.
            Public.
        noise_multiplier: noise_std / clip_norm; public.
        stability: in the unit of |v|, at least 2^-40 and clip_norm * 2^-40; public. Records far
            below it keep their relative size.

    >>> import numpy as np
    >>> group, = Normalised(clip_norm=1.0, noise_multiplier=1.0, stability=1.0).bind({"w": 2}).start
    >>> group.weights(np.array([[0.0], [9.0]])).round(6).tolist()
    [1.0, 0.25]
    """

    clip_norm: float
    noise_multiplier: float
    stability: float = 0.01

    kind: ClassVar[str] = "normalised"

    def __post_init__(self) -> None:
        _store_numbers(self)
        _set(self, "stability", check.positive("Normalised", "stability", self.stability))
        self.bind_without_leaves()  # refuses a stability that is too small

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """One group of all leaves, at scale 1."""
        sizes = checked_leaves("Normalised", leaves)
        return _single_group(sizes, name, self, stability=self.stability)

    def bind_without_leaves(self, name: str = "all") -> Bound:
        """One leaf stands for any: sensitivity and noise do not depend on them."""
        return self.bind({name: 1}, name)

    def with_noise_times(self, factor: float) -> Normalised:
        """Multiply the noise; clip norm and stability stay as they are."""
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def with_clip_norm(self, clip_norm: float) -> Normalised:
        """Change the clip norm; multiplier and stability stay as they are."""
        return replace(self, clip_norm=clip_norm)


@dataclass(frozen=True, slots=True)
class NotPrivate(Mechanism):
    """No clipping and no noise: a baseline. It has no event, and the run must be marked
    `unsafe_no_privacy`.

    ================================  ==============================================
    a record whose norm is            contributes
    ================================  ==============================================
    any number                        itself: there is no bound
    NaN, infinite                     nothing: its weight is 0
    ================================  ==============================================

    >>> bound = NotPrivate().bind({"w": 2})
    >>> bound.private, bound.queries, bound.noise_multiplier
    (False, (), 0.0)
    """

    kind: ClassVar[str] = "not-private"
    fits_slots: ClassVar[bool] = False  # the average of a slot has no bound either

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """One group of all leaves, without bound and noise."""
        sizes = checked_leaves("NotPrivate", leaves)
        group = Group(
            name=check.label("NotPrivate.bind", "name", name),
            leaves=tuple(sizes),
            scales=(1.0,) * len(sizes),
            clip_norm=math.inf,
            noise_std=0.0,
            clipping=Clipping.NONE,
        )
        return Bound(dimensions=Frozen(tuple(sizes.items())), start=(group,))

    def bind_without_leaves(self, name: str = "all") -> Bound:
        """One leaf stands for any: there is no query."""
        return self.bind({name: 1}, name)


def _store_numbers(mechanism: Gaussian | Joint | Normalised) -> None:
    # Stored as float64, so that a NumPy float32 gives the same event as the number it stands for.
    owner = type(mechanism).__name__
    _set(mechanism, "clip_norm", check.positive(owner, "clip_norm", mechanism.clip_norm))
    multiplier = check.positive(owner, "noise_multiplier", mechanism.noise_multiplier)
    _set(mechanism, "noise_multiplier", multiplier)
    _noise_std(mechanism)  # refuses what has no float64


def _noise_std(mechanism: Gaussian | Joint | Normalised) -> float:
    """The smallest float64 that is at least the product of clip norm and multiplier."""
    # Rounded up: the multiplier of the event is then never below the one that was asked for.
    exact = Fraction(mechanism.clip_norm) * Fraction(mechanism.noise_multiplier)
    return root_above(exact**2)


def _single_group(
    sizes: dict[str, int],
    name: str,
    mechanism: Gaussian | Joint | Normalised,
    *,
    scales: tuple[float, ...] | None = None,
    stability: float | None = None,
) -> Bound:
    """All leaves in one group with the numbers of the mechanism."""
    group = Group(
        name=check.label("bind", "name", name),
        leaves=tuple(sizes),
        scales=scales or (1.0,) * len(sizes),
        clip_norm=mechanism.clip_norm,
        noise_std=_noise_std(mechanism),
        clipping=Clipping.CLIP if stability is None else Clipping.NORMALISE,
        stability=stability or 0.0,
    )
    return Bound(dimensions=Frozen(tuple(sizes.items())), start=(group,))
