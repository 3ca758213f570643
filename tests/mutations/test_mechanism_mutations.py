"""Deliberate privacy bugs in the mechanisms, each applied to the real code, and the check that catches it."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from discreet.mechanisms import AdaptiveClip, Bound, Gaussian, Group, Joint, Microbatches, Normalised, Split, Threshold, groups
from discreet.mechanisms import bound as binding
from discreet.mechanisms import split as splitting
from laws import test_mechanisms as laws
from support.mechanisms import check_median, within_bound
from support.mutations import Mutation, assert_caught, by_name, replaced
from unit.mechanisms import test_adaptive, test_group, test_groups

right_groups, right_ratios, right_observations = Bound.groups, Group.ratios, Bound.observations
right_moved, right_shares = Threshold.moved, splitting._shares


# --- checks that need no hypothesis ---


def no_record_exceeds_its_bound() -> None:
    """Ten thousand random norms, over twelve orders of magnitude, in both widths: exact comparison."""
    rng = np.random.default_rng(5)
    leaves = {"a": 1, "b": 1}
    for mechanism in (Gaussian(0.7, 1.0), Normalised(0.7, 1.0, stability=0.01), Joint(0.7, 1.0, {"a": 0.3, "b": 90.0})):
        (group,) = mechanism.bind(leaves).start
        for dtype in (np.float32, np.float64):
            squares = (10.0 ** rng.uniform(-6, 6, (1500, 2))).astype(dtype)
            weights = group.weights(squares)
            assert all(within_bound(group, row, weight) for row, weight in zip(squares.tolist(), weights.tolist(), strict=True))


def what_was_asked_for_is_stated() -> None:
    gaussian = Gaussian(2.0, 1.3)
    for mechanism in (
        gaussian,
        Split(2.0, 1.3),
        Split(2.0, 1.3, clip="by dimension", noise="by dimension"),
        AdaptiveClip(gaussian, 0.5, 3.0),
        Microbatches(gaussian, 4),
    ):
        laws.check_folding(mechanism)


def parts_add_up() -> None:
    laws.check_split("by dimension", {"w": 96, "b": 4})


def a_slot_counts_twice() -> None:
    test_group.test_the_event_is_what_is_executed()
    laws.test_p15_a_record_more_moves_the_sum_of_slots_by_twice_the_clip_norm_at_most()


# --- bugs ---


def norms_of_unscaled_vectors(self: Group, squared_norms: Any) -> Any:
    return right_ratios(replace(self, scales=(1.0,) * len(self.scales)), squared_norms)


def everything_valid(self: Group, squared_norms: Any) -> Any:
    ratio, valid = right_ratios(self, squared_norms)
    return ratio, valid | True


def noise_of_the_next_threshold(self: Bound, state: Any) -> Any:
    """Noise for a threshold a tenth smaller than the one that clips."""
    return tuple(
        replace(group, noise_std=0.9 * group.noise_std) if group.name in state else group for group in right_groups(self, state)
    )


def not_centred(self: Bound, state: Any, squared_norms: Any) -> Any:
    return {leaf: bits + 0.5 for leaf, bits in right_observations(self, state, squared_norms).items()}


def reversed_direction(self: Threshold, threshold: float, released_fraction: float) -> float:
    return right_moved(self, threshold, 2 * self.quantile - released_fraction)


def free_bits(self: AdaptiveClip) -> float:
    return self.mechanism.noise_multiplier


def only_the_largest(queries: Any) -> float:
    return float(min(query.noise_std / query.sensitivity for query in queries))


def inverse_root(name: str, policy: Any, dimensions: dict[str, int]) -> dict[str, Fraction]:
    shares = right_shares(name, policy, dimensions)
    return {part: 1 / share for part, share in shares.items()} if name == "clip" else shares


def every_part_the_whole(name: str, policy: Any, dimensions: dict[str, int]) -> dict[str, Fraction]:
    return dict.fromkeys(dimensions, Fraction(1)) if name == "noise" else right_shares(name, policy, dimensions)


def orphans_ignored(_: str, __: str, patterns: Any, leaves: Any) -> dict[str, tuple[str, ...]]:
    given = list(patterns)
    return {given[0]: tuple(leaves)}


MUTATIONS = [
    Mutation(
        "P01 nothing is clipped",
        replaced(Group, "weights", lambda _, squares: squares[:, 0] * 0 + 1),
        no_record_exceeds_its_bound,
    ),
    Mutation("weights rounded to nearest", replaced(Group, "_margin", lambda *_: 0.0), no_record_exceeds_its_bound),
    Mutation("joint norms without scales", replaced(Group, "ratios", norms_of_unscaled_vectors), no_record_exceeds_its_bound),
    Mutation(
        "P02 the threshold of the first step clips for ever",
        replaced(Bound, "groups", lambda self, _: self.start),
        test_adaptive.test_p24_clip_noise_and_scaling_back_use_the_threshold_of_this_step,
    ),
    Mutation(
        "P13 a NaN keeps its weight",
        replaced(Group, "ratios", everything_valid),
        test_group.test_p13_a_record_that_is_not_a_number_has_weight_zero_and_changes_nobody,
    ),
    Mutation(
        "P15 a slot counts as a record",
        replaced(Group, "sensitivity", property(lambda self: self.clip_norm)),
        a_slot_counts_twice,
    ),
    Mutation(
        "P23 the bits of slots divided by the batch size",
        replaced(Group, "divisor", lambda _, size: size),
        test_adaptive.test_p23_the_divisor_of_slots_is_their_number,
    ),
    Mutation(
        "P24 the threshold moves the wrong way",
        replaced(Threshold, "moved", reversed_direction),
        test_adaptive.test_p24_the_threshold_moves_towards_the_quantile,
    ),
    Mutation(
        "P24 the threshold runs away from the median",
        replaced(Threshold, "moved", reversed_direction),
        lambda: check_median(1.0),
    ),
    Mutation(
        "P24 the bit is not centred",
        replaced(Bound, "observations", not_centred),
        test_adaptive.test_p24_the_bit_is_centred_and_paid_for,
    ),
    Mutation(
        "P24 the bit is not centred, seen in the threshold",
        replaced(Bound, "observations", not_centred),
        lambda: check_median(1.0),
    ),
    Mutation(
        "P24 old bound for clipping, new one for noise",
        replaced(Bound, "groups", noise_of_the_next_threshold),
        test_adaptive.test_p24_clip_noise_and_scaling_back_use_the_threshold_of_this_step,
    ),
    Mutation("P24 the bits cost nothing", replaced(AdaptiveClip, "_vector_noise", free_bits), what_was_asked_for_is_stated),
    Mutation(
        "P24 the query of the bits is not recorded",
        replaced(Bound, "queries", property(lambda self: (self.start[0].query,))),
        what_was_asked_for_is_stated,
    ),
    Mutation(
        "P34 only the largest group is counted",
        replaced(binding, "folded_noise_multiplier", only_the_largest),
        what_was_asked_for_is_stated,
    ),
    Mutation(
        "P34 every part gets the whole budget",
        replaced(splitting, "_shares", every_part_the_whole),
        what_was_asked_for_is_stated,
    ),
    Mutation("the rule by dimension as printed", replaced(splitting, "_shares", inverse_root), parts_add_up),
    Mutation(
        "leaves that nobody claims go to the first pattern",
        replaced(groups, "claim", orphans_ignored),
        test_groups.test_unclaimed_leaves_and_idle_patterns_are_both_listed,
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutation, monkeypatch)
