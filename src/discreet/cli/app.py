"""The commands, and what their outcome is to the shell.

0     done, or yes
1     the answer is no: a ledger is corrupt or was rewritten, deviates from its plan, costs more
      than allowed, fails an audit
2     wrong input: nothing was computed that could be relied on, nothing was written
70    a bug of this program
130   interrupted
141   whoever read the output went away
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

import discreet
from discreet.cli.answer import NO, Answer
from discreet.cli.commands import (
    account,
    audit,
    demo,
    ledger,
    ledger_show,
    plan,
    plan_show,
    report,
    verify,
)
from discreet.cli.help import PlainCommand, PlainGroup
from discreet.errors import DiscreetError, LedgerCorrupt, ParameterError

__all__ = ["main"]

# 70 is sysexits.h's code for an error in the program; 130 and 141 are what a shell reports of a
# process that SIGINT (2) or SIGPIPE (13) ended, 128 plus the signal's number.
_WRONG_INPUT, _BUG, _INTERRUPTED, _UNREAD = 2, 70, 130, 141
# Newer typers bring their own click along, older ones use the installed one; this is UsageError of
# either.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
# Functions whose parameters are options of the same name, but for those in `_FLAGS`: an error about
# a parameter is told in the words of the command line.
_OWNERS = ("Plan.dpsgd", "account", "audit", "Report.of", "Target", "white_box")
_FLAGS = {
    ("Plan.dpsgd", "expected_batch_size"): "--batch-size",
    ("Plan.dpsgd", "sampling_probability"): "--probability",
    ("Unit", "name"): "--unit",
    ("Ledger.verify", "expected_head"): "--head",
    ("Ledger.change_budget", "epsilon"): "--epsilon",
    ("Ledger.change_budget", "delta"): "--delta",
    ("Ledger.change_budget", "reason"): "--reason",
    ("Ended", "run"): "--run",
    ("stop", "reason"): "--reason",
    ("Subject", "data_set"): "--data-set",
    ("Subject", "model"): "--model",
    ("Subject", "purpose"): "--purpose",
    ("Subject", "who"): "--by",
}

_app = typer.Typer(
    name="discreet",
    cls=PlainGroup,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_rows = typer.Typer(
    cls=PlainGroup,
    help="Look into a ledger, move it, or add a row: show, export, import, budget, stop.",
    no_args_is_help=True,
)
# `plan` makes a plan when it is called alone, and is a group for `plan show`.
_plans = typer.Typer(
    cls=PlainGroup,
    invoke_without_command=True,
    subcommand_metavar="[show LEDGER]",
    epilog=plan.PLAN_EXAMPLES,
)
_plans.callback()(plan.plan)
_plans.command(name="show", cls=PlainCommand, epilog=plan_show.PLAN_SHOW_EXAMPLES)(
    plan_show.plan_show
)
_app.add_typer(_plans, name="plan")
_COMMANDS: tuple[tuple[typer.Typer, str, Callable[..., Answer], str], ...] = (
    (_app, "account", account.account, account.ACCOUNT_EXAMPLES),
    (_app, "verify", verify.verify, verify.VERIFY_EXAMPLES),
    (_app, "report", report.report, report.REPORT_EXAMPLES),
    (_app, "audit", audit.audit, audit.AUDIT_EXAMPLES),
    (_app, "demo", demo.demo, demo.DEMO_EXAMPLES),
    (_rows, "show", ledger_show.show, ledger_show.SHOW),
    (_rows, "export", ledger.export, ledger.EXPORT),
    (_rows, "import", ledger.import_, ledger.IMPORT),
    (_rows, "budget", ledger.budget, ledger.BUDGET),
    (_rows, "stop", ledger.stop, ledger.STOP),
)
for _group, _name, _command, _epilog in _COMMANDS:
    _group.command(name=_name, cls=PlainCommand, epilog=_epilog)(_command)
_app.add_typer(_rows, name="ledger")


def _print_version(wanted: bool) -> None:  # noqa: FBT001  (typer calls it so)
    if wanted:
        typer.echo(f"discreet {discreet.__version__}")
        raise typer.Exit


@_app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  (its callback does it all)
        bool,
        typer.Option(
            "--version",
            metavar="",
            help="Print the version.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Differential privacy for iterative training: plan, account for, verify, attack, report it.

    Exit codes: 0 done; 1 the answer is no (corrupt, deviates, above a limit, refuted); 2 wrong
    input, and nothing was written.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(_WRONG_INPUT)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one command and exit.

    Args:
        arguments: without the program's name; left out, those of the process.
    """
    sys.exit(_outcome(sys.argv[1:] if arguments is None else arguments))


