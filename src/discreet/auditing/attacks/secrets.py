"""Secrets in texts: drawn uniformly, planted as records, and looked for in a language model
[Carlini2019].
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from discreet import _validate as check
from discreet.auditing.attacks.exposure import Exposure, exposure_by_rank
from discreet.canaries.canaries import source_or_fresh
from discreet.canaries.scores import array_of
from discreet.errors import ParameterError
from discreet.randomness import Purpose, Source
from discreet.randomness.draws import below

__all__ = ["SecretText"]

_MOST_LISTED = 2**20

# Lane of the purpose CANARY; lane 0 has the coins, 1 and 2 have records.
_LANE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretText:
    """A text with a secret in it, such as "the code of {name} is {secret}".

    Plant one text for each name, as a record that is in or out by a coin of `Canaries`; train; then
    compare the loss of each planted text with those of the same text with other secrets. Exposures
    with the coins are `Scores`, from which `one_run` makes a bound on epsilon; without coins they
    are evidence only.

    Guarantee: secrets are independent of each other and exactly uniform over all alphabet^length.

    Args:
        template: has "{secret}" once; "{name}", if it is there, once.
        alphabet: characters of a secret, each once, at least two.
        length: characters in a secret.

    >>> codes = SecretText(template="the code of {name} is {secret}", length=4)
    >>> codes.possible, codes.text("Anna", "0042")
    (10000, 'the code of Anna is 0042')
    >>> [len(secret) for secret in codes.draw(3)]
    [4, 4, 4]
    """

    template: str = "the code of {name} is {secret}"
    alphabet: str = "0123456789"
    length: int = 6

    def __post_init__(self) -> None:
        owner = "SecretText"
        text = check.instance(owner, "template", self.template, str)
        if text.count("{secret}") != 1 or text.count("{name}") > 1:
            raise ParameterError(
                owner=owner,
                name="template",
                expected='a text with "{secret}" once, and "{name}" at most once',
                got=repr(text)[:80],
            )

        # A letter that stands twice would be drawn twice as often: secrets would not be uniform.
        letters = check.instance(owner, "alphabet", self.alphabet, str)
        if len(letters) < 2 or len(set(letters)) != len(letters) or set("{}") & set(letters):
            raise ParameterError(
                owner=owner,
                name="alphabet",
                expected="at least two characters, each once, without braces",
                got=repr(letters)[:80],
            )

        object.__setattr__(self, "length", check.whole(owner, "length", self.length, least=1))

    @property
    def possible(self) -> int:
        """Number of all secrets: candidates of the exposure by rank among all."""
        return int(len(self.alphabet) ** self.length)

    def draw(self, count: int, *, source: Source | None = None) -> tuple[str, ...]:
        """Draw independent secrets, each uniform: to plant, or as candidates to compare with.

        Candidates are of another source than what was planted, or of another call.

        Args:
            count: how many.
            source: a fresh one from the operating system by default. It serves one call.
        """
        owner = "SecretText.draw"
        number = check.whole(owner, "count", count, least=1)
        bits = source_or_fresh(owner, source).stream(Purpose.CANARY, step=0, lane=_LANE)

        # All letters of all secrets in one draw, then cut.
        letters = below(bits, len(self.alphabet), number * self.length)
        text = "".join(self.alphabet[letter] for letter in letters.tolist())
        return tuple(
            text[start : start + self.length] for start in range(0, len(text), self.length)
        )

    def every(self) -> tuple[str, ...]:
        """All secrets in order; refused above 2^20."""
        if self.possible > _MOST_LISTED:
            raise ParameterError(
                owner="SecretText.every",
                name="length",
                expected=f"at most {_MOST_LISTED} secrets to list them all",
                got=str(self.possible),
                do="Compare with a sample: draw(count).",
            )

        every = itertools.product(self.alphabet, repeat=self.length)
        return tuple("".join(letters) for letters in every)

    def text(self, name: str, secret: str) -> str:
        """Write the text about this name with this secret."""
        owner = "SecretText.text"
        check.instance(owner, "name", name, str)
        check.instance(owner, "secret", secret, str)
        if len(secret) != self.length or not set(secret) <= set(self.alphabet):
            # The secret itself is not repeated in an error, which may end up in a log.
            expected = f"{self.length} characters of the alphabet"
            raise ParameterError(owner=owner, name="secret", expected=expected, got="another text")

        # Split first: a name may have the text "{secret}" in it.
        before, after = self.template.split("{secret}")
        return before.replace("{name}", name) + secret + after.replace("{name}", name)

    def exposure(
        self,
        name: str,
        secret: str,
        losses: Callable[[Sequence[str]], ArrayLike],
        candidates: Sequence[str] | None = None,
    ) -> Exposure:
        """Measure by rank how exposed the secret of this name is in a model.

        Args:
            name: of whose secret it is, as it was planted.
            secret: as it was planted.
            losses: one for each text, by the model under attack; the lower, the likelier the text.
            candidates: to compare with: a `draw` of its own, in which the secret itself may come
                again, as a tie. Left out: all other secrets.

        >>> codes = SecretText(length=2)
        >>> remembers_17 = lambda texts: [0.1 if text.endswith("17") else 1.0 for text in texts]
        >>> codes.exposure("Anna", "17", remembers_17).bits
        6.64...
        """
        if candidates is None:
            candidates = [candidate for candidate in self.every() if candidate != secret]

        # In one call, so that a model may take them in batches; the secret is the first.
        texts = [self.text(name, candidate) for candidate in (secret, *candidates)]
        numbers = array_of(losses(texts))
        if numbers.shape != (len(texts),) or numbers.dtype.kind not in "iuf":
            raise ParameterError(
                owner="SecretText.exposure",
                name="losses",
                expected=f"a function that gives one number for each of {len(texts)} texts",
                got=f"{numbers.dtype}, shape {numbers.shape}",
            )

        return exposure_by_rank(float(numbers[0]), numbers[1:])
