"""Deliberate privacy bugs in bits and noise, each applied to the real code, and the test that
catches it.
"""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet import _process
from discreet.native import places
from discreet.randomness import (
    GaussianNoise,
    Source,
    Stream,
    _cipher,
    _compiled,
    gaussian,
    layers,
    refine,
    source,
    ziggurat,
)
from discreet.units import Randomness
from support.mutations import Mutation, assert_caught, by_name, replaced

NOISE = (
    "statistics/test_aggregation.py::"
    "test_p23_the_noise_of_every_mechanism_is_what_the_plan_states[groups]"
)
GAUSSIAN = "unit/randomness/test_gaussian.py"
REFINE = "unit/randomness/test_refine.py"
COMPILED = "unit/randomness/test_compiled.py"
PLACES = "unit/native/test_places.py"
SOURCE = "unit/randomness/test_source.py"
LAYERS = "unit/randomness/test_layers.py"
TIERS = f"{REFINE}::test_the_tiers_agree_on_adversarial_words[5.5]"

right_derive, right_refine, right_init = _cipher.derive, refine.refine, GaussianNoise.__init__
right_inverse, right_limit, right_release = (
    layers._inverse,
    layers._limit,
    ziggurat.release_inside,
)


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


def a_wrong_entry(edge: int) -> tuple[int, int]:
    """One layer is a thousandth too narrow for the bell."""
    lower, upper = right_inverse(edge)
    return lower, upper - (upper // 1000 if 2**62 < edge < 2**62 + 2**51 else 0)


def raw_where_it_is_not_decided(*arguments: Any) -> Any:
    """What tier 1 leaves keeps its sum."""
    *_, sums, _, out = arguments
    before = sums.copy()
    places, units = right_release(*arguments)
    out[places] = before[places]
    return places, units


def in_the_order_of_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refinement bits drawn one after the other instead of by the number."""
    counter = iter(range(10**9))
    wrong = lambda stream, number, words, scale: right_refine(stream, next(counter), words, scale)  # noqa: E731
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
        "P19 no number is ever refined",
        replaced(ziggurat, "decision_threshold", lambda scale: 0.5),
        f"{REFINE}::test_the_tiers_agree_on_adversarial_words[9227468.8]",
    ),
    Mutation(
        "P19 undecided numbers keep their first guess",
        replaced(gaussian, "refine", lambda stream, number, words, scale: 0),
        f"{GAUSSIAN}::test_every_number_refined_gives_the_same_numbers",
    ),
    Mutation(
        "P19 refinement bits in the order of asking",
        in_the_order_of_asking,
        f"{REFINE}::test_refinement_bits_belong_to_the_number",
    ),
    Mutation(
        "P19 a wrong entry in the table of layers",
        replaced(layers, "_inverse", a_wrong_entry),
        f"{LAYERS}::test_the_layers_cover_the_bell_and_their_insides_are_under_it",
    ),
    Mutation(
        "P19 points above the bell count as inside",
        replaced(layers, "_limit", lambda inside, width: right_limit(inside, width) + 2),
        f"{LAYERS}::test_the_layers_cover_the_bell_and_their_insides_are_under_it",
    ),
    Mutation(
        "P19 a skipped wedge",
        replaced(ziggurat, "surplus", lambda log, x: np.ones(np.shape(log))),
        TIERS,
    ),
    Mutation(
        "P19 a number that is not decided keeps its raw sum",
        replaced(ziggurat, "release_inside", raw_where_it_is_not_decided),
        "unit/randomness/test_ziggurat.py"
        "::test_what_is_not_decided_becomes_nan_and_its_sum_is_handed_back",
    ),
    Mutation(
        "P19 an interrupted release leaves raw sums",
        replaced(gaussian, "nan_on_failure", lambda *_: nullcontext()),
        f"{GAUSSIAN}::test_no_raw_sum_is_left_when_a_release_breaks_off",
    ),
    Mutation(
        "P20 further words of a block begin anew with every piece",
        replaced(GaussianNoise, "_rank", lambda self, position, reader: 0),
        f"{GAUSSIAN}::test_ranks_are_counted_where_they_are_not_known",
    ),
    Mutation(
        "P18 compiled code is used whatever it gives",
        replaced(_compiled, "_require", lambda _: None),
        f"{COMPILED}::test_p18_a_kernel_that_does_not_agree_is_refused[decide]",
    ),
    Mutation(
        "P18 compiled code is loaded from where others can write",
        replaced(places, "is_private", lambda _: True),
        f"{PLACES}::test_a_folder_that_others_can_write_to_is_ignored[discreet-511]",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
