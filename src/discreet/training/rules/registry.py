"""The rules by name of torch's function. Every rule is a function of one `Call`.

To add one: in the file of its kind, a function that computes the output from `call.plain(...)`
values and taps it with what makes the factor of each value from the output's gradient, and its name
in `RULES` there; and in the test of that file, a comparison with single records.
docs/own-rules.md has a worked example.
"""

from __future__ import annotations

from discreet.training.rules import broadcast, copies, embedding, linear, normalisation
from discreet.training.rules.call import Rule
from discreet.training.rules.convolution import rule as convolution
from discreet.training.rules.recurrent import rule as recurrent

__all__ = ["RULES"]

RULES: dict[str, Rule] = {
    **copies.RULES,
    **broadcast.RULES,
    **linear.RULES,
    **convolution.RULES,
    **normalisation.RULES,
    **embedding.RULES,
    **recurrent.RULES,
}
"""By the name of the function; "*" is for all others."""
