"""PyTorch: per-record gradients of any model, clipped, summed and noised. The only folder that imports torch."""

from discreet.training.augmentation import augmented, mirrored, shifted
from discreet.training.averaging import WeightAverage
from discreet.training.batch import Batch
from discreet.training.canaries import GradientCanaries
from discreet.training.check import Problem, Problems, check
from discreet.training.engine import Engine
from discreet.training.logs import CsvLog, Logged, TensorBoardLog
from discreet.training.losses import losses
from discreet.training.run import PrivateRun
from discreet.training.scattering import Scattering

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
    "TensorBoardLog",
    "WeightAverage",
    "augmented",
    "check",
    "losses",
    "mirrored",
    "shifted",
]
