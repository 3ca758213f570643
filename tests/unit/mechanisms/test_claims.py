"""Which pattern claims which leaf, and which leaves there can be."""

from typing import Any

import pytest

from discreet.errors import ParameterError
from discreet.mechanisms._claims import checked_leaves, claim_leaves


@pytest.mark.parametrize(
    ("patterns", "leaves", "claimed"),
    [
        (["*"], ["a", "b"], {"*": ("a", "b")}),
        (["a*", "*"], ["ab", "b"], {"a*": ("ab",), "*": ("b",)}),
        (["[ab]?", "c"], ["b0", "c", "a1"], {"[ab]?": ("b0", "a1"), "c": ("c",)}),
        (["grad/*"], ["grad/a/b"], {"grad/*": ("grad/a/b",)}),
    ],
)
def test_the_first_pattern_that_matches_has_the_leaf(
    patterns: list[str], leaves: list[str], claimed: dict[str, tuple[str, ...]]
) -> None:
    assert claim_leaves("Groups", "mechanisms", patterns, leaves) == claimed


@pytest.mark.parametrize(
    ("patterns", "leaves", "words"),
    [
        (["a"], ["a", "b"], "nobody claims ['b']"),
        (["*", "a"], ["a"], "claim nothing ['a']"),
        (["A"], ["a"], "nobody claims ['a']"),
        (["?"], ["ab"], "nobody claims ['ab']"),
    ],
)
def test_orphans_and_idle_patterns_are_named(
    patterns: list[str], leaves: list[str], words: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        claim_leaves("Groups", "mechanisms", patterns, leaves)
    assert words in str(caught.value)


@pytest.mark.parametrize("leaves", [{}, None, ["a"], {"a": 0}, {"a": 1.5}, {"": 1}, {3: 1}])
def test_leaves_have_names_and_dimensions(leaves: Any) -> None:
    with pytest.raises(ParameterError, match="leaves"):
        checked_leaves("Groups", leaves)
    assert checked_leaves("Groups", {"a": 3}) == {"a": 3}
