"""Generators are found wherever a data set holds them, and stand again where they stood."""

from __future__ import annotations

import functools
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from discreet.training.data.generators import OwnGenerators, is_own_module

OF_THE_MODULE = np.random.default_rng(1)


class Slotted:
    """A holder without a dictionary."""

    __slots__ = ("generator",)

    def __init__(self, generator: Any) -> None:
        self.generator = generator


def in_a_library() -> tuple[Any, Callable[[], float]]:
    """As pipelines of images keep them: in an object whose class is an installed package's."""
    pipeline = torch.nn.Identity()
    generator = random.Random(3)
    pipeline.kept = [{"of": generator}]  # type: ignore[assignment]
    return pipeline, generator.random


def of_numpy() -> tuple[Any, Callable[[], float]]:
    generator = np.random.default_rng(3)
    return Slotted(generator), generator.random


def of_older_numpy() -> tuple[Any, Callable[[], float]]:
    generator = np.random.RandomState(3)
    return functools.partial(generator.rand), generator.rand


def of_torch() -> tuple[Any, Callable[[], float]]:
    generator = torch.Generator()
    return {"here": (generator,)}, lambda: float(torch.rand((), generator=generator))


def of_the_module() -> tuple[Any, Callable[[], float]]:
    return lambda: [OF_THE_MODULE.random() for _ in range(2)], OF_THE_MODULE.random


@pytest.mark.parametrize("make", [in_a_library, of_numpy, of_older_numpy, of_torch, of_the_module])
def test_generators_stand_where_they_stood(make: Any) -> None:
    root, draw = make()
    generators = OwnGenerators(root)
    drawn = [draw(), draw()]
    generators.put_back()
    assert [draw(), draw()] == drawn


def test_the_data_themselves_are_not_searched() -> None:
    generator = random.Random(3)
    generators = OwnGenerators([generator] * 5_000)
    first = generator.random()
    generators.put_back()
    assert generator.random() != first


def test_modules_of_users_are_told_from_installed_ones() -> None:
    assert is_own_module(__name__)
    assert not any(map(is_own_module, ["random", "numpy.random", torch.nn.__name__]))
    assert types.__name__ == "types"
    assert not is_own_module(types.__name__)
