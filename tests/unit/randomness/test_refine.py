"""The exact path against 200 digits, and the agreement of both paths."""

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from discreet.errors import NumericsError
from discreet.randomness import Purpose, Source, Stream, box_muller
from discreet.randomness import refine as refine_module
from discreet.randomness.refine import refine
from support.words import adversarial

SCALES = (2.0**-32, 0.3, 1.0, 5.5, 1.1 * 2**23, 2.0**32)


def stream(step: int = 0) -> Stream:
    return Source.unsafe_test_key(bytes(range(32))).stream(Purpose.NOISE, step=step)


def reference(
    source: Stream, pair: int, words: NDArray[np.uint64], scale: float, rounds: int = 4
) -> tuple[int, int]:
    """The same map at 200 digits, from the words and the bits of several rounds at once; the value,
    not an enclosure.
    """
    u, t = int(words[0]) >> 1, int(words[1]) % 2**52
    for i in range(1, rounds + 1):
        more, further = (int(w) for w in source.child(f"refine/{i}").words(2, start=2 * pair))
        u, t = (u << 64) + more, (t << 64) + further
    with mpmath.workdps(200):
        r = mpmath.mpf(scale) * mpmath.sqrt(
            -2 * mpmath.log((mpmath.mpf(u) + 0.5) / mpmath.mpf(2) ** (63 + 64 * rounds))
        )
        b = ((mpmath.mpf(t) + 0.5) / mpmath.mpf(2) ** (52 + 64 * rounds) - 0.5) * mpmath.pi / 2
        x1, x2 = (int(mpmath.nint(r * f(b))) for f in (mpmath.cos, mpmath.sin))
    x1, x2 = (-x1, -x2) if int(words[1]) >> 63 else (x1, x2)
    return (x2, x1) if int(words[1]) >> 62 & 1 else (x1, x2)


@pytest.mark.parametrize("scale", SCALES)
def test_it_is_the_map_at_200_digits(scale: float) -> None:
    source = stream()
    words = adversarial(240, scale, seed=7)
    for pair in range(240):
        two = words[2 * pair : 2 * pair + 2]
        assert refine(source, pair, two, scale) == reference(source, pair, two, scale)


@pytest.mark.parametrize("u", [0, 1, 2, 2**63 - 1])
@pytest.mark.parametrize("t", [0, 2**51 - 1, 2**51, 2**52 - 1])
def test_prefixes_that_need_more_bits(u: int, t: int) -> None:
    """With u = 0 the radius has no bound until more bits come; with u = 2^63 - 1 the interval
    reaches U = 1.
    """
    source = stream()
    for flags in range(4):
        words = np.array([u << 1, t | flags << 62], np.uint64)
        assert refine(source, 5, words, 1.1 * 2**23) == reference(source, 5, words, 1.1 * 2**23)


def test_refinement_bits_belong_to_the_pair() -> None:
    words = np.array([2, 2**51 + 12345], np.uint64)
    first = [refine_module.refine(stream(), pair, words, 2.0**30) for pair in (3, 4)]
    again = [refine_module.refine(stream(), pair, words, 2.0**30) for pair in (4, 3)]
    assert first == again[::-1]
    assert first[0] != first[1]


def test_noise_that_could_not_be_added_exactly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine_module, "LARGEST", 2)
    with pytest.raises(NumericsError, match="noise below"):
        refine(stream(), 0, np.array([2**40, 2**51], np.uint64), 100.0)


def test_a_generator_of_zeros_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine_module, "_MOST_ROUNDS", 20)
    monkeypatch.setattr(Stream, "words", lambda self, count, start=0: np.zeros(count, np.uint64))
    with pytest.raises(NumericsError, match="no working generator"):
        refine(stream(), 0, np.zeros(2, np.uint64), 1.0)


def disagreements(count: int, scale: float, seed: int) -> tuple[int, int]:
    """(pairs on which the fast path is decided and wrong, pairs that it decides)."""
    source = stream()
    words = adversarial(count, scale, seed)
    out = np.empty(2 * count)
    decided = np.ones(count, bool)
    decided[box_muller.candidates(words, scale, out)] = False
    wrong = 0
    for pair in np.flatnonzero(decided):
        two = slice(2 * pair, 2 * pair + 2)
        wrong += refine(source, int(pair), words[two], scale) != tuple(out[two])
    return wrong, int(decided.sum())


@pytest.mark.parametrize("scale", SCALES)
def test_both_paths_agree_on_adversarial_words(scale: float) -> None:
    wrong, decided = disagreements(4_000, scale, seed=3)
    assert wrong == 0
    assert decided > 1_000


@pytest.mark.full
@pytest.mark.parametrize("scale", [1.0, 1.1 * 2**23, 2.0**30, 2.0**32])
def test_both_paths_agree_on_a_quarter_of_a_million_adversarial_words(scale: float) -> None:
    """Four scales: 10^6 pairs in all, each decided by integer interval arithmetic."""
    assert disagreements(250_000, scale, seed=11)[0] == 0


def test_a_margin_that_is_too_small_is_caught_by_the_same_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(box_muller, "decision_threshold", lambda scale: 0.5)
    assert disagreements(4_000, 1.1 * 2**23, seed=3)[0] > 0
