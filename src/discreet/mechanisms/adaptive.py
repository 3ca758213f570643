"""Clipping to a quantile of the norms, learnt from released values. [Andrew2021]"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.folding import root_above
from discreet.mechanisms._claims import checked_leaves
from discreet.mechanisms._frozen import Frozen
from discreet.mechanisms.bound import Bound, Threshold
from discreet.mechanisms.gaussian import Gaussian
from discreet.mechanisms.group import Group
from discreet.mechanisms.mechanism import Mechanism

__all__ = ["AdaptiveClip"]

# Writes the normalised fields of a frozen value during its construction.
_set = object.__setattr__
_HALF = 0.5


@dataclass(frozen=True, slots=True)
class AdaptiveClip(Mechanism):
    """A threshold C_t that follows the quantile gamma of the norms |v|. In step t, with expected
    batch size B:

        vectors:  sum of (v/C_t) min(1, C_t/|v|), noise_std z_v, times C_t
                  (sensitivity 1 in the unit of C_t)
        bits:     sum of [|v| <= C_t] - 1/2, noise_std count_noise_std
                  (sensitivity 1/2, as it is centred)
        then:     C_{t+1} = C_t exp(-learning_rate (bits/B + 1/2 - gamma))

    z_v is chosen so that both queries together have the noise multiplier z that was asked for, in
    every step: 1/z^2 = 1/z_v^2 + 1/(2 count_noise_std)^2. So z_v > z: the bit is paid for, not
    free.

    Guarantee: as two Gaussian sums over the same sample, with the same parameters in every step.
    The threshold is a function of released values; C_t is one number in one group, which clips,
    noises and scales back in step t. A zeroed-out record contributes neither vector nor bit.

    ================================  ==============================================
    case                              what happens
    ================================  ==============================================
    a record of norm 0                a zero vector, and the bit +1/2
    a norm of exactly C_t             the bit +1/2, up to the rounding margin
    a record that is NaN or infinite  neither vector nor bit
    no record at all                  noise alone moves the threshold
    an extreme released sum of bits   one step changes C_t by at most e^60
    many such steps                   C_t stays within 2^30 of its start, both ways
    count_noise_std up to z/2         refused: the bits alone would cost too much
    ================================  ==============================================

    Args:
        mechanism: `Gaussian` whose clip_norm is the first threshold C_0 and whose noise_multiplier
            is z, of vectors and bits together.
        quantile: gamma, in (0, 1); public.
        count_noise_std: noise on the sum of bits, in records, above z/2; a twentieth of the
            expected batch size serves. Public.
        learning_rate: of the geometric update; public.

    >>> gaussian = Gaussian(1.0, noise_multiplier=1.1)
    >>> adaptive = AdaptiveClip(gaussian, quantile=0.5, count_noise_std=26.0)
    >>> for query in adaptive.bind({"grad/w": 10}, "grad").queries:
    ...     print(query.group, query.sensitivity, round(query.noise_std, 6))
    grad 1.0 1.100246
    grad/below 0.5 26.0
    """

    mechanism: Gaussian
    quantile: float
    count_noise_std: float
    learning_rate: float = 0.2

    kind: ClassVar[str] = "adaptive-clip"

    def __post_init__(self) -> None:
        owner = "AdaptiveClip"
        check.member(owner, "mechanism", self.mechanism, (Gaussian,))
        _set(self, "quantile", check.fraction(owner, "quantile", self.quantile))
        _set(
            self, "count_noise_std", check.positive(owner, "count_noise_std", self.count_noise_std)
        )
        _set(self, "learning_rate", check.positive(owner, "learning_rate", self.learning_rate))

        # In fractions: at the edge, a rounded comparison would let a division by zero through.
        if 2 * Fraction(self.count_noise_std) <= Fraction(self.mechanism.noise_multiplier):
            raise ParameterError(
                owner=owner,
                name="count_noise_std",
                expected=(
                    f"above half the noise multiplier, {self.mechanism.noise_multiplier / 2!r}"
                ),
                got=repr(self.count_noise_std),
                do=(
                    "Less noise on the bits than that would alone cost more than the multiplier "
                    "allows."
                ),
            )

        self._vector_noise()  # refuses what has no float64

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """The mechanism for these leaves (name to dimension), with one leaf more: the bit,
        `name/below`.
        """
        sizes = checked_leaves("AdaptiveClip", leaves)
        start = self.mechanism.clip_norm
        below = f"{check.label('AdaptiveClip.bind', 'name', name)}/below"

        # The threshold is the scale, and the clip norm 1 in its unit: so the query stays the same
        # when the threshold moves.
        vectors = Group(
            name=name,
            leaves=tuple(sizes),
            scales=(start,) * len(sizes),
            clip_norm=1.0,
            noise_std=self._vector_noise(),
        )

        # A group like any other, noised and charged: what is seen of the norms is not free (P24).
        bits = Group(
            name=below,
            leaves=(below,),
            scales=(1.0,),
            clip_norm=_HALF,
            noise_std=self.count_noise_std,
        )

        threshold = Threshold(
            group=name,
            observed=below,
            start=start,
            quantile=self.quantile,
            learning_rate=self.learning_rate,
        )
        dimensions = Frozen((*sizes.items(), (below, 1)))
        return Bound(dimensions=dimensions, start=(vectors, bits), thresholds=(threshold,))

    def bind_without_leaves(self, name: str = "all") -> Bound:
        """One leaf stands for any: sensitivities and noise do not depend on them."""
        return self.bind({name: 1}, name)

    def with_noise_times(self, factor: float) -> AdaptiveClip:
        """Vectors and bits with `factor` times their noise, so that both keep their shares."""
        inner = self.mechanism.with_noise_times(factor)
        return replace(self, mechanism=inner, count_noise_std=self.count_noise_std * factor)

    def _vector_noise(self) -> float:
        """The noise z_v on vectors, rounded up."""
        # 1/z_v^2 = 1/z^2 - (1/2 / count_noise_std)^2, exactly until the last root.
        total = 1 / Fraction(self.mechanism.noise_multiplier) ** 2
        bits = (Fraction(_HALF) / Fraction(self.count_noise_std)) ** 2
        return root_above(1 / (total - bits))
