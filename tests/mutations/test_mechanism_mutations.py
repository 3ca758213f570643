"""Deliberate privacy bugs in the mechanisms, each applied to the real code, and the check that
catches it.
"""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from discreet.errors import ParameterError
from discreet.mechanisms import (
    AdaptiveClip,
    Bound,
    Group,
    Microbatches,
    Split,
    Threshold,
    checked_bound,
    groups,
)
from discreet.mechanisms import bound as binding
from discreet.mechanisms import split as splitting
from discreet.plan import plan as planning
from support.mutations import Mutation, assert_caught, by_name, replaced

NO_RECORD_EXCEEDS = "laws/test_mechanisms.py::test_no_record_exceeds_the_clip_norm"
AS_ASKED_FOR = "laws/test_mechanisms.py::test_p34_the_folded_multiplier_is_the_one_asked_for"
LAWS = "laws/test_mechanisms.py"
ADAPTIVE = "unit/mechanisms/test_adaptive.py"
GROUP = "unit/mechanisms/test_group.py"
GROUPS = "unit/mechanisms/test_groups.py"

right_groups, right_ratios, right_observations = Bound.groups, Group.ratios, Bound.observations
right_checked = checked_bound
right_moved, right_shares = Threshold.moved, splitting._shares


def norms_of_unscaled_vectors(self: Group, squared_norms: Any) -> Any:
    return right_ratios(replace(self, scales=(1.0,) * len(self.scales)), squared_norms)


def everything_valid(self: Group, squared_norms: Any) -> Any:
    ratio, valid = right_ratios(self, squared_norms)
    return ratio, valid | True


def noise_of_the_next_threshold(self: Bound, state: Any) -> Any:
    """Noise for a threshold a tenth smaller than the one that clips."""
    return tuple(
        replace(group, noise_std=0.9 * group.noise_std) if group.name in state else group
        for group in right_groups(self, state)
    )


def not_centred(self: Bound, state: Any, squared_norms: Any) -> Any:
    return {
        leaf: bits + 0.5 for leaf, bits in right_observations(self, state, squared_norms).items()
    }


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
    return (
        dict.fromkeys(dimensions, Fraction(1))
        if name == "noise"
        else right_shares(name, policy, dimensions)
    )


def orphans_ignored(_: str, __: str, patterns: Any, leaves: Any) -> dict[str, tuple[str, ...]]:
    given = list(patterns)
    return {given[0]: tuple(leaves)}


def any_group(owner: str, bound: Any, leaves: Any) -> Any:
    """Leaves are checked, classes are not."""
    brought = {leaf: size for leaf, size in bound.dimensions.items() if leaf not in bound.observed}
    if brought != dict(leaves):
        raise ParameterError(owner=owner, name="mechanism", expected="takes every leaf", got="")
    return bound


def any_leaves(owner: str, bound: Any, leaves: Any) -> Any:
    """Classes are checked, leaves are not."""
    if type(bound) is not Bound or not bound.is_of_the_library:
        return right_checked(owner, bound, leaves)
    return bound


def equal_parts(self: Split, name: str = "all") -> Bound:
    """A stand-in also where shares and parts follow the leaves."""
    return self.bind({name: 1}, name)


