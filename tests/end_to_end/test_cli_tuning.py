"""`discreet report --tuning`: shown where it fits the ledger, refused where it does not."""

from pathlib import Path

import discreet as dp
from discreet.tuning import tune_for_compute
from support.command import PLAN as TRAINED
from support.command import contents, executed, many
from support.tunings import BUDGET, PLAN, RATES, honest, private, public_record

REPORT = ("report", "tuned.ledger")


def test_records_of_tuning_are_shown_or_refused(tmp_path: Path) -> None:
    with dp.Ledger.open(tmp_path / "tuned.ledger", budget=BUDGET) as ledger:
        data = private(ledger=ledger)
        tune_for_compute(honest(data), PLAN, learning_rates=RATES, data=data).tuning.save(
            tmp_path / "private.json"
        )
    public_record().save(tmp_path / "public.json")
    executed(tmp_path / "other.ledger", TRAINED).close()
    (tmp_path / "list.json").write_text("[]\n")
    before = contents(tmp_path)
    both, none, other, broken, missing, own = many(
        [
            (*REPORT, "--tuning", "public.json", "--tuning", "private.json"),
            REPORT,
            ("report", "other.ledger", "--delta", "1e-6", "--tuning", "private.json"),
            (*REPORT, "--tuning", "list.json"),
            (*REPORT, "--tuning", "missing.json"),
            (*REPORT, "--tuning", "public.json", "--out", "public.json", "--force"),
        ],
        cwd=tmp_path,
    )
    assert (both.code, both.err) == (0, "")
    assert "3 trials on private data “patients”" in both.out
    assert "public data “digits”" in both.out
    assert "Tuning: not stated" in none.out
    assert "Tuning: not stated" not in both.out
    assert [one.code for one in (other, broken, missing, own)] == [2, 2, 2, 2]
    assert "charged nothing here" in other.err
    assert "a record of tuning (JSON)" in broken.err
    assert contents(tmp_path) == before
