"""Options that several commands share: numbers are finite, and no budget is named afterwards."""

import pytest
import typer

from discreet.cli.options import finite_option, refuse_budget, whole_option
from discreet.errors import DiscreetError
from support.command import in_process


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "", "one", "1,5"])
def test_what_is_no_finite_number_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="a finite number"):
        finite_option(text)


@pytest.mark.parametrize("text", ["1.0", "1e3", "", "ten"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="a whole number"):
        whole_option(text)


def test_a_long_text_is_not_repeated_in_full() -> None:
    with pytest.raises(typer.BadParameter) as refused:
        finite_option("x" * 10_000)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("budget", [("1", None), (None, "1e-6"), ("1", "1e-6")])
def test_p38_a_budget_named_afterwards_is_refused(budget: tuple[str | None, str | None]) -> None:
    with pytest.raises(DiscreetError, match="proves nothing"):
        refuse_budget(*budget)
    refuse_budget(None, None)


def test_options_of_earlier_versions_are_refused_and_not_shown() -> None:
    assert "--budget-epsilon" not in in_process("report", "--help").out
    done = in_process("report", "no.ledger", "--budget-epsilon", "3")
    assert done.code == 2
    assert "a row of the ledger" in done.err
