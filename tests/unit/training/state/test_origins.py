"""Whose code something is."""

from __future__ import annotations

import dataclasses
import json
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import discreet as dp
from discreet.training.state.origins import Origin, origin_of_class, origin_of_namespace


class Own:
    pass


@pytest.mark.parametrize(
    ("kind", "origin"),
    [
        (Own, Origin.OWN),
        (dataclasses.make_dataclass("Made", ["x"]), Origin.OWN),  # of the module `types`
        (types.new_class("Made"), Origin.OWN),
        (pytest.Session, Origin.INSTALLED),
        (dict, Origin.LIBRARY),
        (type(None), Origin.LIBRARY),
        (json.JSONDecoder, Origin.LIBRARY),
        (np.ndarray, Origin.LIBRARY),
        (torch.nn.Linear, Origin.LIBRARY),
        (dp.Plan, Origin.LIBRARY),
    ],
)
def test_a_class_is_of_its_file(kind: Any, origin: Origin) -> None:
    assert origin_of_class(kind) is origin


def test_a_file_of_the_users_may_have_the_name_of_one_of_pythons(tmp_path: Path) -> None:
    path = str(tmp_path / "sched.py")
    assert origin_of_namespace({"__file__": path, "__name__": "sched"}) is Origin.OWN
    assert origin_of_namespace({"__name__": "sched"}) is Origin.LIBRARY
    assert origin_of_namespace({"__name__": "__main__"}) is Origin.OWN
    assert origin_of_namespace({"__file__": json.__file__, "__name__": "x"}) is Origin.LIBRARY
    assert origin_of_namespace(vars(pytest)) is Origin.INSTALLED
