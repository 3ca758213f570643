"""What the outcome of a command is to the shell: exit codes, and errors in its own words."""

import pytest

import discreet as dp
from discreet.cli import app
from discreet.cli.answer import Answer
from support.command import in_process


def test_the_version_is_printed() -> None:
    assert in_process("--version").out == f"discreet {dp.__version__}\n"


def test_no_command_is_wrong_input_and_shows_the_help() -> None:
    done = in_process()
    assert done.code == 2
    assert "Usage" in done.out


def test_a_misspelt_command_is_wrong_input_and_says_where_help_is() -> None:
    done = in_process("acount")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("discreet: ")
    assert done.err.endswith("Try: discreet --help\n")


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (dp.errors.LedgerCorrupt(expected="a", got="b", do="c"), 1, "Expected a. Got b. c"),
        (dp.errors.DiscreetError(expected="a", got="b", do="c"), 2, "Expected a. Got b. c"),
        (KeyboardInterrupt(), 130, "Interrupted."),
        (OSError("no space"), 2, "Got no space."),
        (RuntimeError("oops"), 70, "This is a bug of discreet"),
    ],
    ids=["the answer is no", "wrong input", "interrupted", "the system", "a bug"],
)
def test_every_error_is_one_message_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, words: str
) -> None:
    """A crash must not be 1: that would be an answer."""

    def command(**_: object) -> None:
        raise error

    monkeypatch.setattr(app, "_app", command)
    done = in_process("account")
    assert (done.code, done.out) == (code, "")
    assert words in done.err


def test_an_answer_has_its_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Answer(data={}, shown=["no"], code=1)
    monkeypatch.setattr(app, "_app", lambda **_: answer)
    assert in_process("account").code == 1


@pytest.mark.parametrize(
    ("owner", "name", "option"),
    [
        ("Plan.dpsgd", "expected_batch_size", "--batch-size"),
        ("account", "at_most", "--at-most"),
        ("Subject", "who", "--by"),
    ],
)
def test_a_wrong_parameter_is_told_as_the_option_that_it_is(
    owner: str, name: str, option: str
) -> None:
    wrong = dp.errors.ParameterError(owner=owner, name=name, expected="above 0", got="-1")
    assert app._sentence(wrong).startswith(f"{option} must be above 0. Got -1.")


def test_a_parameter_that_is_no_option_keeps_its_own_sentence() -> None:
    wrong = dp.errors.ParameterError(owner="Sampler", name="steps", expected="above 0", got="-1")
    assert app._sentence(wrong) == str(wrong)
