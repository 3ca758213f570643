"""Attributes that are other ones during a pass: put back by the last, in whichever thread."""

import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest

from discreet.training.passes.replaced import Replaced


def new() -> str:
    return "new"


def old() -> str:
    return "old"


@pytest.fixture
def owner() -> SimpleNamespace:
    return SimpleNamespace(function=old)


@pytest.fixture
def replaced(owner: SimpleNamespace) -> Replaced:
    return Replaced([(owner, "function", new), (owner, "missing", new)])


def test_what_a_version_does_not_have_is_left_alone(
    owner: SimpleNamespace, replaced: Replaced
) -> None:
    with replaced:
        assert owner.function is new
        assert not vars(owner).keys() & {"missing"}
    assert owner.function is old


def test_the_last_that_leaves_puts_back(owner: SimpleNamespace, replaced: Replaced) -> None:
    with replaced:
        with replaced, replaced.installed():
            assert replaced.original(new) is old
        assert owner.function is new
    assert owner.function is old


def test_it_is_put_back_after_an_error(owner: SimpleNamespace, replaced: Replaced) -> None:
    with pytest.raises(ValueError, match="x"), replaced:
        raise ValueError("x")
    assert owner.function is old
    assert not replaced.here


def test_another_thread_is_in_no_pass(owner: SimpleNamespace, replaced: Replaced) -> None:
    seen: list[bool] = []
    with replaced:
        thread = threading.Thread(target=lambda: seen.append(replaced.here))
        thread.start()
        thread.join()
        assert replaced.here
    assert seen == [False]


def test_what_somebody_replaced_for_good_meanwhile_stays(
    owner: SimpleNamespace, replaced: Replaced
) -> None:
    def third() -> None: ...

    with replaced:
        owner.function = third
    assert owner.function is third


def test_modules_that_imported_a_built_in_by_name_get_it_too_for_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`from torch.utils.dlpack import to_dlpack` has an attribute of its own."""
    owner = SimpleNamespace(function=len)
    elsewhere = ModuleType("elsewhere")
    vars(elsewhere)["mine"] = sys.intern
    monkeypatch.setitem(sys.modules, "elsewhere", elsewhere)
    owner.function = sys.intern
    with Replaced([(owner, "function", new)]).installed():
        assert vars(elsewhere)["mine"] is new
    assert vars(elsewhere)["mine"] is sys.intern


def test_what_is_no_replacement_has_no_original(replaced: Replaced) -> None:
    with pytest.raises(LookupError):
        replaced.original(old)
