"""Help in which flags are flags and examples can be copied.

Typer shows a type beside every option, of flags and of its own `--help` too, and folds the examples
below a command's help to the width of the terminal, filled up with spaces, so that neither a long
line nor a backslash survives.
"""

from __future__ import annotations

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
        # Typer folds an epilog; so it sees none while it prints.
        examples, self.epilog = self.epilog, None
        super().format_help(ctx, formatter)
        self.epilog = examples
        typer.echo(examples)


class PlainGroup(TyperGroup):
    """A group of commands with a plain `--help`, and examples as they are written."""

    def get_help_option(self, ctx: Any) -> Any:
        """The option that typer makes itself, without a type."""
        return _without_type(super().get_help_option(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help, then the examples, if the group has some."""
        # Typer folds an epilog; so it sees none while it prints.
        examples, self.epilog = self.epilog, None
        super().format_help(ctx, formatter)
        self.epilog = examples
        if examples:
            typer.echo(examples)


def _without_type(option: Any) -> Any:
    if option is not None:
        option.metavar = ""
    return option
