"""The source of bits: every address once, never copied, never replaced by something weaker."""

import copy
import os
import pickle
import traceback
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from discreet import _process
from discreet.errors import ParameterError, RandomnessMisuse, RandomnessUnavailable
from discreet.randomness import Purpose, SharedSecret, Source, Stream, _cipher
from discreet.units import Randomness

KEY = bytes(range(32))


def first(stream: Stream) -> int:
    return int(stream.words(1)[0])


# --- one address, one consumer ---


def test_p20_an_address_is_given_out_once() -> None:
    source = Source.unsafe_test_key(KEY)
    source.stream(Purpose.NOISE, step=3)
    for step in (3, 2, 0):
        with pytest.raises(RandomnessMisuse, match="above 3"):
            source.stream(Purpose.NOISE, step=step)
    source.stream(Purpose.NOISE, step=3, lane=1)
    source.stream(Purpose.SAMPLE, step=3)
    source.stream(Purpose.NOISE, step=4)


def test_every_address_has_words_of_its_own() -> None:
    source = Source.unsafe_test_key(KEY)
    words = [
        first(source.stream(purpose, step=step, lane=lane))
        for purpose in Purpose
        for lane in (0, 1, 11)
        for step in (0, 1, 10, 111)
    ]
    parent = Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=0)
    words += [first(parent.child(label)) for label in ("refine/1", "refine/2", "")]
    words += [first(Source.unsafe_test_key(bytes(32)).stream(Purpose.NOISE, step=0))]
    assert len(set(words)) == len(words)


def test_p20_a_new_source_has_a_new_key() -> None:
    assert first(Source.system().stream(Purpose.NOISE, step=0)) != first(
        Source.system().stream(Purpose.NOISE, step=0)
    )


@pytest.mark.parametrize(
    ("start", "count"), [(0, 0), (0, 1), (1, 1), (1, 2), (7, 40_000), (32_769, 70_001)]
)
def test_the_same_position_holds_the_same_word(start: int, count: int) -> None:
    whole = Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=0).words(110_000)
    piece = Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=0).words(count, start=start)
    assert np.array_equal(piece, whole[start : start + count])


def test_p20_a_cursor_changes_no_word() -> None:
    """Whoever reads on, back, ahead, from the middle of a block, or from another stream: the cipher
    is where it should be.
    """
    streams = [Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=step) for step in (0, 1)]
    whole, cursor = [stream.words(2_000) for stream in streams], _cipher.Cursor()
    position = 0
    for turn, (jump, count) in enumerate(
        [(0, 64), (0, 64), (0, 7), (0, 9), (-20, 20), (100, 40), (0, 1), (0, 1), (0, 300)] * 3
    ):
        which, position, out = turn // 5 % 2, position + jump, np.empty(count, np.uint64)
        streams[which].fill(out, position, cursor)
        assert np.array_equal(out, whole[which][position : position + count])
        position += count


def test_p20_a_cursor_that_was_interrupted_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, cursor, out = (
        Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=0),
        _cipher.Cursor(),
        np.empty(8, np.uint64),
    )
    stream.fill(out, 0, cursor)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(
            _cipher.Cursor, "keep", interrupted
        )  # the cipher went on, and nobody noted where it stands
        stream.fill(out, 8, cursor)
    stream.fill(out, 8, cursor)
    assert np.array_equal(out, stream.words(8, start=8))


def test_p20_a_cursor_does_not_help_a_fork_or_a_spent_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, cursor, out = (
        Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=0),
        _cipher.Cursor(),
        np.empty(8, np.uint64),
    )
    claimed = stream.claim(Purpose.NOISE)
    claimed.fill(out, 0, cursor)
    with pytest.raises(RandomnessMisuse, match="serve a release"):
        stream.fill(out, 8, cursor)
    monkeypatch.setattr(_process, "current", object)
    with pytest.raises(RandomnessMisuse, match="a fork of it"):
        claimed.fill(out, 8, cursor)


def test_a_stream_has_an_end() -> None:
    stream = Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=0)
    assert stream.words(1, start=2**34 - 1).size == 1
    with pytest.raises(RandomnessMisuse, match="at most"):
        stream.words(1, start=2**34)


def test_wrong_parameters() -> None:
    source = Source.unsafe_test_key(KEY)
    for step in (-1, 0.5, "0", True):
        with pytest.raises(ParameterError):
            source.stream(Purpose.NOISE, step=step)  # type: ignore[arg-type]
    for key in (b"short", "a" * 32, bytearray(32)):
        with pytest.raises(ParameterError):
            Source.unsafe_test_key(key)  # type: ignore[arg-type]
    for out in (np.empty(2), np.empty((2, 2), np.uint64), np.empty(4, np.uint64)[::2]):
        with pytest.raises(ParameterError):
            source.stream(
                Purpose.NOISE, step=int(source._last.get((Purpose.NOISE, 0), -1)) + 1
            ).fill(out)  # type: ignore[arg-type]


def test_a_test_key_marks_what_comes_from_it() -> None:
    source = Source.unsafe_test_key(KEY)
    stream = source.stream(Purpose.NOISE, step=0)
    handed_on = stream.claim(Purpose.NOISE)
    marks = {
        source.randomness,
        stream.randomness,
        handed_on.randomness,
        handed_on.child("x").randomness,
    }
    assert marks == {Randomness.UNSAFE_TEST_KEY}
    assert Source.system().stream(Purpose.NOISE, step=0).randomness is Randomness.SYSTEM


# --- P22: what ranks share is the sample, never the noise ---


