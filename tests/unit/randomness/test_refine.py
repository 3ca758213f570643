"""The exact path against 200 digits, and the agreement of all tiers."""

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from discreet.errors import NumericsError
from discreet.randomness import Purpose, Source, Stream, ziggurat
from discreet.randomness import refine as refine_module
from discreet.randomness.addresses import further_bits, later_word
from discreet.randomness.layers import COUNT, R_BITS, R, layers
from discreet.randomness.refine import refine
from support.words import Case, adversarial, far_out, random_case

SCALES = (2.0**-32, 0.3, 1.0, 5.5, 1000.1, 1.1 * 2**23, 2.0**32)


def stream(step: int = 0) -> Stream:
    return Source.unsafe_test_key(bytes(range(32))).stream(Purpose.NOISE, step=step)


class Reference:
    """The same map at 200 digits, from the words and the bits of several rounds at once; the value,
    not an enclosure.
    """

    def __init__(self, source: Stream, number: int, words: NDArray[np.uint64]) -> None:
        self._source, self._number, self._words = source, number, words

    def _expansion(self, n: int, unused: int, rounds: int = 6) -> mpmath.mpf:
        known = n < len(self._words)
        word = int(self._words[n]) if known else later_word(self._source, self._number, n)
        value = word >> unused
        for turn in range(1, rounds + 1):
            value = value << 64 | further_bits(self._source, self._number, n, turn)
        return (mpmath.mpf(value) + 0.5) / mpmath.mpf(2) ** (64 - unused + 64 * rounds)

    def integer(self, scale: float) -> int:
        exact = layers()
        with mpmath.workdps(200):
            r = mpmath.mpf(R) / 2**R_BITS
            for n in range(0, 100, 2):
                known = n < len(self._words)
                word = int(self._words[n]) if known else later_word(self._source, self._number, n)
                i, f = word % COUNT, self._expansion(n, 12) - mpmath.mpf(1) / 2
                numerator, denominator = exact.widths[i]
                x = 2 * abs(f) * numerator / denominator
                edge, height = (mpmath.mpf(v[i]) / 2**64 for v in (exact.edges, exact.heights))
                if len(self._words) == 1:
                    accepted = True
                elif i == 0 and x > r:
                    distance = -mpmath.log((r * r + 1) * (1 - 2 * abs(f))) / r
                    x = r + distance
                    v = self._expansion(n + 1, 0)
                    accepted = v * height * mpmath.exp(-r * distance) < mpmath.exp(-x * x / 2)
                else:
                    v = self._expansion(n + 1, 0)
                    accepted = edge + v * height < mpmath.exp(-x * x / 2)
                if accepted:
                    nearest = int(mpmath.floor(scale * x + mpmath.mpf(1) / 2))
                    return -nearest if f < 0 else nearest
        raise AssertionError


@pytest.mark.parametrize("scale", SCALES)
def test_it_is_the_map_at_200_digits(scale: float) -> None:
    source, case = stream(), adversarial(240, scale, seed=7)
    for j in range(240):
        words = case.known(j)
        assert refine(source, j, words, scale) == Reference(source, j, words).integer(scale)


@pytest.mark.parametrize("layer", [0, 1, COUNT - 1])
@pytest.mark.parametrize("position", [0, 2**51 - 1, 2**51, 2**52 - 1])
@pytest.mark.parametrize("height", [0, 2**64 - 1])
def test_prefixes_that_need_more_bits(layer: int, position: int, height: int) -> None:
    """At the ends of layer 0 the tail has no bound until more bits come; a height of 0 has no
    logarithm yet.
    """
    source = stream()
    first = np.uint64(position << 12 | layer)
    further = random_case(1, seed=3).further
    further[0, 0] = height
    words = Case(np.array([first]), further).known(0)
    assert refine(source, 5, words, 1.1 * 2**23) == Reference(source, 5, words).integer(1.1 * 2**23)


