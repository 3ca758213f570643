"""Deliberate privacy bugs in the sampling code, each applied to the real code, and the test that catches it.

Every check below passes on the code as it is, and fails once the code is broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from discreet.ledger.events import BallsInBins, FixedSize, Poisson, Sampling, Shuffled, TruncatedPoisson
from discreet.randomness import Source, draws
from discreet.sampling import Sample, _policies, sampler
from discreet.sampling import owners as owners_module
from laws import test_samplers as laws
from support.joint_laws import ALPHA, Law, bins_law, fixed_law, outcomes, p_value, poisson_law, shuffled_law, truncated_law
from support.mutations import CAUGHT, Check, Mutation, assert_caught, by_name, replaced
from unit.randomness import test_draws
from unit.sampling import test_owners, test_sample, test_sampler


def follows(policy: Sampling, records: int, law: Law) -> Check:
    def run() -> None:
        assert p_value(outcomes(policy, records, steps=3000), law) >= ALPHA  # these bugs are gross

    return run


# --- the bugs ---


def without_ties(coins: Any, digits: list[int], *_: Any) -> Any:
    """Sixteen bits decide."""
    return np.flatnonzero(coins < digits[0])


def ties_are_heads(coins: Any, digits: list[int], *_: Any) -> Any:
    return np.flatnonzero(coins <= digits[0])


def one_word_for_all_ties(coins: Any, digits: list[int], further: Any, block: int) -> Any:
    ties = np.flatnonzero(coins == digits[0])
    word = int(further[0].words(1, block)[0]) if ties.size and further else 2**64
    return np.flatnonzero(coins <= digits[0]) if further and word < digits[1] else np.flatnonzero(coins < digits[0])


def ties_by_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tie words are counted from the beginning of the range, not of the block."""
    monkeypatch.setattr(draws, "_heads", partial(_heads_from_zero, draws._heads))


def _heads_from_zero(right: Any, coins: Any, digits: Any, further: Any, _: int) -> Any:
    return right(coins, digits, further, 0)


