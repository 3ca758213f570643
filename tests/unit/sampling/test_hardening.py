"""Attacks on samples, each of which once worked."""

from typing import Any

import numpy as np
import pytest

from discreet.errors import ParameterError, SampleMisuse
from discreet.ledger.events import BallsInBins, Poisson, Sampling
from discreet.sampling import Owners, Sampler
from discreet.sampling import sampler as module
from discreet.sampling._policies import drawn_positions
from support.written_streams import source


@pytest.mark.parametrize(
    "ids", [["ann", "ann\0", "bob"], np.array(["ann", "ann\0"], object), ["\0"]]
)
def test_two_owners_that_numpy_takes_for_one_are_refused(ids: object) -> None:
    """Two units in one record: removing one of them moves the record by up to twice its clip
    norm.
    """
    with pytest.raises(ParameterError, match="ids"):
        Owners.from_ids(ids)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [Poisson(0.5), BallsInBins(3)])
def test_p28_a_draw_that_was_broken_off_does_not_end_like_a_whole_one(
    policy: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator is over after an exception: a loop that went on would have had fewer steps, and
    nobody would have known.
    """

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(module, "drawn_positions", drawn_positions)
        raise KeyboardInterrupt

    bits = source()
    sampler = Sampler(policy, records=10, steps=4)
    draw = sampler.draw(bits)
    for _ in range(sampler.batches_per_step):
        next(draw)
    monkeypatch.setattr(module, "drawn_positions", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(draw)
    for _ in range(2):
        with pytest.raises(SampleMisuse, match="broken off"):
            next(draw)
    assert len(list(sampler.draw(bits, start=2))) == 2 * sampler.batches_per_step