def test_refinement_bits_belong_to_the_number() -> None:
    words = np.array([2**51 << 12 | 5], np.uint64)
    first = [refine_module.refine(stream(), number, words, 2.0**60) for number in (3, 4)]
    again = [refine_module.refine(stream(), number, words, 2.0**60) for number in (4, 3)]
    assert first == again[::-1]
    assert first[0] != first[1]


def test_a_fourth_attempt_reads_the_number_s_own_words() -> None:
    rejected, top = np.uint64((2**52 - 1) << 12 | 5), np.uint64(2**64 - 1)
    words = np.array([rejected, top, rejected, top, rejected, top])
    found = {number: refine(stream(), number, words, 1e6) for number in (8, 9)}
    assert found[8] != found[9]
    for number, integer in found.items():
        assert integer == Reference(stream(), number, words).integer(1e6)


def test_noise_that_could_not_be_added_exactly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine_module, "LARGEST", 2)
    with pytest.raises(NumericsError, match="noise below"):
        refine(stream(), 0, np.array([2**63 + 2**62], np.uint64), 100.0)


def test_a_generator_of_zeros_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer 0 at its very end: U = 0 has no logarithm."""
    monkeypatch.setattr(refine_module, "_MOST", 20)
    monkeypatch.setattr(refine_module, "further_bits", lambda *_: 0)
    with pytest.raises(NumericsError, match="no working generator"):
        refine(stream(), 0, np.zeros(6, np.uint64), 1.0)


# --- the tiers ---


def fast(case: Case, scale: float) -> NDArray[np.float64]:
    """What tiers 1 and 2 decide; NaN elsewhere."""
    out = np.zeros(case.first.size)
    places, units = ziggurat.release_inside(case.first, scale, out, 1.0, out)
    outside = ziggurat.is_outside(case.first[places])
    rows = case.further[places][outside]
    integers, count = ziggurat.decide_outside(case.first[places], rows, scale)
    assert count == np.count_nonzero(outside)
    assert not units.any()
    out[places] = integers
    return out


def disagreements(case: Case, scale: float) -> tuple[int, int]:
    """(numbers on which the fast tiers are decided and wrong, numbers that they decide)."""
    source, out = stream(), fast(case, scale)
    decided = np.flatnonzero(~np.isnan(out))
    wrong = [refine(source, int(j), case.known(int(j)), scale) != out[j] for j in decided]
    return sum(wrong), decided.size


@pytest.mark.parametrize("scale", SCALES)
def test_the_tiers_agree_on_adversarial_words(scale: float) -> None:
    """A fourteenth of 10^5 numbers in all; `full` has the rest."""
    wrong, decided = disagreements(adversarial(900, scale, seed=3), scale)
    assert wrong == 0
    assert decided > 400
    assert disagreements(random_case(100, seed=4), scale) == (0, 100)
    assert disagreements(far_out(50, seed=5), scale)[0] == 0


@pytest.mark.full
@pytest.mark.parametrize("scale", SCALES)
def test_the_tiers_agree_on_a_hundred_thousand_numbers(scale: float) -> None:
    """Seven scales: 105,000 numbers in all, each decided by integer interval arithmetic."""
    assert disagreements(adversarial(12_000, scale, seed=11), scale)[0] == 0
    assert disagreements(random_case(3_000, seed=12), scale)[0] == 0


def test_a_margin_that_is_too_small_is_caught_by_the_same_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ziggurat, "decision_threshold", lambda scale: 0.5)
    assert disagreements(adversarial(3_000, 1.1 * 2**23, seed=3), 1.1 * 2**23)[0] > 0


def test_a_margin_of_the_tail_that_is_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ziggurat, "tail_threshold", lambda scale: 0.5)
    assert disagreements(far_out(3_000, seed=3), 2.0**32)[0] > 0


def test_heights_that_are_not_compared_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wedge that is skipped: every point of a layer counts as under the bell."""
    monkeypatch.setattr(ziggurat, "surplus", lambda log, x: np.ones(np.shape(log)))
    assert disagreements(adversarial(3_000, 5.5, seed=3), 5.5)[0] > 0
