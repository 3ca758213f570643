"""Secrets in texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from discreet.auditing import SecretText
from discreet.errors import ParameterError, RandomnessMisuse
from discreet.randomness import Source


def key(number: int) -> Source:
    return Source.unsafe_test_key(bytes([number]) * 32)


def chi_square(counts: Any) -> float:
    return float(((counts - counts.mean()) ** 2).sum() / counts.mean())


def test_secrets_are_uniform_in_every_place() -> None:
    """20 000 letters of 200 in each of two places: chi-square with 199 degrees of freedom is below
    310 but for 1e-6.

    The named wrong implementation takes random bytes modulo 200, so that 56 letters come twice as
        often: about 2700.
    """
    letters = "".join(chr(0x100 + place) for place in range(200))
    drawn = SecretText(template="{secret}", alphabet=letters, length=2).draw(20_000, source=key(1))
    for place in range(2):
        counts = np.bincount([ord(secret[place]) - 0x100 for secret in drawn], minlength=200)
        assert chi_square(counts) < 310.0
    wrong = np.random.default_rng(0).integers(256, size=20_000) % 200
    assert chi_square(np.bincount(wrong, minlength=200)) > 310.0
    assert len(set(drawn)) > 15_000  # 15 739 different ones are expected, standard deviation 50


def test_more_secrets_than_any_integer_can_count() -> None:
    text = SecretText(alphabet="abcdefghijklmnopqrstuvwxyz", length=40)
    assert text.possible == 26**40
    assert len(set(text.draw(10))) == 10
    with pytest.raises(ParameterError, match="draw"):
        text.every()


def test_every_secret_is_listed_once() -> None:
    assert SecretText(alphabet="01", length=3).every() == (
        "000",
        "001",
        "010",
        "011",
        "100",
        "101",
        "110",
        "111",
    )


def test_a_source_serves_once_and_two_draws_differ() -> None:
    source, text = key(2), SecretText()
    first = text.draw(5, source=source)
    with pytest.raises(RandomnessMisuse):
        text.draw(5, source=source)
    assert text.draw(5) != first


def test_names_and_secrets_are_put_in_as_they_are() -> None:
    text = SecretText(template="{name}: {secret}!", alphabet="01", length=2)
    assert text.text("{secret} {0.__class__}", "01") == "{secret} {0.__class__}: 01!"
    assert SecretText(template="code {secret}", length=1).text("nobody", "7") == "code 7"


def test_exposure_ranks_the_secret_of_this_name_among_all() -> None:
    text = SecretText(template="{name}={secret}", alphabet="01", length=3)
    seen: list[str] = []

    def losses(texts: Sequence[str]) -> list[float]:
        seen.extend(texts)
        return [
            float(one == "Eve=010") for one in texts
        ]  # the model finds the secret the *least* likely

    found = text.exposure("Eve", "010", losses)
    assert found.bits == 0.0
    assert found.candidates == 8
    assert sorted(seen) == sorted({f"Eve={one}" for one in text.every()})


def test_in_a_sample_the_secret_itself_is_a_tie() -> None:
    text = SecretText(alphabet="01", length=3)
    found = text.exposure("Eve", "010", lambda texts: [0.0] * len(texts), ["010", "010", "111"])
    assert found.candidates == 4
    assert found.bits == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"template": "no place"},
        {"template": "{secret}{secret}"},
        {"template": "{name}{name}{secret}"},
        {"alphabet": "a"},
        {"alphabet": "aa"},
        {"alphabet": "a{"},
        {"length": 0},
        {"length": 2.0},
        {"template": 7},
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        SecretText(**wrong)


def test_wrong_secrets_and_losses_are_refused() -> None:
    text = SecretText(alphabet="01", length=2)
    with pytest.raises(ParameterError) as refused:
        text.text("Eve", "012")
    assert "012" not in str(refused.value)  # a secret is not shown
    with pytest.raises(ParameterError, match="one number for each of 4"):
        text.exposure("Eve", "01", lambda texts: [1.0])
