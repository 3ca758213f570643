"""The record of what happened: a closed vocabulary of events, and a ledger of steps charged before
their release.
"""

from discreet.ledger.events import (
    BallsInBins,
    CorrelatedGaussianSum,
    Everything,
    ExponentialChoice,
    FixedSize,
    GaussianSum,
    LaplaceSum,
    Poisson,
    Query,
    RandomizedResponse,
    Sampling,
    Shuffled,
    Step,
    TruncatedPoisson,
)
from discreet.ledger.lease import Lease
from discreet.ledger.ledger import Ledger
from discreet.ledger.run import Run, block_size
from discreet.ledger.snapshot import RunRecord, Snapshot
from discreet.ledger.storage.rows import Charge, RunInfo
from discreet.ledger.terms import Rule, Terms

__all__ = [
    "BallsInBins",
    "Charge",
    "CorrelatedGaussianSum",
    "Everything",
    "ExponentialChoice",
    "FixedSize",
    "GaussianSum",
    "LaplaceSum",
    "Lease",
    "Ledger",
    "Poisson",
    "Query",
    "RandomizedResponse",
    "Rule",
    "Run",
    "RunInfo",
    "RunRecord",
    "Sampling",
    "Shuffled",
    "Snapshot",
    "Step",
    "Terms",
    "TruncatedPoisson",
    "block_size",
]
