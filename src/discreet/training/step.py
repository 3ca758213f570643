"""One step: from the records of a sample to gradients with noise.

sums       per-record gradients in passes, clipped and summed; nothing is released, so it may be
           tried again
release    noise, the next state, gradients; nothing can fail here that depends on data
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from discreet.aggregation.release import Release
from discreet.aggregation.session import Session
from discreet.aggregation.sums import grid_of
from discreet.errors import CoupledRecords, ModelError, SampleMisuse
from discreet.mechanisms import Group
from discreet.randomness.gaussian import announce_noise, release_all
from discreet.sampling import Sample
from discreet.training.clipping import Sums
from discreet.training.data.batch import Batch
from discreet.training.data.trees import Portion
from discreet.training.engine import Engine, Loss
from discreet.training.passes.sandbox import seeded_pass
from discreet.training.planted import Planted
from discreet.training.rounding.margin import ClipMargin
from discreet.training.rules.recurrent.lstm import expect_passes
from discreet.units import Numerics

__all__ = ["Attempts", "Stepping"]


class Stepping:
    """The steps of one run.

    Guarantee: see `PrivateRun`. One record moves the sums by at most the clip norm of each group;
    what `release` gives out is post-processing of these sums with the plan's noise.

    Args:
        engine: of the model.
        session: of the run.
        planted: its canaries.
        numerics: executed.
        microbatch: records of one pass; None where memory decides.
        memory_budget: bytes that a pass may take.
    """

    def __init__(
        self,
        engine: Engine,
        session: Session,
        planted: Planted,
        *,
        numerics: Numerics,
        microbatch: int | None,
        memory_budget: int,
    ) -> None:
        self._engine = engine
        self._session = session
        self._planted = planted
        self._numerics = numerics
        self._microbatch = microbatch
        self._memory_budget = memory_budget

        # The clip norm that pays for rounding (P14); whether there is one is seen before any step.
        self._inner = ClipMargin(session.bound, session.sampler, numerics, microbatch)
        self.check(session.bound.start)

    def announce(self, steps: int) -> None:
        """Say how much is to be computed, so that what compiles does so where it pays; results are
        the same. Public.
        """
        passes = steps * self._session.sampler.batches_per_step
        noised = [
            leaf for group in self._session.groups() if group.private for leaf in group.leaves
        ]

        announce_noise(passes * sum(self._session.bound.dimensions[leaf] for leaf in noised))
        expect_passes(passes)

    def check(self, groups: tuple[Group, ...]) -> None:
        """Refuse groups whose numbers are out of range, before anything is charged."""
        self._inner.check(groups)

    def sums(self, loss: Loss, batch: Batch, *, attempt: int) -> Sums:
        """Clipped sums of a sample. Sensitive.

        Args:
            loss: of the user.
            batch: of the session, its data in the order of the session; sensitive.
            attempt: number of this attempt at the sample.
        """
        session, engine, sample = self._session, self._engine, batch.sample
        tables = engine.tables.sums()
        sums = Sums(session.bound, session.state, self._inner, engine.device, tables)
        records = self._planted.fetched(batch)

        # Passes of a public size: a library chooses its kernels by shape, and so the last bits.
        portion = Portion(None) if batch.portion is None else batch.portion
        if records:
            portion.check_rows(records)

        size = self._microbatch or engine.fitting(
            loss, portion, records, self._memory_budget, self._inner.places
        )

        # An empty sample is a step like any other (P28): buffers that did not move would show it.
        if not records:
            _, seed = session.places(sample, 1, attempt)
            with seeded_pass(seed), engine.one_step(seed):
                engine.rest(loss, size)

            return sums

        # A secret random order (docs/proofs/sums.md, section 3); each attempt has places and random
        # numbers of its own. Who has no row leaves a place empty.
        places, seed = session.places(sample, size, attempt)
        if batch.rows is not None:
            places = np.where(places >= 0, batch.rows[places], -1)

        rows = torch.from_numpy(places)

        with seeded_pass(seed), engine.one_step(seed):
            for start in range(0, len(rows), size):
                pass_rows = rows[start : start + size]

                # One pass over all of them has them in the order of the sample, which is random
                # too. Padding repeats the first row, with weight zero.
                chosen = None if size == records == len(sample) else pass_rows.clamp(min=0)
                of_pass = portion.at(chosen)
                for contributions, statistics in engine.passes(loss, of_pass, size, pass_rows >= 0):
                    sums.add(contributions, statistics)
                    del contributions, statistics  # so that there is less to erase

        self._planted.add_to(sums, sample, engine.device)
        return sums

    def release(self, sample: Sample, sums: Sums) -> Release:
        """Noise, the next state, gradients. Nothing can fail here that depends on data."""
        session, norms, parameters = self._session, self._engine.batch_norm, self._engine.parameters
        groups = session.groups()

        # Each group has a lane of the noise stream to itself: none is used twice (P20).
        noised = [
            (group, self._noised(sample, lane, group, sums)) for lane, group in enumerate(groups)
        ]
        release = Release.of(sample, noised, session.plan.expected_batch_size)

        # All that follows reads released values only.
        self._planted.observe(groups, release.sums)
        session.update({leaf: release[leaf] for leaf in session.bound.observed})
        norms.apply({leaf: release.mean(leaf) for leaf in norms.leaves})
        for leaf, parameter in parameters.items():
            if leaf in release:
                _give(parameter, release[leaf], release.divisors[leaf])

        # Their noise comes where rows are read (docs/proofs/sparse.md).
        self._engine.tables.add(sums.tables)
        return release.without(parameters)

    def _noised(self, sample: Sample, lane: int, group: Group, sums: Sums) -> dict[str, Any]:
        leaf_sums = {leaf: sums.sum(leaf) for leaf in group.leaves if leaf not in sums.tables}
        if not group.private:  # which the ledger says, and no guarantee covers
            return leaf_sums

        # Noise by the same object that was charged and has clipped (P02).
        out = {leaf: self._room(leaf, values) for leaf, values in leaf_sums.items()}
        pairs = list(zip(leaf_sums.values(), out.values(), strict=True))
        stream = self._session.noise_stream(sample, lane)

        # On every coordinate, whether a record has touched it or not (P25).
        release_all(
            pairs,
            grid=grid_of(group),
            noise_std=group.noise_std,
            stream=stream,
            threads=torch.get_num_threads(),
        )
        return out

    def _room(self, leaf: str, values: Any) -> Any:
        """Where the release of a leaf goes: gradients into their own precision, over the sums where
        that is the same.
        """
        parameter = self._engine.parameters.get(leaf)
        is_single = parameter is not None and parameter.dtype != torch.float64
        kind = np.dtype(np.float32 if is_single else np.float64)
        return values if values.dtype == kind else np.empty(values.shape, kind)


@final
class Attempts:
    """Attempts at the sums of one batch. One that fails releases nothing; its random numbers are
    not used again.

    After one that a record may have ended there is no other. Whatever is changed because of the
    error, the loss, a setting or a parameter, would tell all records what one of them is (T14).

    Args:
        stepping: of the run.
        engine: of the run.
    """

    def __init__(self, stepping: Stepping, engine: Engine) -> None:
        self._stepping = stepping
        self._engine = engine
        self._begun = 0
        self._by_a_record = False  # whether a record may have ended the last one
        self._circumstances: object = None  # in which the last one failed otherwise

    def sums(self, loss: Loss, batch: Batch) -> Sums:
        """The next attempt.

        Args:
            loss: of the user.
            batch: always the same one; sensitive.

        Raises:
            SampleMisuse: there is none after the last, or not with this loss.
        """
        circumstances = self._engine.circumstances(loss)
        if self._by_a_record:
            raise SampleMisuse(
                expected="a batch on which no operation failed",
                got="one on which the loss failed, perhaps because of a record",
                do="End the run here: what was charged stays charged, and trying again would let a "
                "record decide for all others. Mend the loss so that it fails for no record.",
            )

        if self._circumstances not in (None, circumstances):
            raise SampleMisuse(
                expected="the loss with which this batch failed, and the model in the same mode",
                got="another one",
                do="Use the loss as it was, or end the run; this batch stays charged.",
            )

        attempt, self._begun = self._begun, self._begun + 1
        try:
            return self._stepping.sums(loss, batch, attempt=attempt)
        except BaseException as error:
            # Else decided by public things; and what the library refuses may be mended.
            self._by_a_record = self._engine.error_may_tell
            if not isinstance(error, ModelError | CoupledRecords):
                self._circumstances = circumstances

            raise


def _give(parameter: Tensor, noised: Any, divisor: float) -> None:
    """Add the average to the gradient, or make it the gradient."""
    # The only divisor is public: that of the plan, not how many there were (P29).
    noised /= divisor
    gradient = torch.from_numpy(noised).view(parameter.shape).to(parameter.device, parameter.dtype)
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
