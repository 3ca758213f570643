"""All cases: importing this module registers them."""

from __future__ import annotations

from . import (  # noqa: F401  (each registers its cases)
    cases_algebra,
    cases_attack,
    cases_attack_data,
    cases_attack_fifth,
    cases_attack_fourth,
    cases_attack_memory,
    cases_attack_objects,
    cases_attack_places,
    cases_attack_sixth_data,
    cases_attack_third,
    cases_backward,
    cases_copies,
    cases_data,
    cases_doors,
    cases_entries,
    cases_foreign,
    cases_loops,
    cases_losses,
    cases_places,
    cases_random,
    cases_schedules,
    cases_shapes,
    cases_shifts,
    cases_sound,
    cases_state,
    cases_state_elsewhere,
)
from .scenes import REGISTRY, Case

CASES: tuple[Case, ...] = tuple(REGISTRY.cases.values())