def test_p22_a_shared_secret_gives_the_same_sample_and_no_noise() -> None:
    secret = SharedSecret.generate()
    there = SharedSecret.from_bytes(secret.to_bytes())
    here, other = (Source.shared(s, context="run 1") for s in (secret, there))
    assert first(here.stream(Purpose.SAMPLE, step=0)) == first(other.stream(Purpose.SAMPLE, step=0))
    again = Source.shared(secret, context="run 2")
    assert first(again.stream(Purpose.SAMPLE, step=0)) != first(here.stream(Purpose.SAMPLE, step=1))
    with pytest.raises(RandomnessMisuse, match="samples|shared"):
        here.stream(Purpose.NOISE, step=0)


# --- P18, P20: keys stay where they are ---


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_p20_nothing_that_holds_a_key_is_copied(duplicate: object) -> None:
    source = Source.unsafe_test_key(KEY)
    stream = source.stream(Purpose.NOISE, step=0)
    for value in (source, stream, stream.child("x"), SharedSecret.generate(), source._key):
        with pytest.raises(RandomnessMisuse, match="copy or pickle"):
            duplicate(value)  # type: ignore[operator]


def test_p18_a_key_is_not_shown() -> None:
    source = Source.unsafe_test_key(KEY)
    stream = source.stream(Purpose.NOISE, step=0)
    secret = SharedSecret.from_bytes(KEY)
    for value in (source, stream, secret, source._key):
        assert "not shown" in repr(value)
        assert f"{value}" == repr(value)
        assert KEY.hex() not in repr(value)
        with pytest.raises(TypeError):
            vars(value)
    stream.claim(Purpose.NOISE)
    assert "spent" in repr(stream)


def test_p18_no_frame_holds_a_key_when_something_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Error trackers print the locals of every frame,
    also for an interruption inside the cipher.
    """

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def locals_of(call: Callable[[], object]) -> str:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  (an interruption is the point)
            return "".join(
                traceback.TracebackException.from_exception(error, capture_locals=True).format()
            )
        raise AssertionError

    source = Source.unsafe_test_key(KEY)
    stream = source.stream(Purpose.NOISE, step=0)
    other = source.stream(Purpose.NOISE, step=1)
    secret = repr(KEY)[2:12]
    shown = locals_of(lambda: source.stream(Purpose.NOISE, step=0)) + locals_of(
        lambda: stream.claim(Purpose.SAMPLE)
    )
    monkeypatch.setattr(_cipher, "CTR", interrupted)
    shown += locals_of(lambda: other.words(4))
    monkeypatch.setattr(_cipher, "HKDFExpand", interrupted)
    shown += locals_of(lambda: source.stream(Purpose.NOISE, step=2)) + locals_of(
        lambda: other.child("x")
    )
    assert "KeyboardInterrupt" in shown
    assert secret not in shown
    assert repr(other._reveal())[2:-1] not in shown


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_p20_a_fork_can_use_no_key_of_its_parent_but_draw_its_own() -> None:
    source = Source.unsafe_test_key(KEY)
    stream = source.stream(Purpose.NOISE, step=0)
    secret = SharedSecret.generate()
    uses = (
        lambda: stream.words(1),
        lambda: stream.child("x"),
        lambda: stream.claim(Purpose.NOISE),
        lambda: source.stream(Purpose.NOISE, step=1),
        secret.to_bytes,
    )
    child = os.fork()
    if child == 0:  # no pytest in here: the exit code answers
        refused = 0
        for use in uses:
            try:
                use()
            except RandomnessMisuse:
                refused += 1
        Source.system().stream(Purpose.NOISE, step=0).claim(Purpose.NOISE).words(1)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(uses)
    stream.words(1)


# --- P18: no entropy, no cipher, no substitute ---


@pytest.fixture
def unchecked() -> Iterator[None]:
    _cipher._check.cache_clear()
    yield
    _cipher._check.cache_clear()


@pytest.mark.parametrize("error", [OSError("no entropy"), NotImplementedError("no source")])
def test_p18_no_entropy_is_an_error(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def urandom(size: int) -> bytes:
        raise error

    monkeypatch.setattr(os, "urandom", urandom)
    for make in (Source.system, SharedSecret.generate):
        with pytest.raises(RandomnessUnavailable, match="entropy"):
            make()


@pytest.mark.parametrize("name", ["_AES_CIPHER", "_HKDF_OUT"])
@pytest.mark.usefixtures("unchecked")
def test_p18_a_wrong_known_answer_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(_cipher, name, bytes(len(getattr(_cipher, name))))
    with pytest.raises(RandomnessUnavailable, match="known-answer"):
        Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=0)
    with pytest.raises(RandomnessUnavailable):
        _cipher.keystream(lambda: KEY, 0, np.empty(2, np.uint64))


# --- blocks ---


def test_blocks_are_those_of_the_words_of_the_stream() -> None:
    stream = Source.unsafe_test_key(KEY).stream(Purpose.TABLE, step=0)
    words = stream.words(20)
    assert stream.blocks(np.array([9, 0, 4])).reshape(-1).tolist() == [
        *words[18:20].tolist(),
        *words[0:2].tolist(),
        *words[8:10].tolist(),
    ]
    for number in (-1, 2**33):
        with pytest.raises(RandomnessMisuse, match="blocks 0"):
            stream.blocks(np.array([0, number]))


def test_p20_a_claimed_stream_gives_no_blocks() -> None:
    stream = Source.unsafe_test_key(KEY).stream(Purpose.TABLE, step=0)
    stream.claim(Purpose.TABLE)
    with pytest.raises(RandomnessMisuse, match="serve a release"):
        stream.blocks(np.array([0]))
