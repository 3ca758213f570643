"""Deliberate privacy bugs in the sampling code, each applied to the real code, and the test that
catches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet.plan import Plan
from discreet.randomness import Source, draws
from discreet.sampling import Sample, _own, _policies, sampler
from discreet.sampling import owners as owners_module
from support.mutations import Mutation, assert_caught, by_name, replaced

JOINT = "statistics/test_samplers.py::test_p26_p28_the_joint_law_of_a_step"
LAWS = "laws/test_samplers.py"
DRAWS = "unit/randomness/test_draws.py"
OWN = "unit/sampling/test_own.py"
OWNERS = "unit/sampling/test_owners.py"
SAMPLE = "unit/sampling/test_sample.py"
SAMPLER = "unit/sampling/test_sampler.py"


def without_ties(coins: Any, digits: list[int], *_: Any) -> Any:
    """Sixteen bits decide."""
    return np.flatnonzero(coins < digits[0])


def ties_are_heads(coins: Any, digits: list[int], *_: Any) -> Any:
    return np.flatnonzero(coins <= digits[0])


def one_word_for_all_ties(coins: Any, digits: list[int], further: Any, block: int) -> Any:
    ties = np.flatnonzero(coins == digits[0])
    word = int(further[0].words(1, block)[0]) if ties.size and further else 2**64
    return (
        np.flatnonzero(coins <= digits[0])
        if further and word < digits[1]
        else np.flatnonzero(coins < digits[0])
    )


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
    return np.concatenate(
        [
            np.arange(start, min(stop, start + most))
            for start, stop in zip(starts, stops, strict=True)
        ]
    )


def no_cap(_: Any, starts: Any, stops: Any, __: int) -> Any:
    return np.concatenate(
        [np.arange(start, stop) for start, stop in zip(starts, stops, strict=True)]
    )


def shuffled_for_poisson(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a shuffled data set, of the expected size, where the ledger says Poisson."""

    def first_batch(stream: Any, probability: float, start: int, stop: int) -> Any:
        return (
            np.sort(draws.permutation(stream, stop - start)[: round(probability * (stop - start))])
            + start
        )

    monkeypatch.setattr(_policies, "bernoulli", first_batch)


def higher_probability(stream: Any, probability: float, start: int, stop: int) -> Any:
    return draws.bernoulli(stream, min(1.0, 1.2 * probability), start, stop)


def skip_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _policies.drawn_positions

    def positions(*arguments: Any) -> Iterator[Any]:
        return (batch for batch in right(*arguments) if batch.size)

    monkeypatch.setattr(sampler, "drawn_positions", positions)


def drop_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _policies.drawn_positions

    def positions(*arguments: Any) -> Iterator[Any]:
        batches = list(right(*arguments))
        yield from batches[:-1] if len(batches) > 1 else batches

    monkeypatch.setattr(sampler, "drawn_positions", positions)


def part_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank draws the whole sample, so records count once per rank (P22)."""
    right = _policies.drawn_positions
    monkeypatch.setattr(
        sampler,
        "drawn_positions",
        lambda policy, records, stream, _: right(policy, records, stream, range(records)),
    )


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


def unchecked(draw: Any, policy: Any, records: int, stream: Any, part: range) -> Iterator[Any]:
    """Whatever an own draw says is issued."""
    for batch in draw(records, stream):
        yield np.sort(np.asarray(batch, np.int64))


def each_batch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are checked one by one, an epoch is not."""
    right = _own._checked

    def positions(draw: Any, policy: Any, records: int, stream: Any, _: range) -> Iterator[Any]:
        return (right(batch, policy, records) for batch in draw(records, stream))

    monkeypatch.setattr(sampler, "own_positions", positions)


