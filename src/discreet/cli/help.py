"""Help in which flags are flags and examples can be copied.

Typer shows a type beside every option, of flags and of its own `--help` too, and folds the examples
below a command's help to the width of the terminal, filled up with spaces, so that neither a long
line nor a backslash survives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["PlainCommand", "PlainGroup"]


class PlainCommand(TyperCommand):
    """A command whose `--help` is a plain flag, and whose examples stand below the help as they are
    written.
    """

    def get_help_option(self, ctx: Any) -> Any:
        """The option that typer makes itself, without a type."""
        return _without_type(super().get_help_option(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help, then the examples."""
        _format(self, super().format_help, ctx, formatter)


class PlainGroup(TyperGroup):
    """A group of commands with a plain `--help`, and examples as they are written."""

    def get_help_option(self, ctx: Any) -> Any:
        """The option that typer makes itself, without a type."""
        return _without_type(super().get_help_option(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help, then the examples, if the group has some."""
        _format(self, super().format_help, ctx, formatter)


def _format(
    command: PlainCommand | PlainGroup, format_help: Callable[..., None], ctx: Any, formatter: Any
) -> None:
    # Typer folds an epilog to the terminal's width; so it sees none while it prints.
    examples, command.epilog = command.epilog, None
    format_help(ctx, formatter)
    command.epilog = examples

    if examples:
        typer.echo(examples)


def _without_type(option: Any) -> Any:
    # None where a command was told to have no `--help`.
    if option is not None:
        option.metavar = ""

    return option
