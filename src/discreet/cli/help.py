"""Commands whose help shows flags as flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PlainCommand", "PlainGroup"]


class PlainCommand(TyperCommand):
    """A command whose `--help` is a plain flag, too; see `options.flag`."""

    def get_help_option(self, ctx: Any) -> Any:
        """The option that typer makes itself."""
        return _plain(super().get_help_option, ctx)


class PlainGroup(TyperGroup):
    """The same for a group of commands."""

    def get_help_option(self, ctx: Any) -> Any:
        """The option that typer makes itself."""
        return _plain(super().get_help_option, ctx)


def _plain(get: Callable[[Any], Any], ctx: Any) -> Any:
    option = get(ctx)
    if option is not None:
        option.metavar = ""
    return option
