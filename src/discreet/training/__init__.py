"""PyTorch: per-record gradients of any model, clipped, summed and noised. The only folder that
imports torch.
"""

from discreet.training.canaries import GradientCanaries
from discreet.training.check import Problem, Problems, check
from discreet.training.data.batch import Batch
from discreet.training.data.copies import augmented
from discreet.training.engine import Engine
from discreet.training.extending import (
    check_rule,
    check_separation,
    register_rule,
    register_separation,
)
from discreet.training.extras.averaging import WeightAverage
from discreet.training.extras.images import mirrored, shifted
from discreet.training.extras.losses import losses
from discreet.training.extras.scattering import Scattering
from discreet.training.run import PrivateRun
from discreet.training.shown.logs import CsvLog, Logged, TensorBoardLog
from discreet.training.tables.declared import SparseTable

__all__ = [
    "Batch",
    "CsvLog",
    "Engine",
    "GradientCanaries",
    "Logged",
    "PrivateRun",
    "Problem",
    "Problems",
    "Scattering",
    "SparseTable",
    "TensorBoardLog",
    "WeightAverage",
    "augmented",
    "check",
    "check_rule",
    "check_separation",
    "losses",
    "mirrored",
    "register_rule",
    "register_separation",
    "shifted",
]
