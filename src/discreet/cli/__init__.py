"""The command line: `discreet plan | account | verify | report | audit | ledger | demo`. Only
`demo` needs torch.
"""

from discreet.cli.app import main

__all__ = ["main"]
