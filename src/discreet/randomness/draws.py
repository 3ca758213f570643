"""Exact draws from a stream of random words: coins, integers, subsets, permutations.

Each is a pure function of the stream's words. *Exact* means: if the words are independent and
uniform, the result has the stated law with no error at all, not even one of rounding. Random bits
are read lazily, as many as a decision needs. Proofs: docs/proofs/sampling.md, sections 1 to 5.

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

# Positions of a block of coins; bits of a coin's first digit, and of each further one. These three
# decide which word means what: another value draws other samples from the same key.
_BLOCK = 2**18
_FIRST = 16
_DIGIT = 64

_COINS_PER_WORD = _DIGIT // _FIRST

# A subset below this part of the population is drawn element by element.
_SPARSE = 16


def bernoulli(stream: Stream, probability: float, start: int, stop: int) -> NDArray[np.int64]:
    """Toss a coin for each of the positions start ... stop-1; return those with heads, sorted.

    Position i has a real number U_i, uniform on [0, 1), of which only as many binary digits are
    read as decide whether U_i < probability: 16 first, then 64 more for the one position in 65536
    that is still undecided, and so on. The coin of a position does not depend on start and stop, so
    ranges can be drawn apart and joined.

    Guarantee: the coins are independent, and each falls on heads with exactly `probability`, the
    float64 taken as a fraction. Memory: O(heads), plus a constant.

    | probability, or range | result |
    |---|---|
    | 0 | none |
    | 1 | every position; no word is read |
    | 5e-324, the smallest float64 | exact; 18 digits at most |
    | an empty range | none |
    | NaN, infinite, below 0 or above 1; stop < start | `ParameterError` |

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

    # Every block is read from its beginning: which word decides a tie depends on the ties before
    # it, so a coin would otherwise depend on `start`.
    for block in range(start - start % _BLOCK, stop, _BLOCK):
        used = words[: -(-min(_BLOCK, stop - block) // _COINS_PER_WORD)]
        stream.fill(used, block // _COINS_PER_WORD)
        coins = used.view(np.uint16)[: stop - block]
        positions = block + _heads(coins, digits, further, block)
        heads.append(positions[positions >= start] if block < start else positions)

    return np.concatenate(heads)


def _digits(probability: float) -> list[int]:
    """Write a fraction below 1 in binary digits of 16, 64, 64, ... bits, without trailing zeros."""
    # The denominator of a float is a power of two, so the division ends with the rest 0.
    numerator, denominator = probability.as_integer_ratio()
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
    """Find the coins below the number with these digits; a tie is decided by the next digit.

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

    # What ties to the last digit is at or above the probability: tails.
    return candidates[is_head]


def below(stream: Stream, bound: int, count: int) -> NDArray[np.int64]:
    """Draw independent integers, uniform on 0 ... bound-1.

    Words at or above the largest multiple of `bound` are passed over, the others taken modulo
    `bound`: no value is preferred.

    | bound, count | result |
    |---|---|
    | bound 1 | zeros; words are read all the same |
    | count 0 | an empty array; no word is read |
    | bound 0 or count below 0 | `ParameterError` |
    | bound of 2^63 or more | `ParameterError`: the result is int64 |

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

        # The largest word that is accepted: 0 ... top are whole runs of `bound` values.
        self._top = np.uint64(2**64 - 1 - 2**64 % bound)
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
    """Draw a uniformly random subset of `size` of the integers 0 ... population-1, sorted.

    Integers are drawn until there are `size` different ones; where many would come twice, a
    permutation is cut instead. Memory: O(size).

    | size, population | result |
    |---|---|
    | size 0, also of population 0 | an empty array |
    | size = population | all of 0 ... population-1 |
    | size above population | `ParameterError` |

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
    chosen = np.empty(0, np.int64)

    # What is missing is drawn and no more: so the set ends as that of the first `size` different
    # values, which is uniform (sampling.md, section 4). Cutting an overshoot would not be.
    while chosen.size < size:
        chosen = np.sort(np.concatenate([chosen, integers.take(size - chosen.size)]))
        chosen = chosen[np.append(True, chosen[1:] != chosen[:-1])]

    return chosen


def permutation(stream: Stream, count: int) -> NDArray[np.int64]:
    """Draw a uniformly random order of 0 ... count-1.

    Every element gets a random key, and elements are sorted by key. Key and element share a word,
    which sorts fast; where keys of the first bits are equal, more bits decide. With count 0 the
    result is empty, with count 1 it is [0].

    >>> from discreet.randomness import Purpose, Source
    >>> sorted(permutation(Source.system().stream(Purpose.SAMPLE, step=0), 5).tolist())
    [0, 1, 2, 3, 4]
    """
    count = check.whole("permutation", "count", count, least=0)
    bits = np.uint64(max(count - 1, 0).bit_length())

    # The high bits of word i are the key of element i, the low bits become the element itself.
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
    # Where two neighbours differ in the low bits only, their keys are equal.
    first = np.flatnonzero(packed[1:] ^ packed[:-1] < np.uint64(1) << bits)
    if not first.size:
        return

    tied = np.union1d(first, first + 1)
    keys = packed[tied] >> bits
    attempt = 0

    while tied.size:
        further = stream.child(f"tie/{attempt}").words(tied.size)

        # Keys are sorted already: this reorders inside the runs only.
        order = np.lexsort((further, keys))
        further = further[order]

        # Equal tie words in one run would leave its elements by number: all are drawn again, which
        # conditions on an event that is symmetric in them (sampling.md, theorem 2).
        if not np.any((further[1:] == further[:-1]) & (keys[1:] == keys[:-1])):
            packed[tied] = packed[tied[order]]
            return

        attempt += 1


def smallest_keys(
    stream: Stream, starts: NDArray[np.int64], stops: NDArray[np.int64], limit: int
) -> NDArray[np.int64]:
    """Draw a uniformly random subset of up to `limit` positions from each range, one by one.

    The word at a position is its key; those with the smallest keys are taken, sorted by position.
    The choice from a range depends on that range alone, so ranges can be drawn apart and joined.

    | range | result |
    |---|---|
    | empty, or no range at all | nothing of it |
    | of up to `limit` positions | all of it; no word is read |
    | longer | `limit` of its positions |

    Args:
        stream: used for nothing else.
        starts: first position of each range (R,); ranges do not overlap.
        stops: first position after each range (R,).
        limit: largest number of positions from one range.

    >>> from discreet.randomness import Purpose, Source
    >>> stream = Source.system().stream(Purpose.SAMPLE, step=0)
    >>> chosen = smallest_keys(stream, np.array([0, 10]), np.array([2, 1000]), limit=3)
    >>> chosen[:2].tolist(), chosen.size
    ([0, 1], 5)
    """
    limit = check.whole("smallest_keys", "limit", limit, least=1)

    # R ranges, N positions of all ranges together, one range after the other.
    size_R = stops - starts
    begin_R = np.cumsum(size_R) - size_R
    range_N = np.repeat(np.arange(size_R.size), size_R)
    offset_N = np.arange(range_N.size) - begin_R[range_N]
    key_N = np.zeros(range_N.size, np.uint64)
    order_N = np.arange(range_N.size)

    undecided = np.flatnonzero(size_R > limit)
    attempt = 0

    while undecided.size:
        source = stream.child(f"keys/{attempt}")

        for number in undecided.tolist():
            begin = begin_R[number]
            source.fill(key_N[begin : begin + size_R[number]], int(starts[number]))

        order_N = np.lexsort((key_N, range_N))

        # Equal keys in a range: all its keys are drawn again, those of other ranges stay.
        equal = (np.diff(key_N[order_N]) == 0) & (np.diff(range_N) == 0)
        undecided = np.intersect1d(range_N[1:][equal], undecided)
        attempt += 1

    chosen = np.sort(order_N[offset_N < limit])
    positions: NDArray[np.int64] = starts[range_N[chosen]] + offset_N[chosen]
    return positions
