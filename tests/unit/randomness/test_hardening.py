"""Attacks on the source of bits and on the noise, each of which once worked."""

import ctypes
import hmac
import os
import signal
import sys
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB

from discreet.errors import ParameterError, RandomnessMisuse
from discreet.numerics.grid import Grid
from discreet.randomness import Purpose, SharedSecret, Source, gaussian, ziggurat
from discreet.randomness.ahead import NoiseAhead
from discreet.randomness.draws import subset
from discreet.randomness.gaussian import GaussianNoise, release
from discreet.randomness.refine import refine
from support.written_streams import written

KEY = bytes(range(32))
GRID = Grid(2.0**-20)
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def noise(size: int) -> GaussianNoise:
    return GaussianNoise(
        Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=0), scale=2.0**23, size=size
    )


def exit_code_of(fork: Callable[[], int], work: Callable[[], int]) -> int:
    """What the child answers; a child that hangs is ended by the alarm, and a failed one answers
    99.
    """
    child = fork()
    if child == 0:
        signal.alarm(20)
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# --- forks ---


@FORKS
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_fork_draws_noise_of_its_own_on_a_thread() -> None:
    """The lock of first use was still held by the child's main thread, so that every other thread
    waited for ever.
    """

    def work() -> int:
        def fork_again() -> int:
            return exit_code_of(os.fork, draw)

        return draw() or fork_again()

    def draw() -> int:
        stream = Source.system().stream(Purpose.NOISE, step=0)
        with NoiseAhead(stream, grid=GRID, noise_std=1.0, size=6) as ahead:
            return int(not ahead.release(np.zeros(6)).any())

    assert exit_code_of(os.fork, work) == 0


@FORKS
@pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux")
def test_p20_a_fork_that_went_past_python_can_use_no_key_of_its_parent() -> None:
    source = Source.unsafe_test_key(KEY)
    stream = source.stream(Purpose.NOISE, step=0)

    def work() -> int:
        refused = 0
        for use in (lambda: stream.words(1), lambda: source.stream(Purpose.NOISE, step=1)):
            try:
                use()
            except RandomnessMisuse:
                refused += 1
        Source.system().stream(Purpose.NOISE, step=0).words(1)
        return refused

    assert exit_code_of(ctypes.PyDLL(None).fork, work) == 2
    stream.words(1)


# --- bits that were not tested to be different ---


def test_p22_the_context_of_a_run_enters_the_key_that_ranks_share() -> None:
    """A secret that is used again must not repeat the samples of the run before."""
    secret = SharedSecret.generate()
    other_rank = SharedSecret.from_bytes(secret.to_bytes())
    words = [
        int(Source.shared(its, context=context).stream(Purpose.SAMPLE, step=0).words(1)[0])
        for its, context in ((secret, "a"), (secret, "b"), (other_rank, "a"))
    ]
    assert words[0] != words[1]
    assert words[0] == words[2]
    with pytest.raises(RandomnessMisuse, match="again"):
        Source.shared(secret, context="a")


def test_every_round_of_refinement_has_bits_of_its_own() -> None:
    """With U = 0 in the words and in the first round, only the second round says how far out in the
    tail the number is.
    """
    decided = []
    for more in (2**63, 2**62):
        source = written(
            [],
            number_0_round_1=[0, 0],
            number_0_round_2=[more, 0],
            number_0_round_3=[3, 0],
            number_0_round_4=[3, 7],
        )
        decided.append(refine(source, 0, np.zeros(6, np.uint64), 2.0**20))
    assert decided[0] != decided[1]


def test_a_sparse_subset_with_repetitions_does_not_overshoot() -> None:
    """Two are found after three draws; one more draw is made, and not three."""
    assert subset(written([40, 7, 40, 99, 50, 60]), 3, 100).tolist() == [7, 40, 99]


def test_words_are_those_of_the_stated_construction_and_no_key_serves_two_functions() -> None:
    """HKDF-Expand and AES-CTR as docs/proofs/randomness.md says, written a second time."""

    def expanded(key: bytes, *labels: str) -> bytes:
        info = b"".join(
            len(label).to_bytes(4, "big") + label.encode() for label in ("discreet", *labels)
        )
        return hmac.digest(key, info + b"\1", "sha256")

    def words(key: bytes) -> list[int]:
        encryptor = Cipher(
            AES256(expanded(key, "words")), ECB()
        ).encryptor()  # of counters: this is CTR
        blocks = encryptor.update(b"".join(block.to_bytes(16, "big") for block in range(2)))
        return [int.from_bytes(blocks[8 * i : 8 * i + 8], "little") for i in range(4)]

    stream = Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=7, lane=1)
    key = expanded(KEY, "stream", "noise", "7", "1")
    assert stream.words(4).tolist() == words(key)
    assert stream.child("further").words(4).tolist() == words(expanded(key, "child", "further"))


# --- subclasses of arrays ---


@pytest.mark.parametrize("backend", [None, ziggurat.IN_NUMPY])
def test_a_matrix_gets_a_number_of_its_own_in_every_place(
    backend: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled kernel took the matrix's one row for one number: all places got the same noise,
    or memory was overrun.
    """
    if backend is not None:
        monkeypatch.setattr(gaussian, "_backend", lambda: backend)
    for size in (4, 70_000):
        values = np.zeros(size)
        noise(size).add_to(values.view(np.matrix))
        assert np.array_equal(values, noise(size).take(size))


def test_a_matrix_is_released_like_an_array() -> None:
    def released(sums: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        stream = Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=0)
        return release(sums, grid=GRID, noise_std=1.0, stream=stream, out=out)

    sums = np.ones((1, 70_000))
    expected = released(sums, None)
    assert np.array_equal(np.asarray(released(sums.view(np.matrix), None)), expected)
    out = np.empty_like(sums)
    assert released(sums, out.view(np.matrix)) is not out
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("hard", [False, True])
def test_a_masked_array_is_refused_before_any_noise_is_used(hard: bool) -> None:
    """Masked places were passed over by `+=`: their sums would have been left without noise."""
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False], hard_mask=hard)
    stream = Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=0)
    with pytest.raises(ParameterError, match="mask"):
        release(masked, grid=GRID, noise_std=1.0, stream=stream)
    with pytest.raises(ParameterError, match="mask"):
        release(np.zeros(3), grid=GRID, noise_std=1.0, stream=stream, out=masked)
    left = GaussianNoise(stream, scale=2.0**23, size=3)
    with pytest.raises(ParameterError, match="mask"):
        left.add_to(masked)
    assert left.left == 3
    assert masked.data.tolist() == [1.0, 2.0, 3.0]


def test_arrays_that_are_not_aligned_get_the_same_noise() -> None:
    raw = np.zeros(8 * 1001 + 1, np.uint8)
    odd = raw[1:].view(np.float64)
    assert not odd.flags.aligned
    noise(1001).add_to(odd)
    assert np.array_equal(odd, noise(1001).take(1001))
