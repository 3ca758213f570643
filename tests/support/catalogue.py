"""All deliberate bugs of tests/mutations, gathered by a program; and the pitfalls that have none, with the reason."""

from __future__ import annotations

import importlib
from collections import Counter

from support.mutations import Mutation
from support.source import ROOT

PITFALLS = tuple(f"P{number:02}" for number in range(1, 49))


def catalogue() -> tuple[Mutation, ...]:
    """The list `MUTATIONS` of every file, file after file. Two bugs of one name are an error, as is a file without a list."""
    files = sorted((ROOT / "tests" / "mutations").glob("test_*_mutations.py"))
    found = [mutation for file in files for mutation in importlib.import_module(f"mutations.{file.stem}").MUTATIONS]
    twice = [name for name, count in Counter(mutation.name for mutation in found).items() if count > 1]
    if twice:
        raise ValueError(f"names of several mutations: {twice}")
    return tuple(found)


def without_mutation(mutations: tuple[Mutation, ...]) -> tuple[str, ...]:
    """Pitfalls that no bug of the catalogue reproduces."""
    return tuple(sorted(set(PITFALLS) - {number for mutation in mutations for number in mutation.pitfalls}))
