"""Deliberate privacy bugs in bits and noise, each applied to the real code, and the test that
catches it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from discreet import _process
from discreet.randomness import (
    GaussianNoise,
    Source,
    Stream,
    _cipher,
    box_muller,
    gaussian,
    refine,
    source,
)
from discreet.units import Randomness
from support.mutations import Mutation, assert_caught, by_name, replaced

NOISE = (
    "statistics/test_aggregation.py::"
    "test_p23_the_noise_of_every_mechanism_is_what_the_plan_states[groups]"
)
GAUSSIAN = "unit/randomness/test_gaussian.py"
REFINE = "unit/randomness/test_refine.py"
SOURCE = "unit/randomness/test_source.py"

right_derive, right_refine, right_init = _cipher.derive, refine.refine, GaussianNoise.__init__


def drops_a_label(position: int) -> Callable[..., bytes]:
    """Keys that do not depend on one of purpose, step, lane."""

    def wrong(key: Any, *labels: str) -> bytes:
        if labels[0] != "stream":
            return right_derive(key, *labels)
        return right_derive(
            key, *(label for place, label in enumerate(labels) if place != position)
        )

    return wrong


def halved(
    self: GaussianNoise, stream: Stream, *, scale: float, size: int, threads: int = 1
) -> None:
    right_init(self, stream, scale=scale / 2, size=size, threads=threads)


def never_exchanged(x1: Any, x2: Any, w2: Any, a: Any, out: Any) -> None:
    out[0::2], out[1::2] = x1, x2


def in_the_order_of_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refinement bits drawn one after the other instead of by the pair."""
    counter = iter(range(10**9))
    wrong = lambda stream, pair, words, scale: right_refine(stream, next(counter), words, scale)  # noqa: E731
    monkeypatch.setattr(refine, "refine", wrong)


MUTATIONS = [
    Mutation("P20 steps forgotten", replaced(source, "derive", drops_a_label(2)), NOISE),
    Mutation("P22 lanes forgotten", replaced(source, "derive", drops_a_label(3)), NOISE),
    Mutation(
        "P22 purposes forgotten",
        replaced(source, "derive", drops_a_label(1)),
        f"{SOURCE}::test_every_address_has_words_of_its_own",
    ),
    Mutation("P23 noise halved", replaced(GaussianNoise, "__init__", halved), NOISE),
    Mutation(
        "P20 a stream can be claimed again",
        replaced(Stream, "claim", lambda self, purpose: self),
        f"{GAUSSIAN}::test_p20_a_stream_serves_one_release",
    ),
    Mutation(
        "P20 positions are given out twice",
        replaced(GaussianNoise, "_advance", lambda self, count: 0),
        f"{GAUSSIAN}::test_no_more_than_the_size",
    ),
    Mutation(
        "P20 a fork keeps the key",
        replaced(_process, "current", lambda: "always the same"),
        f"{GAUSSIAN}::test_p20_a_fork_cannot_take_the_same_noise",
    ),
    Mutation(
        "P18 a key from the clock",
        replaced(source, "_entropy", lambda: bytes(32)),
        f"{SOURCE}::test_p20_a_new_source_has_a_new_key",
    ),
    Mutation(
        "P18 a test key is not marked",
        replaced(
            Source,
            "unsafe_test_key",
            classmethod(lambda cls, key: cls(source._Key(key), Randomness.SYSTEM)),
        ),
        f"{SOURCE}::test_a_test_key_marks_what_comes_from_it",
    ),
    Mutation(
        "P19 no pair is ever refined",
        replaced(box_muller, "decision_threshold", lambda scale: 0.5),
        f"{REFINE}::test_both_paths_agree_on_adversarial_words[9227468.8]",
    ),
    Mutation(
        "P19 undecided pairs keep their first guess",
        replaced(gaussian, "refine", lambda stream, pair, words, scale: (0, 0)),
        f"{GAUSSIAN}::test_every_pair_refined_gives_the_same_numbers",
    ),
    Mutation(
        "P19 refinement bits in the order of asking",
        in_the_order_of_asking,
        f"{REFINE}::test_refinement_bits_belong_to_the_pair",
    ),
    Mutation(
        "P19 the exchange bit is ignored",
        replaced(box_muller, "_exchange", never_exchanged),
        f"{REFINE}::test_both_paths_agree_on_adversarial_words[9227468.8]",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
