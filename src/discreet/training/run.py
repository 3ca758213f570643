"""Private training: the user's own model, loss and optimizer; batches and gradients from here.

for batch in run.batches(dataset):     a sample, charged before it is drawn
run.backward(loss, batch)          clipped, summed, noised: parameters get the noised average as their gradient
optimizer.step()
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from discreet import _validate as check
from discreet.aggregation.release import Release
from discreet.aggregation.session import Session
from discreet.aggregation.sums import grid_of
from discreet.errors import ModelError, NumericsError, ParameterError, SampleMisuse
from discreet.ledger import Ledger
from discreet.ledger.events import FixedSize, TruncatedPoisson
from discreet.mechanisms import Group, State
from discreet.plan import Plan
from discreet.randomness import Source
from discreet.randomness.gaussian import announce as announce_noise
from discreet.randomness.gaussian import release_all
from discreet.sampling import Sample
from discreet.training.batch_norm import PrivateBatchNorm
from discreet.training.engine import Engine, Loss
from discreet.training.fetching import Collate, Rows, at_once, fetched
from discreet.training.precision import Chunk, chunk_for, inner_group, lookups, most_spread
from discreet.training.products import even_places
from discreet.training.quiet import seeded
from discreet.training.rows import check_rows, select
from discreet.training.rules._lstm import announce as announce_passes
from discreet.training.sums import Sums, refuse_slots
from discreet.units import Numerics, Parameters

__all__ = ["Batch", "PrivateRun"]

_KEPT = 32  # inner groups that are remembered


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The records of one sample, in random order. Sensitive: also how many there are.

    Args:
        sample: that was drawn; serves one `backward`.
        data: what the data set gave, collated; None for an empty sample.
    """

    sample: Sample
    data: Any


