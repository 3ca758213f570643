"""What every mechanism is: a frozen value that binds to the leaves of a record.

`bind` is the whole contract. It returns the groups that an engine executes; what the ledger is told
(`Group.query`), how noise is added and how sums are scaled back are all read from those groups, so
a mechanism cannot say one thing and do another. Whoever writes a mechanism, here or in a program of
their own, decides only how leaves are put into groups and with which numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

from discreet.errors import ParameterError
from discreet.mechanisms.bound import Bound

__all__ = ["Mechanism", "checked_mechanism"]


class Mechanism(ABC):
    """How the named vectors of a record are clipped and noised. Derive a frozen dataclass from it.

    A class outside the library is sound, because a plan takes nothing but groups of this library
    from it, exactly one for each leaf (`checked_bound`), and every event is read from the groups
    that are executed. It cannot be written into a file, as no other program could read it back, and
    its queries are unknown until a plan knows its leaves.

    Attributes:
        kind: the name in plan files; empty for a class that is not in the library's own list.
        fits_groups: whether it may be a part of `Groups`.
        fits_slots: whether the averages of slots may take the place of records, see `Microbatches`.
        has_slots: whether any of its groups has slots.

    >>> from dataclasses import dataclass
    >>> from discreet.mechanisms import Gaussian
    >>> @dataclass(frozen=True)
    ... class HalfTheNoise(Mechanism):
    ...     noise_multiplier: float
    ...     def bind(self, leaves, name="all"):
    ...         return Gaussian(1.0, self.noise_multiplier / 2).bind(leaves, name)
    >>> HalfTheNoise(3.0).bind({"grad/w": 10}).queries
    (GaussianSum(group='all', sensitivity=1.0, noise_std=1.5),)
    """

    __slots__ = ()

    kind: ClassVar[str] = ""
    fits_groups: ClassVar[bool] = True
    fits_slots: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        # A subclass of Gaussian could bind to other groups than those that a plan without leaves
        # was accounted with, or that its file names.
        if any(base is not Mechanism and issubclass(base, Mechanism) for base in cls.__bases__):
            raise ParameterError(
                owner=cls.__name__,
                name="base",
                expected="Mechanism itself: every mechanism is final",
                got=", ".join(base.__name__ for base in cls.__bases__),
                do="Hold the other mechanism in a field, and call its bind.",
            )

    @abstractmethod
    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """The groups for these leaves.

        Args:
            leaves: name and dimension of each vector of a record; public.
            name: what the ledger calls the group, or the prefix of its groups.
        """

    def bind_without_leaves(self, name: str = "all") -> Bound:
        """The groups on leaves that stand for any others: with the queries of every `bind`.

        Raises:
            ParameterError: the queries depend on the leaves, or may do so.
        """
        del name
        raise ParameterError(
            owner=type(self).__name__,
            name="leaves",
            expected="known, to state the queries of a mechanism that may depend on them",
            got="a plan without leaves",
            do="Bind the mechanism first: plan.for_leaves({...}).",
        )

    def open_groups(self, name: str = "all") -> tuple[str, ...]:
        """Names of the groups that are neither clipped nor noised, whatever the leaves."""
        return self.bind_without_leaves(name).open_groups

    @property
    def has_slots(self) -> bool:
        """Whether slots are clipped in the place of records."""
        return False

    def with_noise_times(self, factor: float) -> Self:
        """Multiply the noise of every group, so that groups keep their shares of the budget.

        Raises:
            ParameterError: it has no noise, or does not say how it scales.
        """
        del factor
        raise ParameterError(
            owner="Programme",
            name="mechanism",
            expected="noise to scale",
            got=type(self).__name__,
        )

    def with_clip_norm(self, clip_norm: float) -> Self:
        """Change the clip norm of gradients, and nothing else.

        Raises:
            ParameterError: no single clip norm bounds them.
        """
        raise ParameterError(
            owner="Phase",
            name="clip_norm",
            expected=(
                "left out, unless one group takes all gradients (grad/...) and has a clip norm of "
                "its own"
            ),
            got=f"{clip_norm!r} for {type(self).__name__}",
            do="Make a plan for each phase, and a Programme of them.",
        )


def checked_mechanism(owner: str, name: str, mechanism: object) -> Mechanism:
    """A mechanism that cannot change after it was declared: a frozen dataclass.

    Args:
        owner: who asks, for the error.
        name: of the parameter, for the error.
        mechanism: what was passed in.
    """
    # Of the class itself, not inherited: a class that derives from a frozen dataclass without the
    # decorator may have fields that change.
    parameters = type(mechanism).__dict__.get("__dataclass_params__")
    if isinstance(mechanism, Mechanism) and parameters is not None and parameters.frozen:
        return mechanism

    raise ParameterError(
        owner=owner,
        name=name,
        expected="a mechanism of discreet.mechanisms, or a frozen dataclass derived from Mechanism",
        got=f"a value of type {type(mechanism).__name__}",
        do="See docs/extending.md: what is executed and charged are the groups that bind returns.",
    )
