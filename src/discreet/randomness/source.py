"""All random bits come from here: AES-256 in counter mode, keyed by the operating system.

    Source.system() ──HKDF──> key of (purpose, step, lane) ──HKDF, AES-CTR──> Stream
    Stream: 64-bit words, addressed by their position

Guarantee: the words of all streams of all sources together are indistinguishable from independent
uniform words, by anyone who does not hold a key, as far as AES-256 is a pseudorandom permutation
and HKDF-SHA256 a pseudorandom function (docs/proofs/randomness.md). Each address (purpose, step,
lane) of a source is given out once, so no two consumers share bits. A key exists in this process's
memory only: it is never written, copied, pickled or shown, and a fork cannot use it.
"""

from __future__ import annotations

import os
import threading
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from discreet import _process
from discreet import _validate as check
from discreet.errors import ParameterError, RandomnessMisuse, RandomnessUnavailable
from discreet.randomness._cipher import Cursor, blocks, derive, keystream
from discreet.units import Randomness

__all__ = ["Purpose", "SharedSecret", "Source", "Stream"]

_KEY_BYTES = 32

# Words of one stream: the bound of docs/proofs/randomness.md, section 2, is computed with this
# number (2^33 blocks of AES under one key).
_MOST_WORDS = 2**34


class Purpose(Enum):
    """What bits are for. Bits of different purposes are independent.

    The value enters the key of a stream: renaming one changes every bit that is drawn for it.
    """

    NOISE = "noise"
    SAMPLE = "sample"

    # Which microbatch a record goes to.
    SLOTS = "slots"

    CANARY = "canary"

    # In which order the records of a sample are summed.
    ORDER = "order"

    # What a data set draws at random while the entries of a sample are fetched.
    ENTRIES = "entries"

    # Noise of a table over many steps, drawn where its rows are read.
    TABLE = "table"


_COPIED = _process.Misuse(
    RandomnessMisuse,
    expected="a key that stays where it was drawn",
    do="Noise minus its key is the raw sum: draw a new Source instead.",
)
_FORKED = _process.Misuse(
    RandomnessMisuse,
    expected="the process that drew the key",
    got="a fork of it, which would draw the same noise again",
    do="Make a Source of its own in the child.",
)


class _Key(_process.SingleUse, copied=_COPIED, forked=_FORKED):
    """Bytes that are not shown, copied or pickled."""

    __slots__ = ("_bytes",)

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self._bytes = key

    def reveal(self) -> bytes:
        self._refuse_fork()
        return self._bytes

    def __repr__(self) -> str:
        return "<key, not shown>"


# Taken once per stream, when it is first read or claimed. Held over a fork, so that no child finds
# it locked by a thread that does not exist there.
_first_use = threading.RLock()
_process.hold_over_forks(_first_use)


