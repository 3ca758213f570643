"""Checkpoints: a run goes on where it was, on the same ledger, with other randomness, and nothing
is executed to read them.
"""

import enum
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.randomness import Source
from discreet.training import PrivateRun
from discreet.training.checkpoint import Checkpoint

RECORDS, STEPS = 24, 10
OPEN = dp.Odometer(delta=1e-5)  # for further runs, whatever decided on them


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(5)
    return TensorDataset(
        torch.randn(RECORDS, 3, generator=generator), torch.randn(RECORDS, 2, generator=generator)
    )


def network(width: int = 4) -> nn.Module:
    torch.manual_seed(6)
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2))


def loss(model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
    x, y = batch
    return mse_loss(model(x), y, reduction="none").sum(1), {
        "metric/nothing": x.new_zeros(len(x), 1)
    }


def plan(*, steps: int = STEPS, policy: Any = None, clip_norm: float = 1.0) -> dp.Plan:
    return dp.Plan(
        sampler=dp.Sampler(policy or dp.Poisson(0.5), records=RECORDS, steps=steps),
        mechanism=dp.Groups(
            {
                "grad/*": dp.AdaptiveClip(
                    dp.Gaussian(clip_norm, 1.0), quantile=0.5, count_noise_std=5.0
                ),
                "metric/*": dp.Gaussian(1.0, 4.0),
            }
        ),
    )


class Training:
    """A model, an optimizer, a scheduler and a run, as a user has them."""

    def __init__(
        self, ledger: Any, its: dp.Plan | None = None, model: nn.Module | None = None, **more: Any
    ) -> None:
        self.model = model or network()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.run = PrivateRun(
            self.model, its or plan(), ledger=ledger, statistics={"metric/nothing": 1}, **more
        )
        self.noise: list[float] = []

    def train(self, steps: int | None = None) -> "Training":
        """So many steps, or to the end."""
        for batch in self.run.batches(data()):
            self.noise.append(float(self.run.backward(loss, batch)["metric/nothing"][0]))
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.scheduler.step()
            if steps is not None and len(self.noise) == steps:
                break
        return self

    def save(self, path: Path) -> "Training":
        self.run.save(path, optimizer=self.optimizer, scheduler=self.scheduler)
        return self

    def load(self, path: Path) -> "Training":
        self.run.load(path, optimizer=self.optimizer, scheduler=self.scheduler)
        return self

    def everything(self) -> list[Any]:
        """Whatever could be half-loaded."""
        moments = [part for state in self.optimizer.state.values() for part in state.values()]
        values = [value.clone() for value in (*self.model.state_dict().values(), *moments)]
        return [
            *(value.tolist() for value in values),
            self.scheduler.last_epoch,
            dict(self.run.state),
            self.run.step,
        ]


def charged(ledger: dp.Ledger) -> list[int]:
    return [charge.count for charge in ledger.charges()]


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "a.ledger", tmp_path / "a.checkpoint"
    with dp.Ledger.open(path) as ledger:
        first = Training(ledger).train(4).save(checkpoint)
        assert charged(ledger) == [4]
    with dp.Ledger.open(path) as ledger:
        second = Training(ledger).load(checkpoint)
        assert second.everything() == first.everything()
        second.train()
        assert second.run.step == second.scheduler.last_epoch == STEPS
        assert charged(ledger) == [4, STEPS - 4]
        assert second.run.state["grad/*"] != first.run.state["grad/*"]


def test_p20_a_resumed_run_draws_other_noise_and_other_samples(tmp_path: Path) -> None:
    checkpoint = tmp_path / "a.checkpoint"
    with dp.Ledger.open(tmp_path / "a.ledger", budget=OPEN) as ledger:
        Training(ledger).save(checkpoint)
        noise = [Training(ledger).load(checkpoint).train().noise for _ in range(3)]
    assert len(np.unique(noise)) == 3 * STEPS


def test_p41_a_branch_is_a_new_release_and_is_charged(tmp_path: Path) -> None:
    checkpoint = tmp_path / "a.checkpoint"
    with dp.Ledger.open(tmp_path / "a.ledger", budget=OPEN) as ledger:
        first = Training(ledger)
        first.train(3).save(checkpoint)
        spent = first.run.guarantee().upper
        for branch in range(2):
            Training(ledger).load(checkpoint).train()
            assert charged(ledger) == [3, *[STEPS - 3] * (branch + 1)]
        assert first.run.guarantee().upper > spent


def test_p41_on_a_list_a_second_branch_is_refused_and_nothing_is_charged(tmp_path: Path) -> None:
    checkpoint = tmp_path / "a.checkpoint"
    with dp.Ledger.open(tmp_path / "a.ledger") as ledger:
        Training(ledger).train(3).save(checkpoint)
        Training(ledger).load(checkpoint).train()
        head = ledger.head()
        with pytest.raises(dp.errors.BudgetExceeded, match="of which 0 fit"):
            Training(ledger).load(checkpoint).train()
        assert ledger.head() == head
        assert charged(ledger) == [3, STEPS - 3]


def test_p18_no_key_is_in_a_checkpoint(tmp_path: Path) -> None:
    key = bytes(range(100, 132))
    with dp.Ledger.open(tmp_path / "a.ledger") as ledger:
        Training(ledger, source=Source.unsafe_test_key(key)).train(2).save(tmp_path / "c")
    content = Checkpoint.read(tmp_path / "c")
    assert set(content.objects) == {"model", "optimizer", "scheduler"}
    with zipfile.ZipFile(tmp_path / "c") as parts:
        assert all(
            key not in parts.read(name) and key.hex().encode() not in parts.read(name)
            for name in parts.namelist()
        )


def test_everything_is_refused_that_does_not_belong_and_nothing_is_half_loaded(
    tmp_path: Path,
) -> None:
    checkpoint = tmp_path / "a.checkpoint"
    with (
        dp.Ledger.open(tmp_path / "a.ledger", budget=OPEN) as ledger,
        dp.Ledger.open(tmp_path / "b.ledger") as another,
    ):
        Training(ledger).train(3).save(checkpoint)
        for wrong, message in (
            (Training(another), "the ledger that the checkpoint was saved with"),
            (Training(ledger, plan(steps=STEPS + 1)), "another plan"),
            (Training(ledger, plan(clip_norm=2.0)), "another plan"),
            (Training(ledger, model=network(5)), "another plan"),
        ):
            before = wrong.everything()
            with pytest.raises(dp.errors.CheckpointError, match=message):
                wrong.load(checkpoint)
            assert wrong.everything() == before
        fewer = Training(ledger)
        with pytest.raises(
            dp.errors.CheckpointError,
            match="the objects that were saved: model, optimizer, scheduler",
        ):
            fewer.run.load(checkpoint, optimizer=fewer.optimizer)
        begun = Training(ledger).train(1)
        with pytest.raises(dp.errors.SampleMisuse, match="before the first batch"):
            begun.load(checkpoint)


def test_a_state_that_an_object_refuses_leaves_all_objects_as_they_were(tmp_path: Path) -> None:
    with dp.Ledger.open(tmp_path / "a.ledger") as ledger:
        Training(ledger).train(3).save(tmp_path / "c")
        other = Training(ledger)
        other.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
        before = other.everything()
        with pytest.raises(dp.errors.CheckpointError, match="fits the optimizer"):
            other.load(tmp_path / "c")
        assert other.everything() == before


def test_an_older_copy_of_the_ledger_is_refused(tmp_path: Path) -> None:
    """It would not say what was released since."""
    path, copy = tmp_path / "a.ledger", tmp_path / "copy.ledger"
    with dp.Ledger.open(path, budget=OPEN) as ledger:
        Training(ledger).train(2)
    shutil.copy(path, copy)
    with dp.Ledger.open(path) as ledger:
        Training(ledger).train(3).save(tmp_path / "c")
    with (
        dp.Ledger.open(copy) as rolled_back,
        pytest.raises(dp.errors.CheckpointError, match="an older copy"),
    ):
        Training(rolled_back).load(tmp_path / "c")


class Trap:
    """Executes something when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("damage", ["missing", "empty", "text", "cut", "trap", "foreign", "folder"])
def test_p46_a_damaged_or_hostile_file_is_refused_and_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "c"
    ledger = dp.Ledger.in_memory()
    Training(ledger).save(path)
    match damage:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("a text")
        case "cut":
            path.write_bytes(path.read_bytes()[:-100])
        case "trap":
            torch.save({"format": Trap()}, path)
        case "foreign":
            torch.save({"model": {}}, path)
        case "folder":
            path.unlink()
            path.mkdir()
    with pytest.raises(dp.errors.CheckpointError):
        Training(ledger).load(path)
    assert not (tmp_path / "executed").exists()


def test_what_could_not_be_read_back_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    its = Training(dp.Ledger.in_memory())
    path = tmp_path / "c"
    its.save(path)
    before = path.read_bytes()

    class Odd:
        def state_dict(self) -> Any:
            return {"fine": [1, 2.0, None, "x", np.float64(3.0)], "function": print}

        def load_state_dict(self, state: Any, /) -> None: ...

    with pytest.raises(dp.errors.CheckpointError, match=r"odd\.function"):
        its.run.save(path, others={"odd": Odd()})
    with pytest.raises(dp.errors.ParameterError, match="names of their own"):
        its.run.save(path, others={"model": Odd()})
    with pytest.raises(dp.errors.CheckpointError, match="to write"):
        its.run.save(tmp_path / "no folder" / "c")
    assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [path]


def test_numbers_of_numpy_come_back_as_numbers(tmp_path: Path) -> None:
    class Kept:
        value: Any = np.float64(0.1)

        def state_dict(self) -> Any:
            return {"value": self.value, "parts": (1, [True])}

        def load_state_dict(self, state: Any, /) -> None:
            self.value = state

    ledger, kept = dp.Ledger.in_memory(), Kept()
    Training(ledger).run.save(tmp_path / "c", others={"kept": kept})
    other = Kept()
    run = Training(ledger).run
    run.load(tmp_path / "c", others={"kept": other})
    assert other.value == {"value": 0.1, "parts": (1, [True])}
    assert type(other.value["value"]) is float


def test_a_checkpoint_lies_between_two_steps(tmp_path: Path) -> None:
    its = Training(dp.Ledger.in_memory(), plan(policy=dp.ledger.BallsInBins(3), steps=2))
    batches = its.run.batches(data())
    for number in range(6):
        batch = next(batches)
        if number % 3:
            with pytest.raises(dp.errors.SampleMisuse, match="between two steps"):
                its.save(tmp_path / "c")
        its.run.backward(loss, batch)
        if number % 3 < 2:
            with pytest.raises(dp.errors.SampleMisuse, match="every 3 batches"):
                its.save(tmp_path / "c")
        else:
            its.save(tmp_path / "c")
            assert Checkpoint.read(tmp_path / "c").step == its.run.step == number // 3 + 1


def test_a_finished_run_has_no_batches_left_and_charges_nothing(tmp_path: Path) -> None:
    ledger = dp.Ledger.in_memory()
    Training(ledger).train().save(tmp_path / "c")
    assert Training(ledger).load(tmp_path / "c").train().noise == []
    assert charged(ledger) == [STEPS]


def test_private_batch_norm_goes_on_with_the_released_statistics(tmp_path: Path) -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    its = dp.Plan(
        sampler=dp.Sampler(dp.Poisson(0.5), records=RECORDS, steps=6),
        mechanism=dp.Groups(
            {
                "grad/*": dp.Gaussian(1.0, 1.0),
                "bn/*": dp.Gaussian(1.0, 1.0),
                "metric/*": dp.Gaussian(1.0, 1.0),
            }
        ),
    )
    ledger = dp.Ledger.in_memory(budget=OPEN)
    first = Training(ledger, its, model()).train(3).save(tmp_path / "c")
    second = Training(ledger, its, model()).load(tmp_path / "c")
    assert torch.equal(*(it.model.state_dict()["1.running_mean"] for it in (first, second)))
    assert int(second.model.state_dict()["1.num_batches_tracked"]) == 3
    second.train()
    assert int(second.model.state_dict()["1.num_batches_tracked"]) == 6
    found = torch.load(tmp_path / "c")
    found["objects"]["model"]["1.running_var"] -= 9.0
    torch.save(found, tmp_path / "c")
    third = Training(ledger, its, model())
    before = third.everything()
    with pytest.raises(dp.errors.CheckpointError, match="fits the model"):
        third.load(tmp_path / "c")
    assert third.everything() == before
    third.train()


def test_ctrl_c_in_the_middle_of_a_batch_does_not_lose_the_steps_before(tmp_path: Path) -> None:
    ledger = dp.Ledger.in_memory(budget=OPEN)
    its = Training(ledger)

    def interrupted(model: nn.Module, batch: Any) -> Any:
        if its.run.step == 3:
            raise KeyboardInterrupt
        return loss(model, batch)

    with pytest.raises(KeyboardInterrupt):
        for batch in its.run.batches(data()):
            its.run.backward(interrupted, batch)
            its.optimizer.step()
            its.scheduler.step()
    its.save(tmp_path / "c")
    assert charged(ledger) == [4]  # the batch that was lost was drawn
    resumed = Training(ledger).load(tmp_path / "c")
    assert resumed.run.step == 3
    assert len(resumed.train().noise) == STEPS - 3
    assert sum(charged(ledger)) == STEPS + 1


@pytest.mark.parametrize("what", ["ledger", "link", "text", "pipe"])
def test_a_checkpoint_replaces_nothing_but_a_checkpoint(tmp_path: Path, what: str) -> None:
    """A wrong name must not cost the ledger."""
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path) as ledger:
        its = Training(ledger).train(3)
        place = path if what == "ledger" else tmp_path / what
        if what == "link":
            place.symlink_to(path)
        if what == "text":
            place.write_text("notes")
        if what == "pipe":
            os.mkfifo(place)
        before = place.stat()
        with pytest.raises(dp.errors.CheckpointError, match="something else"):
            its.save(place)
        assert place.stat()[:4] == before[:4]  # the same file
        assert charged(ledger.verify()) == [3]


class Kept:
    """An object with a state of one value."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def state_dict(self) -> Any:
        return self.value

    def load_state_dict(self, state: Any, /) -> None:
        self.value = state


class Word(enum.StrEnum):
    A = "a"


def test_what_was_written_can_be_read_whatever_class_a_text_or_a_number_is_of(
    tmp_path: Path,
) -> None:
    ledger = dp.Ledger.in_memory()
    odd = {
        "n": np.int64(3),
        "f": np.float32(0.5),
        "b": np.bool_(1),
        "s": np.str_("x"),
        "w": Word.A,
        Word.A: 1,
        np.str_("k"): 2,
    }
    Training(ledger).run.save(tmp_path / "c", others={"kept": Kept(odd)})
    kept = Kept()
    Training(ledger).run.load(tmp_path / "c", others={"kept": kept})
    assert kept.value == {"n": 3, "f": 0.5, "b": True, "s": "x", "w": "a", "a": 1, "k": 2}
    assert {type(value) for value in (*kept.value, *kept.value.values())} <= {str, int, float, bool}

    class Own(Tensor):
        pass

    with pytest.raises(dp.errors.CheckpointError, match="Own in kept"):
        Training(ledger).run.save(
            tmp_path / "c", others={"kept": Kept(torch.zeros(2).as_subclass(Own))}
        )


def test_p42_a_part_of_a_tensor_does_not_take_the_rest_into_the_file(tmp_path: Path) -> None:
    """By itself torch writes all memory that a tensor is a part of."""
    rest = torch.full((1000,), 3.0)
    Training(dp.Ledger.in_memory()).run.save(
        tmp_path / "c", others={"kept": Kept({"first": rest[:1]})}
    )
    assert torch.load(tmp_path / "c")["objects"]["kept"]["first"].untyped_storage().nbytes() == 4


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", {"grad/*": 1e30}),
        ("state", {"grad/*": 1e-300}),
        ("state", {"grad/*": -1.0}),
        ("state", {}),
        ("objects", {1: {}, "model": {}}),
        ("objects", [1, 2]),
        ("step", True),
        ("step", STEPS + 1),
        ("head", "0" * 64),
    ],
)
def test_p46_values_that_no_run_writes_are_refused_before_anything_is_charged(
    tmp_path: Path, field: str, value: Any
) -> None:
    ledger = dp.Ledger.in_memory()
    its = Training(ledger)
    its.save(tmp_path / "c")
    torch.save({**torch.load(tmp_path / "c"), field: value}, tmp_path / "c")
    before = its.everything()
    with pytest.raises((dp.errors.CheckpointError, dp.errors.NumericsError)) as refused:
        its.load(tmp_path / "c")
    assert "weights_only" not in str(refused.value)
    assert its.everything() == before
    assert ledger.runs() == ()


def test_an_interrupt_while_loading_leaves_all_objects_as_they_were(tmp_path: Path) -> None:
    class Slow(Kept):
        def load_state_dict(self, state: Any, /) -> None:
            raise KeyboardInterrupt

    ledger = dp.Ledger.in_memory()
    Training(ledger).train(3).run.save(tmp_path / "c", others={"slow": Slow(1)})
    other = Training(ledger)
    before = other.everything()
    with pytest.raises(KeyboardInterrupt):
        other.run.load(tmp_path / "c", others={"slow": Slow(1)})
    assert other.everything() == before
    with pytest.raises(dp.errors.ParameterError, match="'slow'"):
        other.run.load(tmp_path / "c", others={"slow": 3})  # type: ignore[dict-item]
