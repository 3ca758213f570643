"""Which records a step sees: one sampler for every sampling policy of the ledger, exact and
single-use.
"""

from discreet.sampling.owners import Owners
from discreet.sampling.sample import Sample
from discreet.sampling.sampler import Draw, Sampler

__all__ = ["Draw", "Owners", "Sample", "Sampler"]