def rounded_probability(probability: float) -> list[int]:
    """The lattice of single precision."""
    return [int(-(-probability * 2**24 // 1)) >> 8, (int(-(-probability * 2**24 // 1)) & 255) << 56]


class Modulo(draws._Integers):
    def take(self, count: int) -> Any:
        words = self._stream.words(count, self._position)
        self._position += count
        return (words % self._bound).astype(np.int64)


def with_replacement(stream: Any, size: int, population: int) -> Any:
    return np.sort(draws.below(stream, population, size))


def first_ones(_: Any, size: int, __: int) -> Any:
    return np.arange(size)


def not_shuffled(_: Any, count: int) -> Any:
    return np.arange(count)


def equal_bins(stream: Any, bound: int, count: int) -> Any:
    return draws.permutation(stream, count) % bound


def first_rows(_: Any, starts: Any, stops: Any, most: int) -> Any:
    return np.concatenate([np.arange(start, min(stop, start + most)) for start, stop in zip(starts, stops, strict=True)])


def no_cap(_: Any, starts: Any, stops: Any, __: int) -> Any:
    return np.concatenate([np.arange(start, stop) for start, stop in zip(starts, stops, strict=True)])


def skip_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _policies.positions

    def positions(*arguments: Any) -> Iterator[Any]:
        return (batch for batch in right(*arguments) if batch.size)

    monkeypatch.setattr(sampler, "positions", positions)


def drop_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _policies.positions

    def positions(*arguments: Any) -> Iterator[Any]:
        batches = list(right(*arguments))
        yield from batches[:-1] if len(batches) > 1 else batches

    monkeypatch.setattr(sampler, "positions", positions)


def part_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank draws the whole sample, so records count once per rank (P22)."""
    right = _policies.positions
    monkeypatch.setattr(sampler, "positions", lambda policy, records, stream, _: right(policy, records, stream, range(records)))


def same_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step reads the same bits (P20)."""
    kept: list[Any] = []
    right = Source.stream

    def stream(self: Source, *arguments: Any, step: int, lane: int = 0) -> Any:
        kept.append(kept[0] if kept else right(self, *arguments, step=0))
        return kept[0]

    monkeypatch.setattr(Source, "stream", stream)


def never_spent(self: Sample) -> None:
    self._refuse_fork()


MUTATIONS = [
    Mutation("p27: ties are tails", replaced(draws, "_heads", without_ties), partial(test_draws.check_all_first_digits, 0.01)),
    Mutation(
        "p27: ties are heads", replaced(draws, "_heads", ties_are_heads), partial(test_draws.check_all_first_digits, 0.01)
    ),
    Mutation(
        "one word decides all ties of a block",
        replaced(draws, "_heads", one_word_for_all_ties),
        test_draws.test_ties_of_one_block_read_different_words,
    ),
    Mutation("tie words do not belong to blocks", ties_by_range, test_draws.check_tie_words_belong_to_blocks),
    Mutation(
        "p27: the probability on a lattice",
        replaced(draws, "_digits", rounded_probability),
        partial(test_draws.test_p27_the_digits_are_the_probability_exactly, 6.5e-8),
    ),
    Mutation("biased modulo", replaced(draws, "_Integers", Modulo), partial(test_draws.check_no_value_is_preferred, 2**62 + 1)),
    Mutation(
        "ties of keys by number",
        replaced(draws, "_order_ties", lambda *_: None),
        test_draws.check_ties_are_put_in_random_order,
    ),
    Mutation(
        "a subset with replacement",
        replaced(_policies, "subset", with_replacement),
        follows(FixedSize(2, 5), 5, fixed_law(5, 2)),
    ),
    Mutation(
        "truncation keeps the first",
        replaced(_policies, "subset", first_ones),
        follows(TruncatedPoisson(0.6, 2, 4), 4, truncated_law(4, 0.6, 2)),
    ),
    Mutation("no shuffle", replaced(_policies, "permutation", not_shuffled), follows(Shuffled(2), 5, shuffled_law(5, 2))),
    Mutation("bins of equal size", replaced(_policies, "below", equal_bins), follows(BallsInBins(3), 3, bins_law(3, 3))),
    Mutation("p20: the same bits in every step", same_stream, follows(Poisson(0.3), 4, poisson_law(4, 0.3))),
    Mutation("p28: empty samples skipped", skip_empty, test_sampler.check_empty_samples_are_samples),
    Mutation(
        "p32: the last batch dropped",
        drop_last_batch,
        laws.test_p28_p30_p32_positions_are_those_of_the_data_set_and_every_batch_comes,
    ),
    Mutation("p22: every rank draws all", part_of_its_own, laws.test_p22_the_parts_of_the_ranks_are_the_sample_of_one),
    Mutation(
        "the first rows of a unit, always",
        replaced(owners_module, "smallest_keys", first_rows),
        test_owners.test_the_rows_of_a_unit_are_chosen_anew_in_each_draw,
    ),
    Mutation(
        "rows are not capped",
        replaced(owners_module, "smallest_keys", no_cap),
        partial(test_owners.check_rows_belong_to_their_units, 2),
    ),
    Mutation(
        "p16: a sample is spent twice", replaced(Sample, "spend", never_spent), test_sample.test_p16_a_sample_is_spent_once
    ),
    Mutation(
        "p22: ranks with keys of their own",
        replaced(sampler, "_in_all_ranks", lambda _: True),
        test_sampler.test_p22_ranks_need_one_secret,
    ),
    Mutation(
        "p42: a sample shows its records",
        replaced(Sample, "__repr__", lambda self: f"Sample({self._units})"),
        test_sample.test_p42_nothing_of_a_sample_is_shown,
    ),
    Mutation(
        "p20: a fork may use a sample",
        replaced(Sample, "_refuse_fork", lambda _: None),
        test_sample.test_p20_a_fork_cannot_use_a_sample_or_a_draw,
    ),
]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # a fork where other tests left threads
@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutation, monkeypatch, (*CAUGHT, LookupError))
