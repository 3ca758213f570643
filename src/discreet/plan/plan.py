"""What is declared before the first step: what is protected, how samples are drawn, what is done
with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from discreet import _validate as check
from discreet._digits import nearest
from discreet.accounting.normalise import normalise
from discreet.errors import ParameterError
from discreet.ledger.events import GaussianSum, Poisson, Step
from discreet.ledger.folding import folded_noise_multiplier
from discreet.ledger.snapshot import RunRecord, Snapshot
from discreet.ledger.storage.rows import LONGEST_PLAN, RunInfo
from discreet.mechanisms import Bound, Gaussian, Groups, Mechanism, checked_bound
from discreet.mechanisms._frozen import Frozen, frozen
from discreet.mechanisms.mechanism import checked_mechanism
from discreet.plan import text, vocabulary
from discreet.plan.calibrated import Request, Target
from discreet.plan.declaration import Declaration
from discreet.plan.explanation import explanation
from discreet.plan.schedule import Schedule
from discreet.sampling import Sampler
from discreet.units import Adjacency, Numerics, Parameters, Randomness, Unit

__all__ = ["Plan"]

# Marks of the ledger; with any of them a guarantee is void.
_NO_PRIVACY = "unsafe_no_privacy"
_OWN_DRAW = "unsafe_own_draw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Declaration["Plan"]):
    """A run that has not happened yet. An accountant reads it as it reads a ledger.

    A plan is the one source of truth for clip norms, noise and sampling. It is frozen, shares no
    mutable object with whoever made it, and is equal by value.

    Args:
        sampler: policy, number of records and number of steps; a `Schedule` where the number of
            records is not yet known.
        mechanism: what is done with the named vectors of a record.
        unit, adjacency: what is protected, against which change of the data.
        leaves: name and dimension of every vector of a record; usually filled in by the engine, see
            `for_leaves`.
        numerics: least level of the arithmetic with which the plan is to be executed; an engine
            that cannot must refuse. The ledger says which level it was.
        target: what the plan was calibrated for, if anything: a wish, never a guarantee.

    >>> plan = Plan.dpsgd(records=60_000, expected_batch_size=600, epochs=10, noise_multiplier=1.1)
    >>> plan.step.sampling, plan.step.queries
    (Poisson(probability=0.01), (GaussianSum(group='grad/*', sensitivity=1.0, noise_std=1.1),))
    >>> plan.steps, plan.expected_batch_size
    (1000, 600.0)
    >>> Plan.from_toml(plan.to_toml()) == plan
    True
    """

    sampler: Sampler | Schedule
    mechanism: Mechanism
    unit: Unit = Unit.EXAMPLE
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE
    leaves: Mapping[str, int] | None = None
    numerics: Numerics = Numerics.CERTIFIED
    target: Target | None = None
    _bound: Bound | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        owner = "Plan"
        check.member(owner, "sampler", self.sampler, (Sampler, Schedule))
        checked_mechanism(owner, "mechanism", self.mechanism)
        check.member(owner, "unit", self.unit, (Unit,))
        check.instance(owner, "adjacency", self.adjacency, Adjacency)
        check.instance(owner, "numerics", self.numerics, Numerics)
        if self.target is not None:
            check.member(owner, "target", self.target, (Target,))

        # Whoever draws users protects users: a plan that says "example" over them would state a
        # guarantee about another unit than the one that is left out or in.
        owners = self.sampler.owners
        if owners is not None and owners.unit != self.unit:
            raise ParameterError(
                owner=owner,
                name="unit",
                expected=f"the unit that the sampler draws, {owners.unit}",
                got=str(self.unit),
            )

        bound = None
        if self.leaves is not None:
            # A copy of its own, in whole numbers: the caller's dict may change later, the plan not.
            sizes = frozen(owner, "leaves", self.leaves)
            leaves = Frozen(
                tuple(
                    (leaf, check.whole(owner, f"leaves[{leaf!r}]", sizes[leaf], least=1))
                    for leaf in sizes
                )
            )

            # Binding also checks that every leaf is claimed, and that every pattern claims one.
            bound = checked_bound(owner, self.mechanism.bind(leaves), leaves)
            object.__setattr__(self, "leaves", leaves)

        object.__setattr__(self, "_bound", bound)

    @classmethod
    def dpsgd(  # noqa: PLR0913  (four numbers in two notations each; `Request` checks them)
        cls,
        *,
        records: int | None = None,
        expected_batch_size: float | None = None,
        sampling_probability: float | None = None,
        epochs: float | None = None,
        steps: int | None = None,
        clip_norm: float = 1.0,
        noise_multiplier: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        unit: Unit = Unit.EXAMPLE,
        adjacency: Adjacency = Adjacency.ADD_OR_REMOVE,
        numerics: Numerics = Numerics.CERTIFIED,
    ) -> Plan:
        """Poisson samples, one clipped and noised sum of gradients in each step; the one missing
        number is calibrated.

        Of batch, duration, noise_multiplier and epsilon, exactly one is left out. Without epsilon
        the plan is taken as it is; otherwise the missing number is searched for, and the plan's
        certified epsilon is at most the one asked for.

        Args:
            records: number of records [public]; needed to draw samples, and for
                `expected_batch_size`.
            expected_batch_size: of one sample; divided by records it is the probability.
            sampling_probability: of each record in each step, in the place of expected_batch_size.
            epochs: passes over the data; epochs * records / expected_batch_size steps, rounded up
                (`calibrated.steps_of`).
            steps: number of steps, in the place of epochs.
            clip_norm: bound on the norm of one record's gradient.
            noise_multiplier: noise standard deviation on the sum, divided by clip_norm.
            epsilon: the target.
            delta: of the target; left out, `default_delta(records)`.
            unit: what is protected.
            adjacency: against which change of the data.
            numerics: least level of the arithmetic.

        Raises:
            AccountingError: no value meets the target; the message names the floor.

        >>> plan = Plan.dpsgd(records=60_000, expected_batch_size=512, epochs=20, epsilon=3.0)
        >>> plan.steps, round(plan.noise_multiplier, 2), plan.target
        (2344, 0.95, Target(epsilon=3.0, delta=1e-06))
        """
        request = Request(
            records=records,
            expected_batch_size=expected_batch_size,
            sampling_probability=sampling_probability,
            steps=steps,
            epochs=epochs,
            noise_multiplier=noise_multiplier,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
        )

        # Before the search, which may take seconds: a wrong number should fail at once.
        clip = check.positive("Plan.dpsgd", "clip_norm", clip_norm)
        numbers = request.complete()

        policy = Poisson(numbers.probability)
        sampler: Sampler | Schedule = Schedule(policy, steps=numbers.steps)
        if request.records is not None:
            sampler = Sampler(policy, records=request.records, steps=numbers.steps)

        plan = cls(
            sampler=sampler,
            mechanism=Groups({"grad/*": Gaussian(clip, numbers.noise_multiplier)}),
            unit=unit,
            adjacency=adjacency,
            numerics=numerics,
            target=numbers.target,
        )

        # The search worked with bare numbers. What carries the target is this very plan, so it is
        # accounted once more: the answer cannot be off by how the numbers became a plan.
        return plan if numbers.target is None else plan.certified(numbers.target)

    # --- what it says ---

    @property
    def steps(self) -> int:
        """Number of steps of the ledger, fixed in advance."""
        return self.sampler.steps

    @property
    def expected_batch_size(self) -> float:
        """The public divisor of sums."""
        return self.sampler.expected_batch_size

    @property
    def private(self) -> bool:
        """False if any group is neither clipped nor noised."""
        return not self.open_groups()

    @property
    def bound(self) -> Bound:
        """The groups that an engine executes; an error while the leaves are not known."""
        if self._bound is None:
            raise ParameterError(
                owner="Plan",
                name="leaves",
                expected="known where a plan is executed",
                got="None",
                do="Use plan.for_leaves({...}).",
            )

        return self._bound

    @property
    def step(self) -> Step:
        """What every step asks of its sample, as the ledger records it."""
        queries = self.queries()
        if not queries:
            raise ParameterError(
                owner="Plan",
                name="mechanism",
                expected="a mechanism with noise: without, there is no event",
                got=type(self.mechanism).__name__,
                do=f"Mark the run {_NO_PRIVACY}.",
            )

        return Step(self.sampler.event, queries)

    @property
    def noise_multiplier(self) -> float:
        """All groups folded into one, (sum_g (S_g/noise_std_g)^2)^(-1/2), rounded down; 0 if any
        group is not private.
        """
        return folded_noise_multiplier(self.queries()) if self.private else 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know before trusting the numbers, in words."""
        notes = []

        if not self.private:
            notes.append(
                f"NOT PRIVATE: {', '.join(self.open_groups())} is released without clipping and "
                f"noise; the run must be marked {_NO_PRIVACY}"
            )

        if self.target is not None and isinstance(self.sampler, Sampler):
            chance = 1.0 / self.sampler.records
            if self.target.delta >= chance:
                notes.append(
                    f"delta {self.target.delta!r} is not below 1/records = {nearest(chance)}: "
                    "publishing one record at random would already meet it"
                )

        # With owners the sampler draws whole units. Without, a row is taken for a unit, and only
        # the user knows whether it is one.
        if self.unit != Unit.EXAMPLE and self.sampler.owners is None:
            notes.append(
                f"each record must hold everything of one {self.unit}; the sampler cannot check it"
            )

        if self._own_draw:
            notes.append(
                "NO GUARANTEE: samples are drawn by code of your own, whose law nobody checked; "
                f"the run must be marked {_OWN_DRAW}"
            )

        if self.numerics is Numerics.IDEALISED:
            notes.append(
                "floating-point sums and noise may be taken for real numbers, which is an "
                "assumption"
            )

        return tuple(notes)

    # --- towards execution ---

    def certified(self, target: Target) -> Plan:
        """Give the plan this target, if the accountant's upper bound meets it.

        Raises:
            AccountingError: it does not.
        """
        return replace(self, target=self.check_target(target))

    def for_leaves(self, leaves: Mapping[str, int]) -> Plan:
        """Bind the plan to these vectors.

        Every one must be claimed by a group, and every group must claim one.

        Args:
            leaves: dimension of each vector, by name [public].
        """
        bound = replace(self, leaves=leaves)

        # A plan that was accounted for one model must not be executed on another.
        if self.leaves is not None and bound.leaves != self.leaves:
            raise ParameterError(
                owner="Plan.for_leaves",
                name="leaves",
                expected=f"the plan's {self.leaves}",
                got=repr(bound.leaves),
            )

        return bound

    def run_info(
        self,
        label: str = "",
        *,
        randomness: Randomness = Randomness.SYSTEM,
        parameters: Parameters = Parameters.FIXED_IN_ADVANCE,
        numerics: Numerics | None = None,
    ) -> RunInfo:
        """What to begin a ledger's run with.

        Args:
            label: the run's name, for people.
            numerics: level that is executed; that of the plan by default. Below it: ParameterError.
            randomness: where noise and samples really come from.
            parameters: whether the plan, and after how many of its steps to stop, was settled
                without a look at releases.

        Raises:
            AccountingError: no analysis covers this sampling, these queries and this adjacency
                together. A run could be executed and charged, but nothing could ever be said about
                it, nor about its ledger.
        """
        # What is executed, which an engine may raise above what the plan asks for.
        level = self.numerics
        if numerics is not None:
            level = check.instance("Plan.run_info", "numerics", numerics, Numerics)

        if not level.serves(self.numerics):
            raise ParameterError(
                owner="Plan.run_info",
                name="numerics",
                expected=f"at least {self.numerics.value}, as the plan says",
                got=level.value,
                do="Choose another engine, or write the lower level into the plan.",
            )

        # Only for its error: an accountant that cannot read the step says so now, and not after the
        # data was used.
        queries = self.queries()
        if queries:
            normalise([(self.step, 1)], self.adjacency)

        names = self.open_groups() + tuple(query.group for query in queries)
        return RunInfo(
            unit=self.unit,
            adjacency=self.adjacency,
            groups=names,
            numerics=level,
            randomness=randomness,
            parameters=parameters,
            label=label,
        )

    def snapshot(self) -> Snapshot:
        """What a ledger would hold if the plan were executed: what accountants and reports read of
        it.
        """
        # A step without a query is no event: such a plan shows its marks and is charged nothing.
        charged = ((self.step, self.steps),) if self.queries() else ()
        run = RunRecord(info=self.run_info(), charged=charged)
        return Snapshot(runs=(run,), marks=self.marks())

    @property
    def plans(self) -> Mapping[str, Plan]:
        """Itself, without a name: a plan is a programme of one."""
        return {"": self}

    def marks(self) -> tuple[str, ...]:
        """Names of what voids the guarantee; a run of this plan must be marked with each of them
        before its first step.
        """
        # Each is a fact of its own: a plan may have both, and both are named.
        applies = {_NO_PRIVACY: not self.private, _OWN_DRAW: self._own_draw}
        return tuple(mark for mark in applies if applies[mark])

    @property
    def _own_draw(self) -> bool:
        """Whether a user's own code draws the samples."""
        return self.sampler.unsafe_drawn_by is not None

    def queries(self) -> tuple[GaussianSum, ...]:
        """What every step asks; without leaves an error where that depends on them."""
        bound = self.mechanism.bind_without_leaves() if self._bound is None else self._bound
        return bound.queries

    def open_groups(self) -> tuple[str, ...]:
        """Names of the groups that are not private."""
        # Asked of the mechanism itself before the leaves are known: that a group has no noise never
        # depends on them, while its queries may.
        return self.mechanism.open_groups() if self._bound is None else self._bound.open_groups

    # --- for people and files ---

    def explain(self, *, delta: float | None = None) -> str:
        """The plan as a table: what is done with each leaf, what share of the budget it takes, what
        is worth knowing.

        Args:
            delta: states the guarantee at this delta; without it no epsilon is claimed.
        """
        return explanation(self, delta)

    def as_row(self) -> str:
        """The plan as a ledger holds it: JSON; empty where it is very long, or holds data or a
        user's own code, which no ledger does.
        """
        try:
            written = self.to_json()
        except ParameterError:
            return ""

        # Cut off, it would be no JSON; the ledger's events say what was done in any case.
        return written if len(written) <= LONGEST_PLAN else ""

    def _plain(self) -> dict[str, text.Plain]:
        # Both fields are among those that `vocabulary` leaves out. Left out in silence, the file
        # would read back as another plan.
        if self._own_draw:
            raise ParameterError(
                owner="Plan",
                name="sampler",
                expected="a sampler of the library's own policies: a file holds no code",
                got="unsafe_drawn_by",
            )

        if self.sampler.owners is not None:
            raise ParameterError(
                owner="Plan",
                name="sampler",
                expected="a sampler without owners: who owns which row is data, and a plan holds "
                "declarations only",
                got="owners",
            )

        return vocabulary.written({name: getattr(self, name) for name in vocabulary.PLAN_FIELDS})

    @classmethod
    def _read(cls, data: Mapping[str, text.Plain]) -> Plan:
        return cls(**vocabulary.read_plan_fields(data))
