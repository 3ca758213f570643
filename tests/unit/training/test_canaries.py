"""Canaries in private runs: who is out is not there at all,
who is in is a record like all others.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.canaries import Canaries
from discreet.errors import CheckpointError, ModelError, ParameterError, SampleMisuse
from discreet.training import GradientCanaries, PrivateRun
from discreet.training.factors.forms import Chooser
from support.norms import images, small_cnn
from support.norms import loss as norm_loss

KEY, COINS = bytes(range(32)), bytes(range(1, 33))
RECORDS = 40
STATISTICS = {"metric/right": 1}
BOTH = dp.Groups({"grad/*": dp.Gaussian(1.0, 0.5), "metric/*": dp.Gaussian(1.0, 0.5)})
QUIET = dp.Groups({"grad/*": dp.Gaussian(2.0, 1e-5)})


def data(records: int = RECORDS, weights: Any = None) -> TensorDataset:
    """Inputs, labels, and a weight of each record's loss."""
    generator = torch.Generator().manual_seed(1)
    x, y = (
        torch.randn(records, 6, generator=generator),
        torch.randint(3, (records,), generator=generator),
    )
    return TensorDataset(
        x,
        y,
        torch.ones(records) if weights is None else torch.as_tensor(weights, dtype=torch.float32),
    )


def network() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def plain(model: nn.Module, batch: Any) -> Any:
    return batch[2] * cross_entropy(model(batch[0]), batch[1], reduction="none")


