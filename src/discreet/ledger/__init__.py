"""The record of what happened: a closed vocabulary of events, and a ledger of steps charged before their release."""

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
from discreet.ledger.ledger import Guard, Ledger, block_size
from discreet.ledger.rows import Charge, RunInfo

__all__ = [
    "BallsInBins",
    "Charge",
    "CorrelatedGaussianSum",
    "Everything",
    "ExponentialChoice",
    "FixedSize",
    "GaussianSum",
    "Guard",
    "LaplaceSum",
    "Lease",
    "Ledger",
    "Poisson",
    "Query",
    "RandomizedResponse",
    "RunInfo",
    "Sampling",
    "Shuffled",
    "Step",
    "TruncatedPoisson",
    "block_size",
]
