"""Records that are planted to be looked for: which, in or out by a fair coin, and what an attack
saw of each.
"""

from discreet.canaries.canaries import Canaries
from discreet.canaries.likelihood import Likelihood
from discreet.canaries.records import mislabelled, out_of_distribution
from discreet.canaries.scores import Scores

__all__ = ["Canaries", "Likelihood", "Scores", "mislabelled", "out_of_distribution"]
