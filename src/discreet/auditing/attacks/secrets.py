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
from discreet.canaries.scores import array_of
from discreet.errors import ParameterError
from discreet.randomness import Purpose, Source
from discreet.randomness.draws import below

__all__ = ["SecretText"]

_MOST_LISTED = 2**20
_LANE = 3  # of the purpose CANARY; lane 0 has the coins, 1 and 2 have records


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
            expected = 'a text with "{secret}" once, and "{name}" at most once'
            raise ParameterError(
                owner=owner, name="template", expected=expected, got=repr(text)[:80]
            )
        letters = check.instance(owner, "alphabet", self.alphabet, str)
        if len(letters) < 2 or len(set(letters)) != len(letters) or set("{}") & set(letters):
            expected = "at least two characters, each once, without braces"
            raise ParameterError(
                owner=owner, name="alphabet", expected=expected, got=repr(letters)[:80]
            )
        object.__setattr__(self, "length", check.whole(owner, "length", self.length, least=1))

    @property
    def possible(self) -> int:
        """How many secrets there are: candidates of the exposure by rank among all."""
        return int(len(self.alphabet) ** self.length)

    def draw(self, count: int, *, source: Source | None = None) -> tuple[str, ...]:
        """Independent secrets, each uniform: to plant, or as candidates to compare with (of another
        source, or another call).

        Args:
            count: how many.
            source: a fresh one from the operating system by default. It serves one call.
        """
        owner = "SecretText.draw"
        number = check.whole(owner, "count", count, least=1)
        drawn = (
            Source.system() if source is None else check.instance(owner, "source", source, Source)
        )
        stream = drawn.stream(Purpose.CANARY, step=0, lane=_LANE)
        letters = below(stream, len(self.alphabet), number * self.length)
        joined = "".join(self.alphabet[letter] for letter in letters.tolist())
        return tuple(
            joined[start : start + self.length] for start in range(0, len(joined), self.length)
        )

    def every(self) -> tuple[str, ...]:
        """All secrets in order; refused above 2^20."""
        if self.possible > _MOST_LISTED:
            expected, do = (
                f"at most {_MOST_LISTED} secrets to list them all",
                "Compare with a sample: draw(count).",
            )
            raise ParameterError(
                owner="SecretText.every",
                name="length",
                expected=expected,
                got=str(self.possible),
                do=do,
            )
        return tuple(
            "".join(letters) for letters in itertools.product(self.alphabet, repeat=self.length)
        )

    def text(self, name: str, secret: str) -> str:
        """The text about this name with this secret."""
        owner = "SecretText.text"
        known = check.instance(owner, "secret", secret, str)
        if len(known) != self.length or not set(known) <= set(self.alphabet):
            expected = f"{self.length} characters of the alphabet"
            raise ParameterError(owner=owner, name="secret", expected=expected, got="another text")
        before, after = self.template.split("{secret}")
        whose = check.instance(owner, "name", name, str)
        return before.replace("{name}", whose) + known + after.replace("{name}", whose)

    def exposure(
        self,
        name: str,
        secret: str,
        losses: Callable[[Sequence[str]], ArrayLike],
        candidates: Sequence[str] | None = None,
    ) -> Exposure:
        """How exposed the secret of this name is in a model, by rank.

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
        others = (
            [one for one in self.every() if one != secret]
            if candidates is None
            else list(candidates)
        )
        texts = [self.text(name, one) for one in (secret, *others)]
        found = array_of(losses(texts))
        if found.shape != (len(texts),) or found.dtype.kind not in "iuf":
            expected = f"a function that gives one number for each of {len(texts)} texts"
            raise ParameterError(
                owner="SecretText.exposure",
                name="losses",
                expected=expected,
                got=f"{found.dtype}, shape {found.shape}",
            )
        return exposure_by_rank(float(found[0]), found[1:])
