"""`discreet demo`."""
from discreet.cli.answer import Answer
EXAMPLES=""
def demo() -> Answer: ...
