"""How many numbers one sum in float32 may have."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Chunk", "chunk_for", "most_spread"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records and positions of one sum."""

    records: int
    positions: int


def most_spread(positions: int) -> float:
    """For now."""
    return 1.0 if positions == 1 else 2 * math.sqrt(positions)


def chunk_for(positions: int, _spread: float) -> Chunk:
    """For now."""
    return Chunk(128, 1) if positions == 1 else Chunk(max(1, 256 // positions), min(positions, 512))
