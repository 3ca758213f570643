"""The vocabulary of what can happen to data: how a sample was drawn, and what was asked of it.

Constitution of this package:

1.  An event is never removed, renamed or given another meaning. A new meaning is a new name.
2.  The vocabulary is closed. Whoever reads an event it does not know refuses; nobody subclasses.
3.  An event holds public values only: what was planned and executed, never what was seen in the
    data (no realised batch size, no norm, no loss, no key).
4.  An event is frozen, hashable and equal by value. Numbers are normalised to float64 or int on
    construction, so 1, 1.0, np.float32(1) and np.int64(1) make one event.
5.  **One convention for sensitivity, for every adjacency**: it is the largest change of the sum (L2
    for Gaussian, L1 for Laplace, of any score for a choice) when one unit of the sample is *added,
    removed or zeroed out*. Replace-one is one removal and one addition; the accountant, and nobody
    else, derives it from this number.
6.  A `Step` is one draw of a sampling policy with every query asked of that draw. A count of k
    means that the step was executed k times with independent draws and independent noise;
    composition of k equal steps is therefore always k-fold composition. Where a policy draws once
    per epoch (`Shuffled`, `BallsInBins`), the step is the epoch.

References: [McMahan2018, sections 3, 5 and 6] resolved in docs/references.bib.
"""

from discreet.ledger.events.event import Event
from discreet.ledger.events.policies import (
    SAMPLINGS,
    BallsInBins,
    Everything,
    FixedSize,
    Poisson,
    Sampling,
    Shuffled,
    TruncatedPoisson,
)
from discreet.ledger.events.queries import (
    QUERIES,
    CorrelatedGaussianSum,
    ExponentialChoice,
    GaussianSum,
    LaplaceSum,
    Query,
    RandomizedResponse,
)
from discreet.ledger.events.step import EVENTS, Step

__all__ = [
    "EVENTS",
    "QUERIES",
    "SAMPLINGS",
    "BallsInBins",
    "CorrelatedGaussianSum",
    "Event",
    "Everything",
    "ExponentialChoice",
    "FixedSize",
    "GaussianSum",
    "LaplaceSum",
    "Poisson",
    "Query",
    "RandomizedResponse",
    "Sampling",
    "Shuffled",
    "Step",
    "TruncatedPoisson",
]