MUTATIONS = [
    Mutation(
        "an own mechanism may bring groups that do not clip",
        replaced(planning, "checked_bound", any_group),
        "unit/mechanisms/test_mechanism.py::test_what_the_proofs_are_not_about_is_refused[group]",
    ),
    Mutation(
        "an own mechanism may leave a leaf out",
        replaced(planning, "checked_bound", any_leaves),
        "unit/mechanisms/test_mechanism.py::test_what_the_proofs_are_not_about_is_refused[fewer]",
    ),
    Mutation(
        "an own mechanism in slots keeps the noise of its own slots",
        replaced(Microbatches, "_in_slots", lambda _, bound: bound),
        "unit/mechanisms/test_mechanism.py::test_slots_do_not_hide_what_a_group_says[slots]",
    ),
    Mutation(
        "a stand-in of an own size for leaves that matter",
        replaced(Split, "bind_without_leaves", equal_parts),
        f"{LAWS}::test_a_mechanism_is_stated_without_leaves_only_where_they_cannot_matter",
    ),
    Mutation(
        "P01 nothing is clipped",
        replaced(Group, "weights", lambda _, squares: squares[:, 0] * 0 + 1),
        NO_RECORD_EXCEEDS,
    ),
    Mutation(
        "P14 weights rounded to nearest",
        replaced(Group, "_margin", lambda *_: 0.0),
        NO_RECORD_EXCEEDS,
    ),
    Mutation(
        "joint norms without scales",
        replaced(Group, "ratios", norms_of_unscaled_vectors),
        NO_RECORD_EXCEEDS,
    ),
    Mutation(
        "P02 the threshold of the first step clips for ever",
        replaced(Bound, "groups", lambda self, _: self.start),
        f"{ADAPTIVE}::test_p24_clip_noise_and_scaling_back_use_the_threshold_of_this_step",
    ),
    Mutation(
        "P13 a NaN keeps its weight",
        replaced(Group, "ratios", everything_valid),
        f"{GROUP}::test_p13_a_record_that_is_not_a_number_has_weight_zero_and_changes_nobody",
    ),
    Mutation(
        "P15 a slot counts as a record",
        replaced(Group, "sensitivity", property(lambda self: self.clip_norm)),
        f"{GROUP}::test_the_event_is_what_is_executed",
    ),
    Mutation(
        "P23 the bits of slots divided by the batch size",
        replaced(Group, "divisor", lambda _, size: size),
        f"{ADAPTIVE}::test_p23_the_divisor_of_slots_is_their_number",
    ),
    Mutation(
        "P24 the threshold moves the wrong way",
        replaced(Threshold, "moved", reversed_direction),
        f"{ADAPTIVE}::test_p24_the_threshold_moves_towards_the_quantile",
    ),
    Mutation(
        "P24 the threshold runs away from the median",
        replaced(Threshold, "moved", reversed_direction),
        "statistics/test_mechanisms.py::test_p24_adaptive_clipping_reaches_the_median[1.0]",
    ),
    Mutation(
        "P24 the bit is not centred",
        replaced(Bound, "observations", not_centred),
        f"{ADAPTIVE}::test_p24_the_bit_is_centred_and_paid_for",
    ),
    Mutation(
        "P24 the bit is not centred, seen in the threshold",
        replaced(Bound, "observations", not_centred),
        "statistics/test_mechanisms.py::test_p24_adaptive_clipping_reaches_the_median[1.0]",
    ),
    Mutation(
        "P24 old bound for clipping, new one for noise",
        replaced(Bound, "groups", noise_of_the_next_threshold),
        f"{ADAPTIVE}::test_p24_clip_noise_and_scaling_back_use_the_threshold_of_this_step",
    ),
    Mutation(
        "P24 the bits cost nothing",
        replaced(AdaptiveClip, "_vector_noise", free_bits),
        AS_ASKED_FOR,
    ),
    Mutation(
        "P24 the query of the bits is not recorded",
        replaced(Bound, "queries", property(lambda self: (self.start[0].query,))),
        AS_ASKED_FOR,
    ),
    Mutation(
        "P34 a mechanism counts its largest group only",
        replaced(binding, "folded_noise_multiplier", only_the_largest),
        AS_ASKED_FOR,
    ),
    Mutation(
        "P34 P44 every part gets the whole budget",
        replaced(splitting, "_shares", every_part_the_whole),
        AS_ASKED_FOR,
    ),
    Mutation(
        "the rule by dimension as printed",
        replaced(splitting, "_shares", inverse_root),
        f"{LAWS}::test_clip_norms_of_the_parts_add_up_to_the_total",
    ),
    Mutation(
        "leaves that nobody claims go to the first pattern",
        replaced(groups, "claim_leaves", orphans_ignored),
        f"{GROUPS}::test_unclaimed_leaves_and_idle_patterns_are_both_listed",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