class PrivateRun:
    """Executes a plan on a PyTorch model.

    Guarantee: what `backward` writes into the parameters' gradients, and returns, is post-processing of the Gaussian queries
    that the ledger was charged with before the sample was drawn. Clipped sums are floating-point numbers whose rounding is part
    of the sensitivity, noise is exact: numerics `certified`. This holds if a record's numbers depend neither on the other
    records nor on its place (docs/proofs/sums.md, assumption A; the first step tests it). Losses, outputs and activations are
    the user's own: whatever else is made of them is not covered.

    Args:
        model: every parameter that requires a gradient is trained: leaf "grad/<name>". Batch normalisation in train mode needs
            a group of the plan for its statistics: leaf "bn/<name>" (see `PrivateBatchNorm`).
        plan: with a number of records; its leaves are filled in here.
        ledger: of the data set, open to append.
        statistics: further leaves that the loss returns for each record, name to size, such as {"metric/accuracy": 1}.
        microbatch: records of one pass; by default as many as memory allows.
        memory_budget: bytes that a pass may take, by estimate.
        source, label, parameters: as for `Aggregator`.
    """

    def __init__(  # noqa: PLR0913  (model, plan and ledger; everything else has a default)
        self,
        model: nn.Module,
        plan: Plan,
        *,
        ledger: Ledger,
        statistics: Mapping[str, int] | None = None,
        microbatch: int | None = None,
        memory_budget: int = 2**31,
        source: Source | None = None,
        label: str = "",
        parameters: Parameters = Parameters.FIXED_IN_ADVANCE,
    ) -> None:
        owner = "PrivateRun"
        self._budget = check.whole(owner, "memory_budget", memory_budget, least=1)
        check.instance(owner, "model", model, nn.Module)
        norms = PrivateBatchNorm.in_plan(model, check.instance(owner, "plan", plan, Plan))
        self._engine = Engine(model, batch_norm=norms, memory_budget=self._budget // 8)
        if not self._engine.parameters:
            raise ModelError(
                expected="a model with a parameter to train",
                got="none that requires a gradient",
                do="Call requires_grad_(True) on what is to be trained.",
            )
        self._microbatch = None if microbatch is None else check.whole(owner, "microbatch", microbatch, least=1)
        bound = plan.for_leaves({**self._engine.leaves, **_own_names(statistics or {})})
        refuse_slots(bound.bound.start)
        self._numerics = Numerics.IDEALISED if plan.numerics is Numerics.IDEALISED else Numerics.CERTIFIED
        self._inners: dict[tuple[Group, frozenset[int]], Group] = {}
        self._positions: dict[str, frozenset[int]] = {}
        self._session = Session(
            bound, ledger=ledger, numerics=self._numerics, source=source, label=label, parameters=parameters
        )
        for group in bound.bound.start:  # numbers out of range are refused here, before anything is charged
            if group.private:
                self._inner(group, frozenset({1}))
                grid_of(group).scale(group.noise_std)
        self._order = threading.Lock()
        self._waiting: Batch | None = None
        self._attempts = 0  # at the waiting batch
        self._fetched = 0  # batches that were not empty
        self._new = False  # whether batches are in memory of their own

    @property
    def plan(self) -> Plan:
        """What is executed."""
        return self._session.plan

    @property
    def engine(self) -> Engine:
        """How per-record gradients are computed."""
        return self._engine

    @property
    def state(self) -> State:
        """Thresholds of adaptive groups after the last release; public."""
        return self._session.state

    def batches(
        self,
        dataset: Rows,
        collate: Collate = default_collate,
        *,
        start: int = 0,
        state: State | None = None,
    ) -> Iterator[Batch]:
        """The plan's batches. Each must go through `backward` before the next is taken.

        Args:
            dataset: as many entries as the plan has records; sensitive.
            collate: makes a batch of a list of entries: one row of each, in their order, of a fixed shape.
            start: first step, for a run that is resumed.
            state: of the resumed run.
        """
        sampler = self._session.sampler
        if len(dataset) != sampler.records or sampler.owners is not None:
            raise ModelError(
                expected=f"a data set of {sampler.records} records, as the plan says, one entry for each",
                got=f"{len(dataset)} entries" + (", and units that own several rows" if sampler.owners is not None else ""),
                do="Make the plan for this data set; an entry is what is protected (for users: everything of one user).",
            )
        self._announce(start)
        self._new = at_once(dataset, collate)
        samples = self._session.samples(start, state)
        while True:
            self._refuse_waiting()
            sample = next(samples, None)
            if sample is None:
                return
            self._attempts, self._fetched = 0, self._fetched + bool(len(sample))
            chosen = sample.indices[self._session.order(sample)]
            look = not self._fetched & (self._fetched - 1)  # at batches 1, 2, 4, 8, ...
            self._waiting = Batch(sample, fetched(dataset, chosen, collate, look=look) if chosen.size else None)
            yield self._waiting

    def _announce(self, start: int) -> None:
        """How much is to be computed, so that what compiles does so where it pays; results are the same. Public."""
        left = max(0, self.plan.steps - start) * self._session.sampler.batches_per_step
        noised = [leaf for group in self._session.groups() if group.private for leaf in group.leaves]
        announce_noise(left * sum(self._session.bound.dimensions[leaf] for leaf in noised))
        announce_passes(left)

    def _refuse_waiting(self) -> None:
        if self._waiting is not None:
            raise SampleMisuse(
                expected="a backward for every batch, also an empty one",
                got="the next batch asked for before the last was used",
                do="Call run.backward(loss, batch) for each batch.",
            )

    def backward(self, loss: Loss, batch: Batch) -> Release:
        """Clip, sum, add noise; every trained parameter's gradient grows by the noised average, as with torch's backward.

        Args:
            loss: (model, data) to one loss for each record; or to (losses, statistics).
            batch: from `batches`; once.

        Returns:
            The noised sums of the statistics. Gradients are in the parameters.

        Raises:
            ModelError: the model or the loss cannot be served; nothing was released, the batch can be tried again.
            SampleMisuse: a batch of another run, or used before.
        """
        check.instance("PrivateRun.backward", "batch", batch, Batch)
        with self._order:
            sample = batch.sample
            self._session.check_issued(sample)
            if self._waiting is not batch:
                raise SampleMisuse(
                    expected="the batch that was drawn last, once",
                    got="one that was used before",
                    do="Call backward once for each batch; draw the next for more.",
                )
            self._engine.batch_norm.check_untouched()
            sums = self._sums(loss, batch)
            self._session.spend(sample)
            self._waiting = None
            return self._released(sample, sums)

    def _sums(self, loss: Loss, batch: Batch) -> Sums:
        sums = Sums(self._session.bound, self._session.state, self._inner, self._engine.device)
        records = len(batch.sample)
        if not records:
            return sums
        check_rows(batch.data, records)
        size = self._microbatch or self._engine.fitting(loss, batch.data, records, self._budget, self._places())
        attempt, self._attempts = self._attempts, self._attempts + 1
        rows = torch.from_numpy(self._session.places(batch.sample, size, attempt))
        seed = self._session.seed(batch.sample, attempt)
        with seeded(seed):
            for start in range(0, len(rows), size):
                some = rows[start : start + size]
                # New memory also when it is all of them: where it lies must not tell whether a place was empty.
                data = batch.data if self._new and size == records else select(batch.data, some.clamp(min=0))
                for contributions, statistics in self._engine.passes(loss, data, size, some >= 0):
                    self._refuse_other_bits()
                    sums.add(contributions, statistics)
        return sums

    def _refuse_other_bits(self) -> None:
        """Certified sums need every record's own bits."""
        found = self._engine.isolation
        alike = self._engine.varies is None and (found is None or found.own_bits)
        if not alike and self._numerics is Numerics.CERTIFIED:
            raise NumericsError(
                expected="records whose numbers have the same bits whoever else is in the batch, as certified numerics need",
                got="a model in which a record decides how the others are computed, if only in their last bits"
                + (f": {self._engine.varies}" if self._engine.varies else ""),
                do="Let all records go the same way: pad to a fixed length, pass masks always (in transformers "
                'attn_implementation="eager"). Or write numerics=Numerics.IDEALISED into the plan; the guarantee will say so.',
            )

    def _places(self) -> int:
        """Rows of one pass if memory allows: enough for nearly every sample, and public."""
        expected = self.plan.expected_batch_size
        return max(1, min(self._most_records(), even_places(int(expected + 2.0 * expected**0.5 + 1.0))))

    def _inner(self, group: Group, positions: frozenset[int]) -> tuple[Group, float]:
        """What to clip by, so that the rounding of sums stays within what the ledger was charged with.

        For all positions that occurred so far: one record that sends a pass to the loop, where none occur, must not change what
        the others are clipped to.
        """
        positions |= self._positions.get(group.name, frozenset())
        self._positions[group.name] = positions
        most = most_spread(max(positions, default=1))
        if self._numerics is Numerics.IDEALISED or not group.private:
            return group, most
        found = self._inners.get((group, positions))
        if found is None:
            found = inner_group(
                group,
                dimension=sum(self._session.bound.dimensions[leaf] for leaf in group.leaves),
                chunks=self._chunks(positions, most),
                spread=most,
                records=self._most_records(),
                grid=grid_of(group),
            )
            self._inners = {(group, positions): found, **dict(list(self._inners.items())[:_KEPT])}
        return found, most

    def _chunks(self, positions: frozenset[int], most: float) -> list[Chunk]:
        cut = [chunk_for(count, most) for count in positions | {1}]
        longest = max(positions, default=1)
        return [*cut, lookups(longest, self._microbatch or self._places(), self._most_records())] if longest > 1 else cut

    def _most_records(self) -> int:
        """Of any sample; public."""
        match self._session.sampler.event:
            case FixedSize(size):
                return int(size)
            case TruncatedPoisson(limit=limit):
                return int(limit)
            case _:
                return self._session.sampler.records

    def _released(self, sample: Sample, sums: Sums) -> Release:
        """Noise, the next state, gradients. Nothing can fail here that depends on data."""
        values: dict[str, Any] = {}
        noise_std, divisors = {}, {}
        for lane, group in enumerate(self._session.groups()):
            noised = self._noised(sample, lane, group, sums)
            for leaf, scale in zip(group.leaves, group.scales, strict=True):
                values[leaf] = noised[leaf]
                values[leaf] *= scale
                noise_std[leaf], divisors[leaf] = group.noise_std * scale, group.divisor(self.plan.expected_batch_size)
        self._session.update({leaf: values[leaf] for leaf in self._session.bound.observed})
        norms = self._engine.batch_norm
        norms.apply({leaf: values[leaf] / divisors[leaf] for leaf in norms.leaves})
        for leaf, parameter in self._engine.parameters.items():
            _give(parameter, values.pop(leaf), divisors.pop(leaf))
            noise_std.pop(leaf)
        return Release(sample.step, sample.batch, values, noise_std, divisors)

    def _noised(self, sample: Sample, lane: int, group: Group, sums: Sums) -> dict[str, Any]:
        found = {leaf: sums.sum(leaf) for leaf in group.leaves}
        if not group.private:
            return found
        out = {leaf: self._room(leaf, values) for leaf, values in found.items()}
        pairs = [(found[leaf], out[leaf]) for leaf in group.leaves]
        stream = self._session.noise_stream(sample, lane)
        release_all(pairs, grid=grid_of(group), noise_std=group.noise_std, stream=stream, threads=torch.get_num_threads())
        return out

    def _room(self, leaf: str, values: Any) -> Any:
        """Where the release of a leaf goes: gradients into their own precision, over the sums where that is the same."""
        parameter = self._engine.parameters.get(leaf)
        kind = np.dtype(np.float32 if parameter is not None and parameter.dtype != torch.float64 else np.float64)
        return values if values.dtype == kind else np.empty(values.shape, kind)


def _own_names(statistics: Mapping[str, int]) -> Mapping[str, int]:
    """Refuse statistics that would take the place of a parameter, or of a layer."""
    for name in statistics:
        if name.startswith(("grad/", "bn/")):
            expected = 'names such as "metric/accuracy", none that begins with "grad/" or "bn/"'
            raise ParameterError(owner="PrivateRun", name="statistics", expected=expected, got=repr(name))
    return statistics


def _give(parameter: Tensor, noised: Any, divisor: float) -> None:
    """Add the average to the gradient, or make it the gradient."""
    noised /= divisor
    gradient = torch.from_numpy(noised).view(parameter.shape).to(parameter.device, parameter.dtype)
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
