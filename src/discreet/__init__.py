"""discreet: differential privacy for iterative training.

An epsilon you can trust, with almost no change to your code, at a measured cost in speed. This
module needs no torch.
"""

from discreet.accounting import account, calibrate
from discreet.aggregation import Aggregator, aggregate
from discreet.budget import Budget, Filter, Odometer
from discreet.canaries import Canaries, Scores
from discreet.errors import (
    AccountingError,
    BudgetExceeded,
    CheckpointError,
    CoupledRecords,
    DiscreetError,
    LedgerCorrupt,
    LedgerError,
    LedgerExists,
    LedgerMisuse,
    LedgerNotFound,
    LedgerUnavailable,
    ModelError,
    NumericsError,
    ParameterError,
    RandomnessError,
    RandomnessMisuse,
    RandomnessUnavailable,
    SampleMisuse,
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
from discreet.mechanisms import (
    AdaptiveClip,
    Gaussian,
    Groups,
    Joint,
    Microbatches,
    Normalised,
    NotPrivate,
    Split,
)
from discreet.plan import Phase, Plan, Programme
from discreet.randomness import Source
from discreet.report import Report
from discreet.sampling import Owners, Sample, Sampler
from discreet.units import Adjacency, Guarantee, Numerics, Parameters, Randomness, Unit
from discreet.verdict import Verdict, audit

__version__ = "0.1.0"

__all__ = [
    "AccountingError",
    "AdaptiveClip",
    "Adjacency",
    "Aggregator",
    "BallsInBins",
    "Budget",
    "BudgetExceeded",
    "Canaries",
    "Charge",
    "CheckpointError",
    "CorrelatedGaussianSum",
    "CoupledRecords",
    "DiscreetError",
    "Everything",
    "ExponentialChoice",
    "Filter",
    "FixedSize",
    "Gaussian",
    "GaussianSum",
    "Groups",
    "Guarantee",
    "Joint",
    "LaplaceSum",
    "Lease",
    "Ledger",
    "LedgerCorrupt",
    "LedgerError",
    "LedgerExists",
    "LedgerMisuse",
    "LedgerNotFound",
    "LedgerUnavailable",
    "Microbatches",
    "ModelError",
    "Normalised",
    "NotPrivate",
    "Numerics",
    "NumericsError",
    "Odometer",
    "Owners",
    "ParameterError",
    "Parameters",
    "Phase",
    "Plan",
    "Poisson",
    "Programme",
    "RandomizedResponse",
    "Randomness",
    "RandomnessError",
    "RandomnessMisuse",
    "RandomnessUnavailable",
    "Report",
    "RunInfo",
    "Sample",
    "SampleMisuse",
    "Sampler",
    "Scores",
    "Shuffled",
    "Source",
    "Split",
    "Step",
    "TruncatedPoisson",
    "Unit",
    "UnknownEvent",
    "Verdict",
    "__version__",
    "account",
    "aggregate",
    "audit",
    "calibrate",
]
