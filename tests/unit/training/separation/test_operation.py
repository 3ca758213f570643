"""What is read off the schema of an operation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.training import check
from discreet.training.engine import Engine
from discreet.training.separation import operation as operation_module
from discreet.training.separation.operation import operation_of
from discreet.training.separation.states import OneByOne
from discreet.training.separation.table import RULES

aten: Any = torch.ops.aten


def test_in_place_forms_go_by_the_rule_of_the_form_that_writes_nothing() -> None:
    written, plain = operation_of(aten.add_.Tensor), operation_of(aten.add.Tensor)
    assert (written.name, plain.name) == ("add", "add")
    assert (written.written, plain.written) == (["self"], [])
    assert written.rule is plain.rule is not None
    assert written.pointwise
    assert operation_of(aten.__iand__.Tensor).name == "__and__"
    assert operation_of(aten.add.out).written == ["out"]


def test_facts_are_read_once() -> None:
    assert operation_of(aten.add.Tensor) is operation_of(aten.add.Tensor)


def test_arguments_have_names_and_defaults() -> None:
    operation = operation_of(aten.add.Tensor)
    assert operation.argument_names == ["self", "other", "alpha"]
    assert operation.defaults == {"alpha": 1}
    assert operation.full_name == "add.Tensor"


@pytest.mark.parametrize(
    "view",
    [aten.view.default, aten.t.default, aten.select.int, aten.split.Tensor, aten.expand.default],
)
def test_views_need_no_rule(view: Any) -> None:
    operation = operation_of(view)
    assert operation.rule is None
    assert operation.is_view


@pytest.mark.parametrize(
    ("func", "fact"),
    [
        (aten.rand_like.default, "is_random"),
        (aten.bernoulli_.float, "is_random"),
        (aten.zeros_like.default, "fills"),
        (aten.empty_like.default, "uninitialised"),
        (aten.new_empty.default, "uninitialised"),
        (aten.poisson.default, "draws_by_value"),
        (aten.multinomial.default, "draws_by_value"),
        (aten.nonzero.default, "dynamic_shape"),
        (aten.masked_select.default, "dynamic_shape"),
        (aten.resize_.default, "is_geometry"),
        (aten.instance_norm.default, "composite"),
    ],
)
def test_special_kinds(func: Any, fact: str) -> None:
    assert getattr(operation_of(func), fact)


def test_p09_writes_that_the_schema_does_not_declare_are_known() -> None:
    assert operation_of(aten.native_batch_norm.default).undeclared == (
        "running_mean",
        "running_var",
    )
    assert operation_of(aten.native_batch_norm.default).written == []


def test_numbers_for_python_are_no_tensors() -> None:
    assert not operation_of(aten._local_scalar_dense.default).gives_tensors
    assert not operation_of(aten.equal.default).gives_tensors
    assert operation_of(aten.add_.Tensor).gives_tensors


def test_a_custom_operator_is_not_believed() -> None:
    """Neither a name of torch nor a tag of its own gives it a rule."""
    with torch.library._scoped_library("unbelieved", "DEF") as library:
        library.define("add(Tensor x) -> Tensor", tags=(torch.Tag.pointwise,))
        custom: Any = torch.ops.unbelieved
        operation = operation_of(custom.add.default)
    assert "add" in RULES or "pointwise" in RULES
    assert operation.rule is None
    assert not operation.pointwise
    assert operation.name == "unbelieved::add"


# --- versions of torch ---


def loss(model: Any, x: Tensor) -> Tensor:
    losses: Tensor = model(x).square().sum(1)
    return losses


def test_this_version_was_tried() -> None:
    operation_module.require_tested_version()
    assert torch.__version__.split("+")[0] in operation_module.TESTED


def test_on_another_version_records_go_one_by_one_and_the_message_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operation_module, "TESTED", frozenset({"1.0.0"}))
    with pytest.raises(OneByOne, match=r"not tested on torch .*, only on 1\.0\.0"):
        operation_module.require_tested_version()
    engine, batch = Engine(nn.Linear(3, 2)), torch.randn(5, 3)
    found = list(engine.passes(loss, batch, 5, 5))
    assert len(found) == 5
    assert "not tested on torch" in str(engine.one_by_one)
    assert "not tested on torch" in engine.explain()
    assert "not tested on torch" in str(check(nn.Linear(3, 2), loss, batch))


def test_a_local_build_counts_as_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    (version, *_) = operation_module.TESTED
    monkeypatch.setattr(torch, "__version__", f"{version}+cu999")
    operation_module.require_tested_version()
    monkeypatch.setattr(torch, "__version__", f"{version}.1")
    with pytest.raises(OneByOne):
        operation_module.require_tested_version()


def test_a_torch_that_does_not_keep_marks_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_module, "preserved", lambda: False)
    with pytest.raises(OneByOne, match="Python objects of storages"):
        operation_module.require_tested_version()
