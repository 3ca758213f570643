"""Random bits, exact noise and exact draws, from one cryptographic source."""

from discreet.randomness.ahead import NoiseAhead
from discreet.randomness.gaussian import GaussianNoise, release
from discreet.randomness.source import Purpose, SharedSecret, Source, Stream

__all__ = ["GaussianNoise", "NoiseAhead", "Purpose", "SharedSecret", "Source", "Stream", "release"]
