"""The canaries of a run as its engine sees them: which records come from the data set, and what the
others contribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.aggregation.session import Session
from discreet.canaries import Canaries
from discreet.errors import CheckpointError, ModelError, ParameterError
from discreet.mechanisms import Group
from discreet.sampling import Sample
from discreet.training.canaries import GradientCanaries
from discreet.training.clipping import Sums, statistics_of
from discreet.training.data.batch import Batch
from discreet.units import Adjacency

__all__ = ["Planted"]

_OWNER = "PrivateRun"


class Planted:
    """The canaries of one run. Without any, every record comes from the data set, and nothing is
    added.

    Args:
        canaries: of the user; None for none.
        session: of the run.

    Raises:
        ParameterError: canaries that the plan has no place for, or replace-one adjacency and
            records that are left out.
    """

    def __init__(self, canaries: Canaries | GradientCanaries | None, session: Session) -> None:
        self._session = session
        self._canaries = canaries
        if isinstance(canaries, GradientCanaries):
            canaries.begin(session)
        elif canaries is not None:
            _refuse_unfit(check.instance(_OWNER, "canaries", canaries, Canaries), session)

    @property
    def entries(self) -> int:
        """How many the data set of the run must have; public."""
        # Gradient canaries are made by the engine, so they have no entries.
        absent = len(self._canaries) if isinstance(self._canaries, GradientCanaries) else 0
        return self._session.sampler.records - absent

    def refuse_other_size(self, entries: int) -> None:
        """Refuse a data set that does not have one entry for each record of the plan, less those
        that the engine makes.

        Raises:
            ModelError: it has another number of entries, or units own several rows.
        """
        sampler = self._session.sampler
        if entries == self.entries and sampler.owners is None:
            return

        canaries = sampler.records - self.entries
        besides = f" ({sampler.records}, of which {canaries} are canaries)" if canaries else ""
        whole = "this data set and its canaries together" if canaries else "this data set"
        owners = ", and units that own several rows" if sampler.owners is not None else ""
        raise ModelError(
            expected=(
                f"a data set of {self.entries} records, as the plan says{besides}, one entry for "
                "each"
            ),
            got=f"{entries} entries{owners}",
            do=(
                f"Make the plan for {whole}; an entry is what is protected (for users: everything "
                "of one user)."
            ),
        )

    def chosen(self, sample: Sample) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Entries to fetch for a sample, in random order, and for each record of the order its row
        among these. Once.

        Rows are -1 for records that are out, or do not come from the data set; None where all are
        in their order. Where the engine makes records and no other was drawn, entry 0 is fetched,
        so that the pass has a shape; it is nobody's row, and contributes nothing.
        """
        indices = sample.indices[self._session.order(sample)]
        match self._canaries:
            case None:
                return indices, None
            case GradientCanaries():
                here = indices < self.entries
                chosen = indices[here] if here.any() else np.zeros(min(1, indices.size), np.int64)
            case _:
                here = ~self._canaries.absent(indices)
                chosen = indices[here]

        # The k-th record that is here has row k - 1 of what is fetched.
        return chosen, np.where(here, np.cumsum(here) - 1, -1)

    def fetched(self, batch: Batch) -> int:
        """How many entries `chosen` named: the rows that the batch must have. Sensitive."""
        if batch.rows is None:
            return len(batch.sample)

        # As in `chosen`: of a sample of canaries alone, one entry was fetched for its shape.
        is_made = isinstance(self._canaries, GradientCanaries)
        least = min(1, len(batch.sample)) if is_made else 0
        return max(1 + int(batch.rows.max(initial=-1)), least)

    def add_to(self, sums: Sums, sample: Sample, device: torch.device) -> None:
        """What canaries contribute that the engine makes. After the passes over data: these say
        what is clipped to.
        """
        if not isinstance(self._canaries, GradientCanaries):
            return

        bound = self._session.bound
        spikes = self._canaries.spikes(sample, bound, self._session.groups(), device)
        if spikes is None:
            return

        # A canary is a record like others: it must bring every statistic, and brings zeros.
        sums.add(
            spikes,
            {
                leaf: torch.zeros(spikes.records, bound.dimensions[leaf], device=device)
                for leaf in statistics_of(bound)
            },
        )

    def observe(self, groups: tuple[Group, ...], released: Mapping[str, Any]) -> None:
        """Let canaries see what was released: sums with noise, by leaf."""
        if isinstance(self._canaries, GradientCanaries):
            self._canaries.observe(groups, released)

    def refuse_tables(self) -> None:
        """Canaries are sums of all numbers of a leaf, which a table does not have in any step."""
        if self._canaries is not None:
            raise ParameterError(
                owner=_OWNER,
                name="tables",
                expected="none in a run with canaries",
                got="tables",
                do="Audit with noise on all rows: the guarantee is the same.",
            )

    def refuse_checkpoint(self) -> None:
        """Coins live in one process: a run that goes on in another would have other canaries."""
        if self._canaries is not None:
            raise CheckpointError(
                expected="checkpoints of a run without canaries",
                got="canaries, whose coins are nowhere but in this process",
                do=(
                    "Audit a run from its first step to its last; keep a model with "
                    "torch.save(model.state_dict(), ...)."
                ),
            )


def _refuse_unfit(canaries: Canaries, session: Session) -> None:
    records = session.sampler.records
    if int(canaries.places[-1]) >= records:
        raise ParameterError(
            owner=_OWNER,
            name="canaries",
            expected=f"places below {records}, the plan's records",
            got=str(int(canaries.places[-1])),
        )

    # A canary that is out is left out: its neighbour has one record less, not another one.
    if session.plan.adjacency is Adjacency.REPLACE_ONE:
        raise ParameterError(
            owner=_OWNER,
            name="canaries",
            expected=(
                "a plan under add-or-remove or zero-out adjacency: a record that is left out was "
                "not replaced by another"
            ),
            got=session.plan.adjacency.value,
            do="Use GradientCanaries, which are one spike or the opposite one.",
        )
