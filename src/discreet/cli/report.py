"""`discreet report`."""
from discreet.cli.answer import Answer
EXAMPLES=""
def report() -> Answer: ...