MUTATIONS = [
    Mutation(
        "an own draw is issued as it comes",
        replaced(sampler, "own_positions", unchecked),
        f"{OWN}::test_what_the_event_rules_out_is_refused",
    ),
    Mutation(
        "an own draw may use a record twice in an epoch",
        each_batch_alone,
        f"{OWN}::test_what_the_event_rules_out_is_refused",
    ),
    Mutation(
        "an own draw leaves the guarantee as it is",
        replaced(Plan, "_own_draw", property(lambda _: False)),
        f"{OWN}::test_the_law_of_an_own_draw_is_nobodys_guarantee",
    ),
    Mutation(
        "P27 ties are tails",
        replaced(draws, "_heads", without_ties),
        f"{DRAWS}::test_p27_every_first_digit_is_decided_rightly[0.01]",
    ),
    Mutation(
        "P27 ties are heads",
        replaced(draws, "_heads", ties_are_heads),
        f"{DRAWS}::test_p27_every_first_digit_is_decided_rightly[0.01]",
    ),
    Mutation(
        "P27 one word decides all ties of a block",
        replaced(draws, "_heads", one_word_for_all_ties),
        f"{DRAWS}::test_ties_of_one_block_read_different_words",
    ),
    Mutation(
        "P22 tie words do not belong to blocks",
        ties_by_range,
        f"{DRAWS}::test_p22_tie_words_belong_to_blocks",
    ),
    Mutation(
        "P27 the probability on a lattice",
        replaced(draws, "_digits", rounded_probability),
        f"{DRAWS}::test_p27_the_digits_are_the_probability_exactly[6.5e-08]",
    ),
    Mutation(
        "P27 a biased modulo",
        replaced(draws, "_Integers", Modulo),
        f"{DRAWS}::test_integers_pass_over_the_words_that_would_bias_them",
    ),
    Mutation(
        "ties of keys by number",
        replaced(draws, "_order_ties", lambda *_: None),
        f"{DRAWS}::test_equal_keys_of_a_permutation_are_decided_by_more_bits",
    ),
    Mutation(
        "P26 a subset with replacement",
        replaced(_policies, "subset", with_replacement),
        f"{JOINT}[fixed]",
    ),
    Mutation(
        "P26 truncation keeps the first",
        replaced(_policies, "subset", first_ones),
        f"{JOINT}[truncated]",
    ),
    Mutation(
        "P26 shuffled batches in the place of Poisson samples",
        shuffled_for_poisson,
        f"{JOINT}[poisson]",
    ),
    Mutation(
        "P26 the probability is not the one charged",
        replaced(_policies, "bernoulli", higher_probability),
        f"{JOINT}[poisson]",
    ),
    Mutation(
        "P26 no shuffle", replaced(_policies, "permutation", not_shuffled), f"{JOINT}[shuffled]"
    ),
    Mutation("P26 bins of equal size", replaced(_policies, "below", equal_bins), f"{JOINT}[bins]"),
    Mutation(
        "P20 the same bits in every step",
        same_stream,
        "statistics/test_samplers.py::test_p20_consecutive_steps_are_independent[poisson]",
    ),
    Mutation(
        "P28 the sampler skips empty samples",
        skip_empty,
        f"{SAMPLER}::test_p28_an_empty_sample_is_a_sample",
    ),
    Mutation(
        "P32 the last batch dropped",
        drop_last_batch,
        f"{LAWS}::test_p28_p30_p32_positions_are_those_of_the_data_set_and_every_batch_comes",
    ),
    Mutation(
        "P22 every rank draws all",
        part_of_its_own,
        f"{LAWS}::test_p22_the_parts_of_the_ranks_are_the_sample_of_one",
    ),
    Mutation(
        "the first rows of a unit, always",
        replaced(owners_module, "smallest_keys", first_rows),
        f"{OWNERS}::test_the_rows_of_a_unit_are_chosen_anew_in_each_draw",
    ),
    Mutation(
        "rows are not capped",
        replaced(owners_module, "smallest_keys", no_cap),
        f"{OWNERS}::test_rows_are_grouped_by_unit_and_capped",
    ),
    Mutation(
        "P16 a sample is spent twice",
        replaced(Sample, "spend", never_spent),
        f"{SAMPLE}::test_p16_a_sample_is_spent_once",
    ),
    Mutation(
        "P22 ranks with keys of their own",
        replaced(sampler, "_in_all_ranks", lambda _: True),
        f"{SAMPLER}::test_p22_ranks_need_one_secret",
    ),
    Mutation(
        "P42 a sample shows its records",
        replaced(Sample, "__repr__", lambda self: f"Sample({self._units})"),
        f"{SAMPLE}::test_p42_nothing_of_a_sample_is_shown",
    ),
    Mutation(
        "P20 a fork may use a sample",
        replaced(Sample, "_refuse_fork", lambda _: None),
        f"{SAMPLE}::test_p20_a_fork_cannot_use_a_sample_or_a_draw",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
