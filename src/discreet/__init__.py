"""discreet: differential privacy for iterative training.

An epsilon you can trust, with almost no change to your code, at a measured cost in speed. This
module needs no torch.
"""

from discreet.accounting import account
from discreet.aggregation import Aggregator
from discreet.budget import Budget, Filter, Odometer
from discreet.ledger import Everything, FixedSize, Ledger, Poisson
from discreet.mechanisms import AdaptiveClip, Gaussian, Groups, Joint, Normalised, NotPrivate, Split
from discreet.plan import Phase, Plan, Programme
from discreet.report import Report
from discreet.sampling import Owners, Sampler
from discreet.units import Adjacency, Guarantee, Numerics, Unit
from discreet.verdict import audit

__version__ = "0.1.0"

__all__ = [
    "AdaptiveClip",
    "Adjacency",
    "Aggregator",
    "Budget",
    "Everything",
    "Filter",
    "FixedSize",
    "Gaussian",
    "Groups",
    "Guarantee",
    "Joint",
    "Ledger",
    "Normalised",
    "NotPrivate",
    "Numerics",
    "Odometer",
    "Owners",
    "Phase",
    "Plan",
    "Poisson",
    "Programme",
    "Report",
    "Sampler",
    "Split",
    "Unit",
    "__version__",
    "account",
    "audit",
]