def _outcome(arguments: list[str]) -> int:  # noqa: PLR0911  (one for each kind of outcome)
    """The exit code; every error has become a message on stderr."""
    try:
        answer = _app(args=arguments, prog_name="discreet", standalone_mode=False)
        if isinstance(answer, Answer):
            _write(answer.text())
            return answer.code

        # What is no answer is an exit code: of `--help`, of `--version`, or, by newer typers, of an
        # interrupt.
        return _say("Interrupted.", _INTERRUPTED) if answer == _INTERRUPTED else int(answer or 0)

    # A ledger that is not sound is an answer, and not wrong input: it comes before its base class.
    except LedgerCorrupt as wrong:
        return _say(str(wrong), NO)

    # Wrong input, noticed by the library or, before any command ran, by typer.
    except DiscreetError as wrong:
        return _say(_sentence(wrong), _WRONG_INPUT)
    except _USAGE_ERROR as wrong:
        return _say(_usage(wrong), _WRONG_INPUT)

    except (KeyboardInterrupt, typer.Abort):
        return _say("Interrupted.", _INTERRUPTED)

    # Whoever reads went away (`| head`). Without another place to write to, Python would complain
    # when it flushes standard output at the end.
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _UNREAD

    # Files that commands name are checked by them; here is what can still go wrong, such as a full
    # disk.
    except OSError as refused:
        do = "Check files, permissions and space."
        return _say(f"Expected the system to do as asked. Got {refused}. {do}", _WRONG_INPUT)

    # A crash must not end with 1, which would be an answer.
    except Exception:  # noqa: BLE001  (whatever it is, it has an exit code)
        return _say(f"This is a bug of discreet; please report it.\n{traceback.format_exc()}", _BUG)


def _write(text: str) -> None:
    if sys.stdout is None:
        return

    # A terminal that cannot show a character gets its code: an error would come after the work was
    # done.
    encoding = sys.stdout.encoding
    if encoding.lower().replace("-", "") != "utf8":
        text = text.encode(encoding, "backslashreplace").decode(encoding)

    # Flushed here, where a reader that went away is still noticed.
    sys.stdout.write(text)
    sys.stdout.flush()


def _say(message: str, code: int) -> int:
    # Without standard error nobody can be told; the exit code says it all the same.
    if sys.stderr is not None:
        sys.stderr.write(f"discreet: {message.rstrip()}\n")

    return code


def _sentence(wrong: DiscreetError) -> str:
    """The error's own sentence, with the option's name in the place of the parameter's."""
    if not isinstance(wrong, ParameterError):
        return str(wrong)

    same = "--" + wrong.name.replace("_", "-") if wrong.owner in _OWNERS else None
    option = _FLAGS.get((wrong.owner, wrong.name), same)

    # What no option set is told as the library tells it: there is nothing better to name.
    if option is None:
        return str(wrong)

    return f"{option} must be {wrong.expected}. Got {wrong.got}. {wrong.do}".rstrip()


def _usage(wrong: Exception) -> str:
    # Typers differ in where this error comes from, and older ones leave out parts of it.
    context = getattr(wrong, "ctx", None)
    command = getattr(context, "command_path", "discreet")
    message = getattr(wrong, "format_message", wrong.__str__)() or "A command is missing."

    # Some messages of typer's end in a full stop, some in none; a suggestion ends in "?".
    if not message.endswith(("?", "!")):
        message = f"{message.rstrip('.')}."

    return f"{message} Try: {command} --help"