def with_statistics(model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
    return plain(model, batch), {"metric/right": batch[2] * 0.25}


def plan(
    mechanism: Any = QUIET,
    *,
    policy: Any = None,
    records: int = RECORDS,
    steps: int = 3,
    **more: Any,
) -> dp.Plan:
    sampler = dp.Sampler(policy or dp.Poisson(0.5), records=records, steps=steps)
    return dp.Plan(sampler=sampler, mechanism=mechanism, **more)


def coins(places: Any, key: bytes = COINS) -> Canaries:
    return Canaries(places, source=dp.randomness.Source.unsafe_test_key(key))


def spikes(count: int) -> GradientCanaries:
    return GradientCanaries(count, source=dp.randomness.Source.unsafe_test_key(COINS))


def released(
    its: dp.Plan,
    rows: Any,
    *,
    loss: Any = plain,
    model: Any = None,
    workers: int | None = None,
    **more: Any,
) -> Any:
    """Gradients of every batch (as sums), flat; and what else was released."""
    own = model or network()
    source = dp.randomness.Source.unsafe_test_key(KEY)
    out = []
    with PrivateRun(own, its, ledger=dp.Ledger.in_memory(), source=source, **more) as run:
        for batch in run.batches(rows, workers=workers):
            found = run.backward(loss, batch)
            flat = torch.cat(
                [
                    parameter.grad.flatten()
                    for parameter in own.parameters()
                    if parameter.grad is not None
                ]
            )
            out.append((flat * its.expected_batch_size, found.sums.get("metric/right"), run.state))
            own.zero_grad()
    return out


# --- records of the data set ---


@pytest.mark.parametrize(
    ("policy", "microbatch"),
    [
        (dp.Poisson(0.5), None),
        (dp.Poisson(0.5), 1),
        (dp.Everything(), 7),
        (dp.ledger.BallsInBins(3), 64),
    ],
)
def test_out_is_the_release_without_the_record_bit_for_bit(
    policy: Any, microbatch: int | None
) -> None:
    """As if its loss and its statistics were zero; caught: canaries that are only left out of the
    gradient.
    """
    canaries = coins(range(5, 35))
    weights = np.ones(RECORDS)
    weights[canaries.places[~canaries.inside]] = 0.0
    its = plan(BOTH, policy=policy)
    more: dict[str, Any] = {
        "loss": with_statistics,
        "statistics": STATISTICS,
        "microbatch": microbatch,
    }
    ours = released(its, data(), canaries=canaries, **more)
    theirs = released(its, data(weights=weights), **more)
    everybody = released(its, data(), **more)
    for (one, metric, _), (other, its_metric, _), (all_of_them, _, _) in zip(
        ours, theirs, everybody, strict=True
    ):
        assert torch.equal(one, other)
        assert metric == its_metric
        assert not torch.equal(one, all_of_them)


def test_who_is_in_changes_nothing() -> None:
    canaries = coins([3])
    keys = (bytes([number]) * 32 for number in range(99))
    while not canaries.inside[0]:
        canaries = coins([3], next(keys))
    for (one, _, _), (other, _, _) in zip(
        released(plan(), data(), canaries=canaries), released(plan(), data()), strict=True
    ):
        assert torch.equal(one, other)


class Forbidden:
    """Entries of which some must not be asked for."""

    def __init__(self, rows: TensorDataset, forbidden: Any) -> None:
        self.rows, self.forbidden = rows, {int(index) for index in forbidden}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        if index in self.forbidden:
            raise AssertionError("a canary that is out was read")
        return self.rows[index]


def test_who_is_out_is_not_even_read() -> None:
    canaries = coins(range(1, RECORDS))
    released(plan(), Forbidden(data(), canaries.places[~canaries.inside]), canaries=canaries)


def test_workers_fetch_the_same() -> None:
    canaries = coins(range(1, RECORDS))
    rows = Forbidden(data(), canaries.places[~canaries.inside])
    one, other = (
        released(plan(steps=2), rows, canaries=canaries, workers=workers) for workers in (0, 1)
    )
    for (gradient, *_), (its, *_) in zip(one, other, strict=True):
        assert torch.equal(gradient, its)


@pytest.mark.parametrize("workers", [0, 1])
def test_p28_where_all_are_out_nothing_is_read_and_every_step_is_taken(workers: int) -> None:
    canaries = coins(range(RECORDS))
    object.__setattr__(canaries, "_inside", np.zeros(RECORDS, bool))
    found = released(plan(), Forbidden(data(), range(RECORDS)), canaries=canaries, workers=workers)
    assert len(found) == 3
    for gradient, _, _ in found:
        assert float(gradient.abs().max()) < 1e-3


def test_p35_a_sample_of_absent_records_takes_its_step_and_moves_no_threshold() -> None:
    """Caught: absent records that count as short ones, which would raise the number below the
    threshold.
    """
    canaries = coins(range(RECORDS))
    object.__setattr__(canaries, "_inside", np.zeros(RECORDS, bool))
    adaptive = dp.Groups(
        {"grad/*": dp.AdaptiveClip(dp.Gaussian(1.0, 1e-3), quantile=0.5, count_noise_std=1e-2)}
    )
    found = released(plan(adaptive, policy=dp.Everything()), data(), canaries=canaries)
    assert len(found) == 3
    for _, _, state in found:
        assert list(state.values()) == pytest.approx([1.0], rel=1e-3)


def test_a_plan_under_replace_one_is_refused() -> None:
    its = plan(adjacency=dp.Adjacency.REPLACE_ONE)
    with pytest.raises(ParameterError, match="not replaced by another"):
        PrivateRun(network(), its, ledger=dp.Ledger.in_memory(), canaries=coins([1]))


# --- spikes ---


def heights(its: dp.Plan, canaries: GradientCanaries, **more: Any) -> tuple[list[Any], Any]:
    """What was released on the coordinates of canaries in one group, batch by batch, and everything
    else that was.
    """
    found = released(its, data(its.sampler.records - len(canaries)), canaries=canaries, **more)  # type: ignore[union-attr]
    (spots,) = canaries._spots.values()
    sizes = [parameter.numel() for parameter in (more.get("model") or network()).parameters()]
    flat = np.append(0, np.cumsum(sizes))[spots.leaves] + spots.places
    everything = [gradient.numpy() for gradient, _, _ in found]
    return [gradient[flat] for gradient in everything], [
        np.delete(gradient, flat) for gradient in everything
    ]


@pytest.mark.parametrize("microbatch", [None, 1, 5])
@pytest.mark.parametrize("clip", [dp.Gaussian(2.0, 1e-5), dp.Normalised(2.0, 1e-5, stability=1e-3)])
def test_p01_a_spike_is_clipped_as_every_record_is(clip: Any, microbatch: int | None) -> None:
    """1024 times too long; it arrives at the clip norm, a percent of rounding aside, and never
    above it.
    """
    canaries = spikes(30)
    silent = lambda model, batch: 0.0 * plain(model, batch)  # noqa: E731
    its = plan(dp.Groups({"grad/*": clip}), policy=dp.Everything())
    on, off = heights(its, canaries, loss=silent, microbatch=microbatch)
    inside = canaries.scores().inside
    assert 5 < inside.sum() < 25
    for spike, other in zip(on, off, strict=True):
        assert (spike[inside] > 2.0 * 0.985).all()
        assert (spike[inside] <= 2.0 + 1e-3).all()
        assert (np.abs(spike[~inside]) < 1e-3).all()
        assert (np.abs(other) < 1e-3).all()


def test_under_replace_one_the_others_are_opposite() -> None:
    canaries = spikes(30)
    silent = lambda model, batch: 0.0 * plain(model, batch)  # noqa: E731
    on, _ = heights(
        plan(policy=dp.Everything(), adjacency=dp.Adjacency.REPLACE_ONE), canaries, loss=silent
    )
    signs = np.where(canaries.scores().inside, 1.0, -1.0)
    for spike in on:
        assert spike * signs == pytest.approx(np.full(30, 2.0), rel=0.015)


def test_a_spike_comes_when_its_canary_is_drawn() -> None:
    canaries = spikes(30)
    its = plan(policy=dp.Poisson(0.4), steps=6)
    source, silent = (
        dp.randomness.Source.unsafe_test_key(KEY),
        lambda model, batch: 0.0 * plain(model, batch),
    )
    model = network()
    run = PrivateRun(model, its, ledger=dp.Ledger.in_memory(), source=source, canaries=canaries)
    inside = canaries.scores().inside
    for batch in run.batches(data(10)):
        drawn = np.isin(np.arange(10, 40), batch.sample.indices)
        run.backward(silent, batch)
        total = sum(
            float(parameter.grad.sum())
            for parameter in model.parameters()
            if parameter.grad is not None
        )
        assert total * its.expected_batch_size == pytest.approx(
            2.0 * (drawn & inside).sum(), rel=0.015, abs=1e-2
        )
        model.zero_grad()


def test_what_data_contribute_does_not_change() -> None:
    """Beside the spikes, releases of the same sample are those without canaries."""
    canaries = spikes(30)
    _, beside = heights(plan(policy=dp.Everything()), canaries)
    (spots,) = canaries._spots.values()
    sizes = [parameter.numel() for parameter in network().parameters()]
    flat = np.append(0, np.cumsum(sizes))[spots.leaves] + spots.places
    without = released(plan(policy=dp.Everything(), records=10), data(10))
    for one, (other, _, _) in zip(beside, without, strict=True):
        assert one == pytest.approx(np.delete(other.numpy() * 1.0, flat), abs=1e-2)


def test_a_stand_in_never_contributes() -> None:
    """Where canaries alone are drawn, entry 0 lends its shape. Caught: a stand-in that counts."""
    canaries = spikes(30)
    its = plan(policy=dp.Poisson(0.1), records=31, steps=12)
    model = network()
    run = PrivateRun(
        model,
        its,
        ledger=dp.Ledger.in_memory(),
        source=dp.randomness.Source.unsafe_test_key(KEY),
        canaries=canaries,
        microbatch=4,
    )
    alone = 0
    for batch in run.batches(data(1)):
        run.backward(plain, batch)
        (spots,) = canaries._spots.values()
        leaves = [
            parameter.grad.flatten()
            for parameter in model.parameters()
            if parameter.grad is not None
        ]
        for number, leaf in enumerate(leaves):
            leaf[torch.from_numpy(spots.places[spots.leaves == number])] = 0.0
        rest = max(float(leaf.abs().max()) for leaf in leaves)
        if 0 not in batch.sample.indices:
            alone += len(batch.sample) > 0
            assert rest < 1e-4
        else:
            assert rest > 1e-3
        model.zero_grad()
    assert alone > 3


class Sequences(nn.Module):
    """A linear map of 16 positions: records have more than one,
    and are clipped to a little less.
    """

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(6, 30, bias=False)

    def forward(self, x: Tensor) -> Any:
        return self.map(x[:, None, :].expand(-1, 16, -1)).tanh().mean((1, 2))


def test_p15_who_else_is_drawn_does_not_decide_what_a_spike_is_clipped_to() -> None:
    """Caught: no pass where only canaries are drawn; then positions are not known, and the inner
    clip norm is another.
    """
    its = plan(policy=dp.Poisson(0.3), records=21, steps=1)
    key = next(
        key
        for key in (bytes([number]) * 32 for number in range(99))
        if 0 not in _first_sample(its, key)
    )
    source = dp.randomness.Source.unsafe_test_key(key)
    run = PrivateRun(
        Sequences(), its, ledger=dp.Ledger.in_memory(), source=source, canaries=spikes(20)
    )
    run.engine._chooser = Chooser(2**20, "ghost")
    batch = next(run.batches(data(1)))
    assert len(batch.sample) > 0
    run.backward(lambda model, batch: model(batch[0]), batch)
    assert run._stepping._inner._positions["grad/*"] == {1, 16}


def _first_sample(its: dp.Plan, key: bytes) -> Any:
    return next(its.sampler.draw(dp.randomness.Source.unsafe_test_key(key))).indices


def test_statistics_of_canaries_are_zero() -> None:
    quiet = dp.Groups({"grad/*": dp.Gaussian(1.0, 1e-5), "metric/*": dp.Gaussian(1.0, 1e-5)})
    its = plan(quiet, policy=dp.Everything())
    for _, metric, _ in released(
        its, data(10), loss=with_statistics, statistics=STATISTICS, canaries=spikes(30)
    ):
        assert float(metric[0]) == pytest.approx(10 * 0.25, rel=0.015)


def test_statistics_of_batch_norm_are_those_of_the_data() -> None:
    quiet = dp.Groups({"grad/*": dp.Gaussian(1.0, 1e-5), "bn/*": dp.Gaussian(1.0, 1e-5)})
    buffers = []
    for canaries in (None, spikes(30)):
        model = small_cnn()
        records = 10 if canaries is None else 40
        its = plan(quiet, policy=dp.Poisson(1.0), records=records, steps=1)
        run = PrivateRun(model, its, ledger=dp.Ledger.in_memory(), canaries=canaries)
        for batch in run.batches(TensorDataset(*images(10))):
            sums = run.backward(norm_loss, batch).sums
        buffers.append(np.concatenate([sums[leaf] for leaf in sorted(sums)]))
    assert buffers[1] == pytest.approx(buffers[0], rel=0.02, abs=1e-2)


def test_no_two_canaries_share_a_coordinate_and_small_groups_have_none() -> None:
    groups = dp.Groups(
        {
            "grad/2.bias": dp.Gaussian(1.0, 3.0),
            "grad/0.*": dp.Gaussian(1.0, 3.0),
            "grad/*": dp.Gaussian(1.0, 3.0),
        }
    )
    canaries = GradientCanaries(15)
    PrivateRun(network(), plan(groups), ledger=dp.Ledger.in_memory(), canaries=canaries)
    assert set(canaries._spots) == {"grad/0.*", "grad/*"}
    for spots in canaries._spots.values():
        assert len(set(zip(spots.leaves.tolist(), spots.places.tolist(), strict=True))) == 15
    whole = canaries._spots["grad/*"]  # the 15 weights of the last layer, all of them
    assert sorted(whole.places.tolist()) == list(range(15))


def test_scores_tell_who_is_in_and_only_that() -> None:
    """With little noise every canary is found; they are not told apart before a step is over."""
    canaries = spikes(30)
    its = plan(
        dp.Groups({"grad/*": dp.Gaussian(1.0, 0.05)}), policy=dp.ledger.BallsInBins(2), steps=1
    )
    run = PrivateRun(network(), its, ledger=dp.Ledger.in_memory(), canaries=canaries)
    silent = lambda model, batch: 0.0 * plain(model, batch)  # noqa: E731
    for batch in run.batches(data(10)):
        assert (canaries.scores().values == 0.0).all()
        run.backward(silent, batch)
    scores = canaries.scores()
    assert ((scores.values > 0.0) == scores.inside).all()
    assert "not shown" in repr(canaries)


def test_a_baseline_without_privacy_is_scored_by_what_is_there() -> None:
    canaries = spikes(30)
    its = plan(dp.Groups({"grad/*": dp.NotPrivate()}), policy=dp.Everything())
    silent = lambda model, batch: 1e-3 * plain(model, batch)  # noqa: E731
    released(its, data(10), loss=silent, canaries=canaries)
    scores = canaries.scores()
    assert scores.values[scores.inside].min() > 1.0
    assert scores.values[~scores.inside].max() < 0.0


# --- misuse ---


def test_canaries_that_do_not_fit_are_refused() -> None:
    def run(canaries: Any, its: dp.Plan | None = None) -> PrivateRun:
        return PrivateRun(network(), its or plan(), ledger=dp.Ledger.in_memory(), canaries=canaries)

    for wrong in (coins([RECORDS]), GradientCanaries(RECORDS), "canaries"):
        with pytest.raises(ParameterError):
            run(wrong)
    with pytest.raises(ParameterError, match="coordinates"):
        run(GradientCanaries(60), plan(records=200))
    with pytest.raises(ParameterError):
        GradientCanaries(0)
    used = GradientCanaries(3)
    with pytest.raises(SampleMisuse, match="no run has"):
        used.scores()
    kept = run(used)
    with pytest.raises(SampleMisuse, match="of another run"):
        run(used)
    with pytest.raises(ModelError, match="37 .*of which 3 are canaries.*and its canaries together"):
        kept.batches(data(RECORDS))


@pytest.mark.parametrize("canaries", [lambda: None, lambda: coins([1]), lambda: spikes(39)])
def test_p28_a_batch_without_data_is_no_empty_sample(canaries: Any) -> None:
    """Caught: a collate function that gives nothing, taken for a sample of nobody."""
    planted = canaries()
    run = PrivateRun(
        network(), plan(policy=dp.Everything()), ledger=dp.Ledger.in_memory(), canaries=planted
    )
    batch = next(
        run.batches(data(1 if isinstance(planted, GradientCanaries) else RECORDS), lambda _: None)
    )
    with pytest.raises(ModelError, match="one row for each record"):
        run.backward(plain, batch)


@pytest.mark.parametrize("canaries", [lambda: coins([1]), lambda: spikes(3)])
def test_p20_a_run_with_canaries_has_no_checkpoints(tmp_path: Any, canaries: Any) -> None:
    """Coins are not saved; a run that went on with others would be scored by the wrong ones."""
    run = PrivateRun(network(), plan(), ledger=dp.Ledger.in_memory(), canaries=canaries())
    with pytest.raises(CheckpointError, match="canaries"):
        run.save(tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match="canaries"):
        run.load(tmp_path / "checkpoint")


def test_p41_scores_are_of_the_ledger_that_their_run_was_charged_to() -> None:
    """Laid against another ledger's claim, a verdict would be about a run that nobody attacked."""
    its = plan(dp.Gaussian(1.0, 2.0), records=RECORDS + 20)
    own = dp.Ledger.in_memory(budget=dp.Budget(plans=dp.Programme({"first": its, "second": its})))
    other = dp.Ledger.in_memory()
    found = []
    for ledger in (own, other, own):
        canaries = GradientCanaries(20)
        run = PrivateRun(network(), its, ledger=ledger, canaries=canaries)
        for batch in run.batches(data()):
            run.backward(plain, batch)
        found.append(dp.canaries.Scores.from_json(canaries.scores().to_json()))
    first, foreign, second = found
    assert dp.audit(own, first, delta=1e-5).outcome == "PASS"
    assert dp.audit(own, dp.canaries.Scores.pooled([first, second]), delta=1e-5).trials == 2
    assert (
        dp.audit(own, dp.canaries.Scores.pooled([first, foreign]), delta=1e-5).trials == 2
    )  # runs of the same plan, one ledger each
    with pytest.raises(ParameterError, match="a run on another ledger"):
        dp.audit(own, foreign, delta=1e-5)
