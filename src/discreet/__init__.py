"""discreet: differential privacy for iterative training.

An epsilon you can trust, at almost no cost in speed, with almost no change to your code. This module needs no torch.
"""

from discreet.accounting import account, calibrate
from discreet.budget import Budget
from discreet.errors import (
    AccountingError,
    BudgetExceeded,
    DiscreetError,
    LedgerCorrupt,
    LedgerError,
    LedgerExists,
    LedgerMisuse,
    LedgerNotFound,
    LedgerUnavailable,
    ParameterError,
    UnknownEvent,
)
from discreet.ledger import (
    BallsInBins,
    Charge,
    CorrelatedGaussianSum,
    Everything,
    ExponentialChoice,
    FixedSize,
    GaussianSum,
    LaplaceSum,
    Lease,
    Ledger,
    Poisson,
    RandomizedResponse,
    RunInfo,
    Shuffled,
    Step,
    TruncatedPoisson,
)
from discreet.plan import Plan
from discreet.units import Adjacency, Guarantee, Numerics, Parameters, Randomness, Unit

__version__ = "0.1.0"

__all__ = [
    "AccountingError",
    "Adjacency",
    "BallsInBins",
    "Budget",
    "BudgetExceeded",
    "Charge",
    "CorrelatedGaussianSum",
    "DiscreetError",
    "Everything",
    "ExponentialChoice",
    "FixedSize",
    "GaussianSum",
    "Guarantee",
    "LaplaceSum",
    "Lease",
    "Ledger",
    "LedgerCorrupt",
    "LedgerError",
    "LedgerExists",
    "LedgerMisuse",
    "LedgerNotFound",
    "LedgerUnavailable",
    "Numerics",
    "ParameterError",
    "Parameters",
    "Plan",
    "Poisson",
    "RandomizedResponse",
    "Randomness",
    "RunInfo",
    "Shuffled",
    "Step",
    "TruncatedPoisson",
    "Unit",
    "UnknownEvent",
    "__version__",
    "account",
    "calibrate",
]
