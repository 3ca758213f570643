"""Exact draws from a stream of random words: coins, integers, subsets, permutations.

Each is a pure function of the stream's words. *Exact* means: if the words are independent and
uniform, the result has the stated law with no error at all, not even one of rounding. Random bits
are read lazily, as many as a decision needs.
Proofs: docs/proofs/sampling.md.

Give each call a stream of its own (`Stream.child`): two draws from the same words are not
independent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.randomness.source import Stream

__all__ = ["below", "bernoulli", "permutation", "smallest_keys", "subset"]

_BLOCK = (
    2**18
)  # positions of a coin's block; part of the meaning of a stream's words, like the two widths below
_FIRST = 16  # bits of the first digit of a coin
_DIGIT = 64  # bits of each further digit
_COINS_PER_WORD = _DIGIT // _FIRST
_SPARSE = 16  # a subset below this part of the population is drawn element by element


def bernoulli(stream: Stream, probability: float, start: int, stop: int) -> NDArray[np.int64]:
    """The positions in start ... stop-1 whose coin fell on heads, sorted.

    Position i has a real number U_i, uniform on [0, 1), of which only as many binary digits are
    read as decide whether U_i < probability: 16 first, then 64 more for the one position in 65536
    that is still undecided, and so on. The coin of a position does not depend on start and stop, so
    ranges can be drawn apart and joined.

    Guarantee: the coins are independent, and each falls on heads with exactly `probability`, the
        float64 taken as a fraction.
    Memory: O(heads), plus a constant.

    Args:
        stream: used for nothing else.
        probability: in [0, 1], public; the smallest float64 is as exact as any other.
        start: first position, public.
        stop: first position after the range, public.

    >>> from discreet.randomness import Purpose, Source
    >>> stream = Source.system().stream(Purpose.SAMPLE, step=0)
    >>> bernoulli(stream, 1.0, 5, 8).tolist(), bernoulli(stream, 0.0, 0, 10**6).tolist()
    ([5, 6, 7], [])
    """
    owner = "bernoulli"
    probability = check.fraction(owner, "probability", probability, zero=True, one=True)
    start = check.whole(owner, "start", start, least=0)
    stop = check.whole(owner, "stop", stop, least=start)
    if probability == 1.0:
        return np.arange(start, stop, dtype=np.int64)
    digits = _digits(probability)
    further = [stream.child(f"digit/{level}") for level in range(1, len(digits))]
    words = np.empty(-(-min(_BLOCK, stop - start + start % _BLOCK) // _COINS_PER_WORD), np.uint64)
    heads = [np.empty(0, np.int64)]
    for block in range(start - start % _BLOCK, stop, _BLOCK):
        used = words[: -(-min(_BLOCK, stop - block) // _COINS_PER_WORD)]
        stream.fill(used, block // _COINS_PER_WORD)
        coins = used.view(np.uint16)[: stop - block]
        found = block + _heads(coins, digits, further, block)
        heads.append(found[found >= start] if block < start else found)
    return np.concatenate(heads)


def _digits(probability: float) -> list[int]:
    """The binary digits of a fraction below 1, in groups of 16, 64, 64, ... bits, without trailing
    zeros.
    """
    numerator, denominator = probability.as_integer_ratio()  # the denominator is a power of two
    digits: list[int] = []
    width = _FIRST
    while numerator or not digits:
        digit, numerator = divmod(numerator << width, denominator)
        digits.append(digit)
        width = _DIGIT
    return digits


def _heads(
    coins: NDArray[np.uint16], digits: list[int], further: list[Stream], block: int
) -> NDArray[np.int64]:
    """Indices of the coins below the number with these digits; a tie is decided by the next digit.

    The j-th tie of a block reads word block + j of the next digit's stream. Which coin that is
    depends on earlier digits only, so given these the words of the ties are independent.
    """
    candidates = np.flatnonzero(coins <= digits[0]).astype(np.int64, copy=False)
    coins_there = coins[candidates]
    is_head = coins_there < digits[0]
    ties = np.flatnonzero(coins_there == digits[0])
    for digit, stream in zip(digits[1:], further, strict=True):
        if not ties.size:
            break
        words = stream.words(ties.size, block)
        is_head[ties[words < np.uint64(digit)]] = True
        ties = ties[words == np.uint64(digit)]
    return candidates[is_head]


def below(stream: Stream, bound: int, count: int) -> NDArray[np.int64]:
    """Independent integers, uniform on 0 ... bound-1.

    Words at or above the largest multiple of `bound` are passed over, the others taken modulo
        `bound`: no value is preferred.

    >>> from discreet.randomness import Purpose, Source
    >>> rolls = 1 + below(Source.system().stream(Purpose.SAMPLE, step=0), 6, 1000)
    >>> int(rolls.min()), int(rolls.max())
    (1, 6)
    """
    bound = check.whole("below", "bound", bound, least=1)
    count = check.whole("below", "count", count, least=0)
    return _Integers(stream, bound).take(count)


class _Integers:
    """Reads uniform integers from a stream, one accepted word after the other."""

    __slots__ = ("_bound", "_position", "_stream", "_top")

    def __init__(self, stream: Stream, bound: int) -> None:
        self._stream = stream
        self._bound = np.uint64(bound)
        self._top = np.uint64(2**64 - 1 - 2**64 % bound)  # the largest word that is accepted
        self._position = 0

    def take(self, count: int) -> NDArray[np.int64]:
        out = np.empty(count, np.int64)
        done = 0
        while done < count:
            words = self._stream.words(min(count - done, _BLOCK), self._position)
            self._position += words.size
            accepted = words[words <= self._top]
            out[done : done + accepted.size] = accepted % self._bound
            done += accepted.size
        return out


def subset(stream: Stream, size: int, population: int) -> NDArray[np.int64]:
    """A uniformly random subset of `size` of the integers 0 ... population-1, sorted.

    Integers are drawn until `size` different ones were seen; where many would be seen twice, a
    permutation is cut instead.
    Memory: O(size).

    >>> from discreet.randomness import Purpose, Source
    >>> subset(Source.system().stream(Purpose.SAMPLE, step=0), 3, 10**12).size
    3
    """
    owner = "subset"
    population = check.whole(owner, "population", population, least=0)
    size = check.whole(owner, "size", size, least=0)
    if size > population:
        raise ParameterError(
            owner=owner, name="size", expected=f"at most population={population}", got=str(size)
        )
    if size > population // _SPARSE:
        return np.sort(permutation(stream, population)[:size])
    integers = _Integers(stream, max(population, 1))
    seen = np.empty(0, np.int64)
    while seen.size < size:  # what is missing is drawn and no more, so the set never overshoots
        seen = np.sort(np.concatenate([seen, integers.take(size - seen.size)]))
        seen = seen[np.append(True, seen[1:] != seen[:-1])]
    return seen


def permutation(stream: Stream, count: int) -> NDArray[np.int64]:
    """A uniformly random order of 0 ... count-1.

    Every element gets a random key, and elements are sorted by key. Key and element share a word,
    which sorts fast; where keys of the first bits are equal, more bits decide.

    >>> from discreet.randomness import Purpose, Source
    >>> sorted(permutation(Source.system().stream(Purpose.SAMPLE, step=0), 5).tolist())
    [0, 1, 2, 3, 4]
    """
    count = check.whole("permutation", "count", count, least=0)
    bits = np.uint64(max(count - 1, 0).bit_length())  # of an element
    packed = stream.words(count)
    packed >>= bits
    packed <<= bits
    packed |= np.arange(count, dtype=np.uint64)
    packed.sort()
    _order_ties(stream, packed, bits)
    packed &= (np.uint64(1) << bits) - np.uint64(1)
    return packed.view(np.int64)


def _order_ties(stream: Stream, packed: NDArray[np.uint64], bits: np.uint64) -> None:
    """Put the elements of each run of equal keys, which stand by number, in a random order."""
    first = np.flatnonzero(
        packed[1:] ^ packed[:-1] < np.uint64(1) << bits
    )  # its key and the next one's are equal
    if not first.size:
        return
    tied = np.union1d(first, first + 1)
    keys = packed[tied] >> bits
    attempt = 0
    while tied.size:
        more = stream.child(f"tie/{attempt}").words(tied.size)
        order = np.lexsort(
            (more, keys)
        )  # keys are sorted already: this reorders inside the runs only
        more = more[order]
        if not np.any((more[1:] == more[:-1]) & (keys[1:] == keys[:-1])):
            packed[tied] = packed[tied[order]]
            return
        attempt += 1


def smallest_keys(
    stream: Stream, starts: NDArray[np.int64], stops: NDArray[np.int64], most: int
) -> NDArray[np.int64]:
    """For each range of positions a uniformly random subset of at most `most` positions, ranges one
    after the other.

    The word at a position is its key; those with the smallest keys are taken, sorted by position.
    The choice from a range depends on that range alone, so ranges can be drawn apart and joined.

    Args:
        stream: used for nothing else.
        starts: first position of each range; ranges do not overlap.
        stops: first position after each range.
        most: largest number of positions from one range.

    >>> from discreet.randomness import Purpose, Source
    >>> stream = Source.system().stream(Purpose.SAMPLE, step=0)
    >>> chosen = smallest_keys(stream, np.array([0, 10]), np.array([2, 1000]), most=3)
    >>> chosen[:2].tolist(), chosen.size
    ([0, 1], 5)
    """
    most = check.whole("smallest_keys", "most", most, least=1)
    sizes = stops - starts
    begins = (
        np.cumsum(sizes) - sizes
    )  # where each range begins in the arrays below, which hold the ranges one after the other
    group = np.repeat(np.arange(sizes.size), sizes)
    place = np.arange(group.size) - begins[group]
    keys = np.zeros(group.size, np.uint64)
    order = np.arange(group.size)
    undecided = np.flatnonzero(sizes > most)  # a smaller range is taken whole
    attempt = 0
    while undecided.size:
        source = stream.child(f"keys/{attempt}")
        for one in undecided.tolist():
            source.fill(keys[begins[one] : begins[one] + sizes[one]], int(starts[one]))
        order = np.lexsort((keys, group))
        equal = (np.diff(keys[order]) == 0) & (np.diff(group) == 0)
        undecided = np.intersect1d(
            group[1:][equal], undecided
        )  # equal keys in a range: all its keys are drawn again
        attempt += 1
    chosen = np.sort(order[place < most])
    taken: NDArray[np.int64] = starts[group[chosen]] + place[chosen]
    return taken