class Stream(_process.SingleUse, copied=_COPIED):
    """Words of one address: the same position always holds the same word. `Source.stream` makes it.

    A stream can be read in any order, in pieces and by several threads. That no word serves two
    releases is the business of the one consumer that it was given to; noise takes the stream over
    with `claim`.

    | what is asked for | what happens |
    |---|---|
    | 0 words | an empty array; the stream counts as read |
    | the same position again | the same word |
    | a position at or above 2^34 | `RandomnessMisuse` |
    | words of a claimed stream, or in a fork | `RandomnessMisuse` |
    | `claim` after a read, or a second `claim` | `RandomnessMisuse` |
    """

    __slots__ = ("_key", "_purpose", "_touched", "_words", "randomness")

    def __init__(self, key: _Key, randomness: Randomness, purpose: Purpose | None = None) -> None:
        super().__init__()
        self._key: _Key | None = key

        # The key of the cipher, derived when the stream is first read: a key serves HKDF or AES,
        # never both (docs/proofs/randomness.md, section 1).
        self._words: _Key | None = None

        # None for the child of a stream, which may be derived again and so cannot be claimed.
        self._purpose = purpose
        self._touched = False
        self.randomness = randomness

    def claim(self, purpose: Purpose) -> Stream:
        """Hand the words over to one consumer: a new handle, while this one can no longer be read.

        Raises:
            RandomnessMisuse: the stream was claimed or read before, is for another purpose, or is
                the child of a stream.
        """
        with _first_use:
            if self._touched or self._purpose is not purpose:
                raise RandomnessMisuse(
                    expected=(
                        f"an unused stream of the purpose {purpose.value}, as Source.stream gives "
                        "it"
                    ),
                    got=(
                        "a stream that was claimed or read before, of another purpose, or derived "
                        "from another"
                    ),
                    do="Ask the source for the stream of a new step or lane.",
                )

            handed_on = Stream(_Key(self._reveal()), self.randomness)
            self._key = None

        return handed_on

    def fill(self, out: NDArray[np.uint64], start: int = 0, cursor: Cursor | None = None) -> None:
        """Write the words from position `start` on into a contiguous array of one axis.

        A cursor that one thread keeps for this stream makes reading on faster.
        """
        if out.dtype != np.uint64 or out.ndim != 1 or not out.flags.c_contiguous:
            raise ParameterError(
                owner="Stream.fill",
                name="out",
                expected="a contiguous array of uint64 with one axis",
                got=f"{out.dtype}, {out.ndim} axes",
            )

        start = check.whole("Stream.fill", "start", start, least=0)
        if start + out.size > _MOST_WORDS:
            raise RandomnessMisuse(
                expected=f"at most {_MOST_WORDS} words from one stream",
                got=f"position {start + out.size}",
                do="Take another stream.",
            )

        keystream(self._words_key().reveal, start, out, cursor)

    def blocks(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Read the blocks of these numbers, in any order: words 2 n and 2 n + 1 in row n, (N, 2).

        Raises:
            RandomnessMisuse: a number below 0, or a word that the stream does not have.
        """
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < _MOST_WORDS // 2:
            raise RandomnessMisuse(
                expected=f"blocks 0 ... {_MOST_WORDS // 2 - 1} of a stream",
                got="another number",
                do="Take another stream.",
            )

        return blocks(self._words_key().reveal, numbers)

    def _words_key(self) -> _Key:
        # Either refuses a fork and a spent stream, also where a cursor holds a cipher already.
        if self._words is None:
            self._words = _Key(derive(self._reveal, "words"))
        else:
            self._reveal()

        return self._words

    def words(self, count: int, start: int = 0) -> NDArray[np.uint64]:
        """Read the words at positions start ... start + count - 1."""
        out = np.empty(check.whole("Stream.words", "count", count, least=0), np.uint64)
        self.fill(out, start)
        return out

    def child(self, label: str) -> Stream:
        """Another stream, independent of this one and determined by it and the label."""
        return Stream(_Key(derive(self._reveal, "child", label)), self.randomness)

    def _reveal(self) -> bytes:
        if not self._touched:
            with _first_use:
                self._touched = True

        if self._key is None:
            raise RandomnessMisuse(
                expected="a stream that is still to be used",
                got="one whose words serve a release already",
                do="Ask the source for the stream of a new step or lane.",
            )

        return self._key.reveal()

    def __repr__(self) -> str:
        return f"Stream({self.randomness.value}, {'spent' if self._key is None else self._key!r})"


class SharedSecret(_process.SingleUse, copied=_COPIED):
    """What all ranks of a distributed run share, so that they draw one and the same global sample.

    Make one with `generate()` in one rank, carry `to_bytes()` over a private channel, and call
    `from_bytes()` in the others. It serves samples only: noise always comes from a rank's own
    `Source.system()`.
    """

    __slots__ = ("_contexts", "_key")

    def __init__(self, key: _Key) -> None:
        super().__init__()
        self._key = key
        self._contexts: set[str] = set()

    @classmethod
    def generate(cls) -> SharedSecret:
        """Draw a fresh secret from the operating system."""
        return cls(_Key(_entropy()))

    @classmethod
    def from_bytes(cls, secret: bytes) -> SharedSecret:
        """Take over the secret that another rank generated.

        It must be fresh for this run and known to nobody else.
        """
        return cls(_Key(_checked_key("SharedSecret.from_bytes", "secret", secret)))

    def use_for(self, context: str) -> None:
        """Remember that this context had its source, and refuse it a second time."""
        with _first_use:
            if context in self._contexts:
                raise RandomnessMisuse(
                    expected="a context that this secret did not serve",
                    got="the same context again, which would repeat its samples",
                    do=(
                        "Use the ledger's head() as context; ranks that are threads make a "
                        "SharedSecret of their own each."
                    ),
                )

            self._contexts.add(context)

    def to_bytes(self) -> bytes:
        """Reveal the secret, for a private channel to the other ranks and never for a file."""
        return self._key.reveal()

    def __repr__(self) -> str:
        return f"SharedSecret({self._key!r})"


class Source(_process.SingleUse, copied=_COPIED):
    """The key of a run, which gives out streams, each once.

    Steps of the same purpose and lane must rise: asking again for an address, or for an earlier
    one, is an error, so a loop that is started again cannot draw the same noise. A new run or a
    resumed one makes a new `Source` with a new key.

    | what is asked for | what happens |
    |---|---|
    | a step that was skipped | `RandomnessMisuse`, once a later one was given out |
    | the same step, another purpose or lane | an independent stream |
    | anything but samples, of a shared source | `RandomnessMisuse` |
    | a stream in a fork, a copy, a pickle | `RandomnessMisuse` |

    >>> source = Source.system()
    >>> stream = source.stream(Purpose.NOISE, step=0)
    >>> source.stream(Purpose.NOISE, step=0)
    Traceback (most recent call last):
    discreet.errors.RandomnessMisuse: Expected a step above 0 for noise, lane 0. Got step 0. ...
    """

    __slots__ = ("_key", "_last", "_lock", "_only", "randomness")

    def __init__(self, key: _Key, randomness: Randomness, only: Purpose | None = None) -> None:
        super().__init__()
        self._key = key
        self.randomness = randomness
        self._only = only
        self._last: dict[tuple[Purpose, int], int] = {}
        self._lock = threading.Lock()

    @classmethod
    def system(cls) -> Source:
        """Make a source that is keyed by 256 fresh bits from the operating system.

        Raises:
            RandomnessUnavailable: no entropy or no working cipher; there is no fallback.
        """
        return cls(_Key(_entropy()), Randomness.SYSTEM)

    @classmethod
    def shared(cls, secret: SharedSecret, *, context: str) -> Source:
        """Make a source of samples that all ranks derive alike.

        Args:
            secret: the same in all ranks, fresh for this run.
            context: the same in all ranks and in no other run, such as the ledger's `head()` before
                the run. It enters the key, so that even a secret that is used again does not repeat
                a sample.

        Raises:
            RandomnessMisuse: this secret served this context already, and would draw the same
                samples again.
        """
        check.instance("Source.shared", "secret", secret, SharedSecret)
        label = check.label("Source.shared", "context", context)
        secret.use_for(label)
        return cls(
            _Key(derive(secret.to_bytes, "shared", label)), Randomness.SYSTEM, only=Purpose.SAMPLE
        )

    @classmethod
    def unsafe_test_key(cls, key: bytes) -> Source:
        """Make a source of reproducible bits for tests, from 32 bytes.

        What is drawn from it is marked, and a marked ledger has no guarantee.
        """
        return cls(
            _Key(_checked_key("Source.unsafe_test_key", "key", key)), Randomness.UNSAFE_TEST_KEY
        )

    @property
    def shared_by_ranks(self) -> bool:
        """Whether other ranks hold the same key; then it serves samples only."""
        return self._only is not None

    def stream(self, purpose: Purpose, *, step: int, lane: int = 0) -> Stream:
        """Give out the stream of one address, once.

        Args:
            purpose: what the bits are for.
            step: number of the draw; above the last one asked for in this purpose and lane.
            lane: which of several independent streams of the same step, such as one per group.

        Raises:
            RandomnessMisuse: the address was given out, this is a fork, or the source is for
                samples only.
        """
        owner = "Source.stream"
        check.instance(owner, "purpose", purpose, Purpose)
        step = check.whole(owner, "step", step, least=0)
        lane = check.whole(owner, "lane", lane, least=0)
        if self._only not in (None, purpose):
            raise RandomnessMisuse(
                expected=f"the purpose {self._only.value} from a shared source",
                got=purpose.value,
                do="Take noise from this rank's own Source.system().",
            )

        # Refuses a fork before anything is remembered.
        self._key.reveal()
        with self._lock:
            last = self._last.get((purpose, lane), -1)
            if step <= last:
                raise RandomnessMisuse(
                    expected=f"a step above {last} for {purpose.value}, lane {lane}",
                    got=f"step {step}",
                    do="Its bits were given out already.",
                )

            self._last[purpose, lane] = step

        # Every part of the address enters the key: different addresses have independent words. The
        # key has no name of its own: a traceback that shows local variables would show it.
        return Stream(
            _Key(derive(self._key.reveal, "stream", purpose.value, str(step), str(lane))),
            self.randomness,
            purpose,
        )

    def __repr__(self) -> str:
        return f"Source({self.randomness.value}, {self._key!r})"


def _entropy() -> bytes:
    try:
        return os.urandom(_KEY_BYTES)
    except (OSError, NotImplementedError) as error:
        raise RandomnessUnavailable(
            expected="entropy from the operating system",
            got=repr(error),
            do="There is no substitute: mend the system.",
        ) from error


def _checked_key(owner: str, name: str, key: object) -> bytes:
    if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
        raise ParameterError(
            owner=owner,
            name=name,
            expected=f"{_KEY_BYTES} bytes",
            got=(f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__),
        )

    return key
