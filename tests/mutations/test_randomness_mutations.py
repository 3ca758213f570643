"""Deliberate privacy bugs in bits and noise, each applied to the real code, and the test that catches it."""

from collections.abc import Callable
from typing import Any

import pytest

from discreet import _process
from discreet.randomness import GaussianNoise, Source, Stream, _cipher, box_muller, gaussian, refine, source
from discreet.units import Randomness
from support.mutations import Mutation, assert_caught, by_name, replaced
from support.noise_statistics import MECHANISMS, WITHIN, deviations, errors
from unit.randomness import test_gaussian, test_refine, test_source

right_derive, right_refine, right_init = _cipher.derive, refine.refine, GaussianNoise.__init__


def drops_a_label(position: int) -> Callable[..., bytes]:
    """Keys that do not depend on one of purpose, step, lane."""

    def wrong(key: Any, *labels: str) -> bytes:
        if labels[0] != "stream":
            return right_derive(key, *labels)
        return right_derive(key, *(label for place, label in enumerate(labels) if place != position))

    return wrong


def halved(self: GaussianNoise, stream: Stream, *, scale: float, size: int, threads: int = 1) -> None:
    right_init(self, stream, scale=scale / 2, size=size, threads=threads)


def never_exchanged(x1: Any, x2: Any, w2: Any, a: Any, out: Any) -> None:
    out[0::2], out[1::2] = x1, x2


def in_the_order_of_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refinement bits drawn one after the other instead of by the pair."""
    counter = iter(range(10**9))
    wrong = lambda stream, pair, words, scale: right_refine(stream, next(counter), words, scale)  # noqa: E731
    monkeypatch.setattr(refine, "refine", wrong)
    monkeypatch.setattr(test_refine, "refine", wrong)


def noise_is_as_planned() -> None:
    assert max(deviations(errors(MECHANISMS["groups"]))) < WITHIN


def every_pair_refined() -> None:
    with pytest.MonkeyPatch.context() as inner:
        test_gaussian.test_every_pair_refined_gives_the_same_numbers(inner)


MUTATIONS = [
    Mutation("P20 steps forgotten", replaced(source, "derive", drops_a_label(2)), noise_is_as_planned),
    Mutation("P22 lanes forgotten", replaced(source, "derive", drops_a_label(3)), noise_is_as_planned),
    Mutation(
        "P22 purposes forgotten",
        replaced(source, "derive", drops_a_label(1)),
        test_source.test_every_address_has_words_of_its_own,
    ),
    Mutation("P23 noise halved", replaced(GaussianNoise, "__init__", halved), noise_is_as_planned),
    Mutation(
        "P20 a stream can be claimed again",
        replaced(Stream, "claim", lambda self, purpose: self),
        test_gaussian.test_p20_a_stream_serves_one_release,
    ),
    Mutation(
        "P20 positions are given out twice",
        replaced(GaussianNoise, "_advance", lambda self, count: 0),
        test_gaussian.test_no_more_than_the_size,
    ),
    Mutation(
        "P20 a fork keeps the key",
        replaced(_process, "current", lambda: "always the same"),
        test_gaussian.test_p20_a_fork_cannot_take_the_same_noise,
    ),
    Mutation(
        "P18 a key from the clock",
        replaced(source, "_entropy", lambda: bytes(32)),
        test_source.test_p20_a_new_source_has_a_new_key,
    ),
    Mutation(
        "P18 a test key is not marked",
        replaced(Source, "unsafe_test_key", classmethod(lambda cls, key: cls(source._Key(key), Randomness.SYSTEM))),
        test_source.test_a_test_key_marks_what_comes_from_it,
    ),
    Mutation(
        "P19 no pair is ever refined",
        replaced(box_muller, "threshold", lambda scale: 0.5),
        lambda: test_refine.test_both_paths_agree_on_adversarial_words(1.1 * 2**23),
    ),
    Mutation(
        "P19 undecided pairs keep their first guess",
        replaced(gaussian, "refine", lambda stream, pair, words, scale: (0, 0)),
        every_pair_refined,
    ),
    Mutation(
        "refinement bits in the order of asking", in_the_order_of_asking, test_refine.test_refinement_bits_belong_to_the_pair
    ),
    Mutation(
        "the exchange bit is ignored",
        replaced(box_muller, "_exchange", never_exchanged),
        lambda: test_refine.test_both_paths_agree_on_adversarial_words(1.1 * 2**23),
    ),
]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutation, monkeypatch)
