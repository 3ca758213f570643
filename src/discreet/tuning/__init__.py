"""Tuning as the guide describes it, with every use of private data charged, and a record of it for
the report.
"""

from discreet.tuning.accuracy import AccuracyTuning, tune_for_accuracy
from discreet.tuning.clipping import ClipSearch, clip_search
from discreet.tuning.compute import ComputeTuning, tune_for_compute
from discreet.tuning.data import Data, Private, Public, Synthetic
from discreet.tuning.record import Method, Trial, Tuning, TuningKind
from discreet.tuning.score import planned_trials
from discreet.tuning.settings import Settings

__all__ = [
    "AccuracyTuning",
    "ClipSearch",
    "ComputeTuning",
    "Data",
    "Method",
    "Private",
    "Public",
    "Settings",
    "Synthetic",
    "Trial",
    "Tuning",
    "TuningKind",
    "clip_search",
    "planned_trials",
    "tune_for_accuracy",
    "tune_for_compute",
]
