"""AES-256 in counter mode and HKDF-SHA256, from `cryptography`.

Both are checked by known answers before their first use. The construction, and what it is
indistinguishable from, is in docs/proofs/randomness.md, sections 1 and 2.

Keys come as functions that reveal them, so that no local variable holds one: error trackers show
the locals of every frame.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.errors import RandomnessUnavailable

try:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
    from cryptography.hazmat.primitives.ciphers.algorithms import AES256
    from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
except ImportError as error:  # there is no second-best generator
    raise RandomnessUnavailable(
        expected="the package 'cryptography'", got=repr(error), do="Run: pip install cryptography."
    ) from error

__all__ = ["Cursor", "blocks", "derive", "keystream"]

# Bytes of a word and of a block of AES: a block holds two words.
_WORD = 8
_BLOCK = 16

# The plain text; small, so that the words that it becomes stay in the cache too.
_ZEROS = memoryview(bytes(2**16))

# Known answers: NIST SP 800-38A, F.5.5 (CTR-AES256.Encrypt, first block) and RFC 5869, test case 1
# (expand).
_AES_KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
_AES_COUNTER = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
_AES_PLAIN = bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")
_AES_CIPHER = bytes.fromhex("601ec313775789a5b7a7f504bbf3d228")
_HKDF_KEY = bytes.fromhex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")
_HKDF_INFO = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9")
_HKDF_OUT = bytes.fromhex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf")


class Cursor:
    """A cipher between two reads of one thread.

    A read that goes on where the last one ended, with the same key, needs no new cipher.
    """

    __slots__ = ("_resume",)

    def __init__(self) -> None:
        # The key, the next block, and a cipher that stands before it.
        self._resume: tuple[Callable[[], bytes], int, CipherContext] | None = None

    def take(self, reveal: Callable[[], bytes], block: int) -> CipherContext:
        """Take out a cipher that stands before this block, or make one.

        It is gone from here: an interruption leaves none that stands elsewhere.
        """
        resume, self._resume = self._resume, None
        if resume is not None and resume[:2] == (reveal, block):
            return resume[2]

        return Cipher(AES256(reveal()), CTR(block.to_bytes(_BLOCK, "big"))).encryptor()

    def keep(self, reveal: Callable[[], bytes], block: int, cipher: CipherContext) -> None:
        self._resume = reveal, block, cipher


def keystream(
    reveal: Callable[[], bytes], start: int, out: NDArray[np.uint64], cursor: Cursor | None = None
) -> None:
    """Fill a contiguous array with the 64-bit words `start`, `start + 1`, ... of the key's stream.

    Words are little-endian. Word i is half of block i // 2, the AES of the counter i // 2.
    """
    _check()
    cursor = cursor or Cursor()
    target = out.view(np.uint8).data

    # An odd start is the second word of a block: the block is computed apart, and its first word
    # dropped.
    if start % 2:
        block_words = np.empty(2, np.uint64)
        _fill(reveal, start // 2, block_words.view(np.uint8).data, cursor)
        out[:1] = block_words[1:] if out.size else block_words[:0]
        target, start = target[_WORD:], start + 1

    if len(target):
        _fill(reveal, start // 2, target, cursor)


def _fill(reveal: Callable[[], bytes], block: int, target: memoryview, cursor: Cursor) -> None:
    cipher = cursor.take(reveal, block)

    for position in range(0, len(target), len(_ZEROS)):
        piece = target[position : position + len(_ZEROS)]
        cipher.update_into(_ZEROS[: len(piece)], piece)

    # A cipher in the middle of a block cannot be used again: reads begin with whole blocks.
    if len(target) % _BLOCK == 0:
        cursor.keep(reveal, block + len(target) // _BLOCK, cipher)


def blocks(reveal: Callable[[], bytes], numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Compute the two words of each of these blocks of the key's stream, (N, 2).

    They are those of `keystream`: in counter mode a block is the AES of its number, so here the
    numbers themselves are encrypted, in whatever order they come.
    """
    _check()
    counters = np.zeros((numbers.size, 2), ">u8")
    counters[:, 1] = numbers

    # Different counters, each by itself, as counter mode does it: no text is encrypted here.
    cipher = Cipher(AES256(reveal()), ECB()).encryptor()  # noqa: S305

    # The interface asks for room for one block more than it writes.
    words = np.empty((numbers.size + 1, 2), np.uint64)
    cipher.update_into(
        counters.reshape(-1).view(np.uint8).data, words.reshape(-1).view(np.uint8).data
    )
    return words[:-1]


def derive(reveal: Callable[[], bytes], *labels: str) -> bytes:
    """Derive a 32-byte key for these labels; different lists of labels give independent keys."""
    _check()

    # Every label comes with its length, so that different lists are different inputs.
    info = b"".join(map(_with_length, ("discreet", *labels)))
    return HKDFExpand(SHA256(), 32, info).derive(reveal())


@lru_cache(256)
def _with_length(label: str) -> bytes:
    name = label.encode()
    return len(name).to_bytes(4, "big") + name


@cache
def _check() -> None:
    try:
        encryptor = Cipher(AES256(_AES_KEY), CTR(_AES_COUNTER)).encryptor()
        cipher = encryptor.update(_AES_PLAIN)
        block = Cipher(AES256(_AES_KEY), ECB()).encryptor().update(_AES_COUNTER)  # noqa: S305
        expanded = HKDFExpand(SHA256(), 32, _HKDF_INFO).derive(_HKDF_KEY)
    except UnsupportedAlgorithm as error:
        raise _broken(repr(error)) from error

    # In counter mode, the block is what is added to the plain text.
    added = bytes(a ^ b for a, b in zip(_AES_PLAIN, _AES_CIPHER, strict=True))
    if cipher != _AES_CIPHER or block != added or expanded != _HKDF_OUT:
        raise _broken("another answer")

    if np.dtype(np.uint64).newbyteorder("=").str != "<u8":
        raise _broken("a big-endian machine, where the words would differ")


def _broken(got: str) -> RandomnessUnavailable:
    return RandomnessUnavailable(
        expected="AES-256-CTR and HKDF-SHA256 that pass their known-answer tests",
        got=got,
        do="Repair the installation of 'cryptography': there is no fallback.",
    )
