"""Canaries of a run as its engine sees them: who is fetched, and who is nobody's row."""

import numpy as np
import pytest
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.canaries import Canaries
from discreet.training import GradientCanaries
from unit.training.test_run import RECORDS, data, keyed, loss, network, plan


def test_without_canaries_every_record_is_an_entry() -> None:
    planted = keyed(network(), plan())._planted
    assert planted.entries == RECORDS
    planted.refuse_other_size(RECORDS)
    with pytest.raises(dp.errors.ModelError, match=f"a data set of {RECORDS} records"):
        planted.refuse_other_size(RECORDS - 1)


def test_canaries_that_the_engine_makes_are_no_entries_of_the_data_set() -> None:
    run = keyed(network(), plan(), canaries=GradientCanaries(10))
    assert run._planted.entries == RECORDS - 10
    with pytest.raises(dp.errors.ModelError, match="of which 10 are canaries"):
        run._planted.refuse_other_size(RECORDS)


def test_who_is_out_is_not_fetched_and_has_no_row() -> None:
    canaries = Canaries(range(20))
    run = keyed(network(), plan(), canaries=canaries)
    batch = next(run.batches(data()))
    sample = batch.sample
    out = canaries.absent(sample.indices)
    assert batch.rows is not None
    assert (batch.rows < 0).sum() == out.sum()
    assert run._planted.fetched(batch) == len(sample) - out.sum()
    assert sorted(batch.rows[batch.rows >= 0]) == list(range(int((~out).sum())))


def test_p20_a_run_with_canaries_has_no_checkpoint() -> None:
    """Their coins live in one process."""
    keyed(network(), plan())._planted.refuse_checkpoint()
    with pytest.raises(dp.errors.CheckpointError, match="without canaries"):
        keyed(network(), plan(), canaries=GradientCanaries(10))._planted.refuse_checkpoint()


def test_a_batch_of_canaries_alone_still_has_a_shape() -> None:
    """Entry 0 is fetched, and contributes nothing: else nothing would say how large a row is."""
    records = 8
    few = plan(policy=dp.Everything(), records=records, steps=1)
    run = keyed(network(), few, canaries=GradientCanaries(records - 1))
    batch = next(run.batches(TensorDataset(*(tensor[:1] for tensor in data().tensors))))
    run.backward(loss, batch)
    assert batch.rows is not None
    assert np.count_nonzero(batch.rows >= 0) == 1
