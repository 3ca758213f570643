"""Random bits, exact noise and exact draws, from one cryptographic source."""

from discreet.randomness.source import Purpose, SharedSecret, Source, Stream

__all__ = ["Purpose", "SharedSecret", "Source", "Stream"]
