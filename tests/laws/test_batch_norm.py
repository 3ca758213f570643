"""Private batch-norm statistics: one record more moves a buffer by a bound that is known before
noise, and no other record.
"""

import math
from typing import Any

import numpy as np
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from discreet.aggregation.sums import PartialSums, grid_of
from discreet.mechanisms import Gaussian
from discreet.training.engine import Engine
from discreet.training.passes.batch_norm import PrivateBatchNorm
from support.norms import images, loss, records_of, small_cnn
from support.tally import Tally

BATCH, CLIP, MOMENTUM = 8.0, 0.7, 0.25


def model_with_statistics(seed: int) -> Any:
    """Running statistics as some steps may have left them."""
    model = small_cnn(momentum=MOMENTUM)
    random = torch.Generator().manual_seed(seed)
    for layer in (model[1], model[5]):
        layer.running_mean.copy_(torch.randn(layer.num_features, generator=random))
        layer.running_var.copy_(
            10.0 ** (4.0 * torch.rand(layer.num_features, generator=random) - 2.0)
        )
    return model


def averages(records: dict[str, Any], leaves: dict[str, int]) -> dict[str, np.ndarray[Any, Any]]:
    """What the NumPy engine would add noise to, over the public divisor; each layer a group of its
    own.
    """
    found = {}
    for leaf, size in leaves.items():
        bound = Gaussian(CLIP, 1.0).bind({leaf: size})
        sums = PartialSums(bound, bound.initial_state, sample_id=("law", 0, 0))
        sums.add({leaf: records[leaf]})
        (group,) = bound.start
        found[leaf] = sums.integers(group) * grid_of(group).spacing / BATCH
    return found


def moved(
    seed: int, data: Any, count: int, first: int
) -> tuple[dict[str, Any], dict[str, tuple[Any, Any]]]:
    """The averages of the records from `first` on, and mean and variance of each layer once they
    were applied.

    The rows before are padding: a pass has as many rows with the record in question as without it.
    """
    model = model_with_statistics(seed)
    norm = PrivateBatchNorm(model)
    rows = records_of(Engine(model, batch_norm=norm), data, count)
    records = {leaf: values[first:] for leaf, values in rows.items()}
    means = averages(records, norm.leaves)
    norm.apply(means)
    layers = {"bn/1": model[1], "bn/5": model[5]}
    return means, {
        leaf: (layer.running_mean.double(), layer.running_var.double())
        for leaf, layer in layers.items()
    }


def check_neighbours(seed: int, count: int, size: float) -> None:
    """With d = sqrt(2C) clip_norm/B, relative to the standard deviation s of a channel: the mean
    moves by at most momentum s d, the variance by momentum s^2 d (1 + 2 |first moment| + d).
    """
    x, y = images(count, seed)
    x[0] *= size  # the record in question: ordinary, or far from everything
    before = model_with_statistics(seed)
    padding = torch.cat([x[1:2], x[1:]])
    with_it, buffers = moved(seed, (x, y), count, 0)
    without, others = moved(seed, (padding, y), count, 1)
    for leaf, layer in (("bn/1", before[1]), ("bn/5", before[5])):
        assert np.linalg.norm(with_it[leaf] - without[leaf]) <= CLIP / BATCH
        channels = layer.num_features
        d = math.sqrt(2 * channels) * CLIP / BATCH
        variance = layer.running_var.double() + layer.eps
        first = torch.from_numpy(np.abs(without[leaf][:channels])) * math.sqrt(2 * channels)
        slack = 1e-6 * (1.0 + variance)  # buffers are float32
        by_mean, by_variance = (
            abs(one - other) for one, other in zip(buffers[leaf], others[leaf], strict=True)
        )
        assert (by_mean <= MOMENTUM * variance.sqrt() * d + slack).all()
        assert (by_variance <= MOMENTUM * variance * d * (1.0 + 2.0 * first + d) + slack).all()


@settings(max_examples=8, deadline=None)
@example(152, 2, 1000.0)
@given(st.integers(0, 1000), st.integers(2, 9), st.sampled_from([1.0, 0.0, 1e3, 1e18, math.inf]))
def test_p09_one_record_moves_buffers_by_a_known_bound_at_most(
    seed: int, count: int, size: float
) -> None:
    check_neighbours(seed, count, size)


def check_isolation(seed: int, size: float) -> None:
    """Another record 0: moments, gradients and losses of the others keep their bits."""
    x, y = images(5, seed)
    other = x.clone()
    other[0] = x[0].flip(-1) * size
    losses = Tally()

    def watched(model: Any, data: Any) -> Tensor:
        found = loss(model, data)
        losses.append(found.detach())
        return found

    rows, whole = [], []
    for data in (x, other):
        model = model_with_statistics(seed)
        engine = Engine(
            model, batch_norm=PrivateBatchNorm(model), form="ghost"
        )  # not by time: two engines are compared
        rows.append(records_of(engine, (data, y), 5))
        # Those before are of trials, on made-up numbers; afterwards they are erased.
        whole += [losses[-1].clone() for _ in engine.passes(watched, (data, y), 5, 5)]
        assert engine.one_by_one is None
    for leaf, values in rows[0].items():
        assert np.array_equal(values[1:], rows[1][leaf][1:])
        assert leaf.startswith("grad/") or not np.array_equal(values[:1], rows[1][leaf][:1])
    assert torch.equal(whole[0][1:], whole[1][1:])


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.5, 3.0, 1e4]))
def test_p09_no_record_is_seen_through_anothers(seed: int, size: float) -> None:
    check_isolation(seed, size)
