"""Tables of a run: the model that is trained is the one that noise on all rows gives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.errors import ModelError, ParameterError
from discreet.randomness import Source
from discreet.training import GradientCanaries, PrivateRun, SparseTable
from discreet.training.tables.tables import RunTables
from unit.training.test_run import KEY, keyed, plan

RECORDS, ROWS, WIDTH, RATE = 40, 60, 4, 0.5
TABLES = {"table.weight": SparseTable(RATE)}
Use = Callable[[nn.Embedding, Tensor], Tensor]


class Network(nn.Module):
    """Rows of a table, averaged, and a head; `extra` is added to the scores."""

    def __init__(self, extra: Use | None = None) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.table = nn.Embedding(ROWS, WIDTH)
        self.head = nn.Linear(WIDTH, 2)
        self.extra = extra

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.head(self.table(ids).mean(1))
        return scores if self.extra is None else scores + self.extra(self.table, ids)


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(ROWS // 2, (RECORDS, 3), generator=generator)
    return TensorDataset(ids, torch.randint(2, (RECORDS,), generator=generator))


def loss(model: nn.Module, batch: Any) -> Tensor:
    ids, labels = batch
    return cross_entropy(model(ids), labels, reduction="none")


def flat_loss(model: nn.Module, batch: Any) -> Tensor:
    """Without a gradient: what is released is noise alone."""
    return loss(model, batch) * 0.0


def trained(
    its: dp.Plan,
    tables: Any = None,
    *,
    rates: list[float] | None = None,
    its_loss: Any = loss,
    each: Callable[[PrivateRun, nn.Module], None] = lambda *_: None,
) -> nn.Module:
    """A network after all steps: by tables, or with noise on all rows and torch's SGD."""
    model = Network()
    run = keyed(model, its, tables=tables)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for number, batch in enumerate(run.batches(data())):
        optimizer.param_groups[0]["lr"] = RATE if rates is None else rates[number]
        run.backward(its_loss, batch)
        optimizer.step()
        optimizer.zero_grad()
        each(run, model)
    run.close()
    return model


def weights(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def noisy(noise_std: float = 4.0, **more: Any) -> dp.Plan:
    return plan(dp.Groups({"grad/*": dp.Gaussian(1.0, noise_std)}), **more)


# --- the same model ---


@pytest.mark.parametrize("microbatch", [None, 7])
def test_with_hardly_any_noise_the_model_is_that_of_sgd(microbatch: int | None) -> None:
    model = Network()
    run = keyed(model, plan(steps=4), tables=TABLES, microbatch=microbatch)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=RATE)
    for batch in run.batches(data()):
        run.backward(loss, batch)
        optimizer.step()
        optimizer.zero_grad()
    assert torch.allclose(weights(model), weights(trained(plan(steps=4))), atol=2e-5)
    assert not torch.allclose(weights(model), weights(Network()), atol=1e-2)


def test_learning_rates_may_change() -> None:
    rates = [RATE, RATE / 2, 0.0, RATE / 64]
    model = trained(plan(steps=4), {"table.weight": SparseTable(rates)}, rates=rates)
    assert torch.allclose(weights(model), weights(trained(plan(steps=4), rates=rates)), atol=2e-5)


def test_leaves_with_scales_of_their_own() -> None:
    scales = {"grad/table.weight": 4.0, "grad/*": 0.25}
    groups = dp.Groups({"grad/*": dp.Joint(1.0, 1e-5, scales)})
    its = plan(groups, steps=3)
    assert torch.allclose(weights(trained(its, TABLES)), weights(trained(its)), atol=2e-5)


def test_settling_in_between_changes_no_step() -> None:
    model = trained(plan(steps=4), TABLES, each=lambda run, _: run.settle())
    assert torch.allclose(weights(model), weights(trained(plan(steps=4))), atol=2e-5)


def test_a_change_of_mode_is_tried_out_on_settled_tables() -> None:
    """On NaN the rules would not agree with torch, and records would be computed one by one."""

    def turned(run: PrivateRun, model: nn.Module) -> None:
        model.train(run.step % 2 == 0)

    its = plan(steps=4)
    model = trained(its, TABLES, each=turned)
    assert torch.allclose(weights(model), weights(trained(its)), atol=2e-5)


@pytest.mark.parametrize("settled", [False, True])
def test_p25_rows_have_the_noise_of_all_steps_whether_they_were_read_or_not(settled: bool) -> None:
    """The standard deviation of a step is RATE * 4.0 / 20; a scale that is 20 % off is ten standard
    errors away.
    """

    def settle(run: PrivateRun, _: nn.Module) -> None:
        if settled:
            run.settle()

    its = noisy(steps=16)
    model = trained(its, TABLES, its_loss=flat_loss, each=settle)
    noise = (model.table.weight - Network().table.weight).detach()  # type: ignore[union-attr, operator]
    expected = RATE * 4.0 / its.expected_batch_size * 4.0
    for half in (noise[: ROWS // 2], noise[ROWS // 2 :]):
        assert 0.75 < float(half.std()) / expected < 1.25


def test_a_step_without_records_has_noise_too() -> None:
    its = noisy(policy=dp.Poisson(1e-9), steps=4)
    model = trained(its, TABLES)
    noise = (model.table.weight - Network().table.weight).detach()  # type: ignore[union-attr, operator]
    expected = RATE * 4.0 / its.expected_batch_size * 2.0
    assert 0.75 < float(noise.std()) / expected < 1.25


# --- hidden between steps, settled where it matters ---


def test_the_parameter_holds_nan_between_steps_and_never_a_gradient() -> None:
    def hidden(_: PrivateRun, model: nn.Module) -> None:
        assert bool(model.table.weight.isnan().all())  # type: ignore[union-attr, operator]
        assert model.table.weight.grad is None  # type: ignore[union-attr]
        with pytest.raises(RuntimeError):
            model.load_state_dict(Network().state_dict())

    model = trained(noisy(), TABLES, each=hidden)
    assert not bool(weights(model).isnan().any())


@pytest.mark.parametrize("of", ["", "table"])
def test_a_state_dict_has_all_noise_in(of: str) -> None:
    def settled(_: PrivateRun, model: nn.Module) -> None:
        state = model.get_submodule(of).state_dict()
        assert not any(bool(values.isnan().any()) for values in state.values())
        assert not bool(model.table.weight.isnan().any())  # type: ignore[union-attr, operator]

    trained(noisy(), TABLES, each=settled)


def test_a_loop_that_breaks_off_leaves_a_whole_table() -> None:
    model = Network()
    run = keyed(model, noisy(), tables=TABLES)
    for batch in run.batches(data()):
        run.backward(loss, batch)
        break
    run.close()
    assert not bool(weights(model).isnan().any())
    assert not model.table._state_dict_pre_hooks


def test_a_checkpoint_holds_settled_rows_and_a_run_goes_on_from_it(tmp_path: Path) -> None:
    model, its, ledger = Network(), plan(steps=4), dp.Ledger.in_memory()
    source = Source.unsafe_test_key(KEY)
    run = PrivateRun(model, its, ledger=ledger, source=source, tables=TABLES)
    for batch in run.batches(data()):
        run.backward(loss, batch)
        if run.step == 2:
            run.save(tmp_path / "checkpoint")
            break
    run.close()

    resumed = Network()
    again = PrivateRun(resumed, its, ledger=ledger, source=source, tables=TABLES)
    assert again.load(tmp_path / "checkpoint", lost="power failure") == 2
    assert torch.equal(weights(resumed), weights(model))
    for batch in again.batches(data()):
        again.backward(loss, batch)
    again.close()
    assert not torch.equal(weights(resumed)[: ROWS * WIDTH], weights(model)[: ROWS * WIDTH])


# --- what is refused ---


def _without_gradients(table: nn.Embedding, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return table(ids).mean(1)[:, :2]  # type: ignore[no-any-return]


OTHER_USES: dict[str, Use] = {
    "tied": lambda table, ids: one_hot(ids, ROWS).float().mean(1) @ table.weight[:, :2],
    "all rows": lambda table, _: table.weight.sum(),
    "indexing": lambda table, ids: table.weight[ids].mean(1)[:, :2],
    "public ids": lambda table, _: table(torch.arange(3)).mean(0)[:2],
    "data": lambda table, _: table.weight.data.sum(),
    "without gradients": _without_gradients,
}


@pytest.mark.parametrize("use", OTHER_USES)
def test_any_other_use_of_a_table_is_refused_by_name(use: str) -> None:
    run = keyed(Network(OTHER_USES[use]), noisy(), tables=TABLES)
    with pytest.raises(ModelError, match=r"the table table\.weight"):
        for batch in run.batches(data()):
            run.backward(loss, batch)


def test_the_shape_of_a_table_may_be_used() -> None:
    def scaled(table: nn.Embedding, _: Tensor) -> Tensor:
        return torch.tensor(float(table.weight.shape[0] * table.weight.size(1)))

    run = keyed(Network(scaled), noisy(), tables=TABLES)
    for batch in run.batches(data()):
        run.backward(loss, batch)


def test_records_one_by_one_are_refused() -> None:
    run = keyed(Network(), noisy(), tables=TABLES, microbatch=1)
    with pytest.raises(ModelError, match="one by one: a pass over one row"):
        for batch in run.batches(data()):
            run.backward(loss, batch)


@pytest.mark.parametrize("name", ["table", "head.bias", "nothing"])
def test_what_is_no_table_is_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="matrices of float32"):
        keyed(Network(), noisy(), tables={name: SparseTable(RATE)})


def test_a_table_has_fixed_noise() -> None:
    adaptive = dp.Groups(
        {"grad/*": dp.AdaptiveClip(dp.Gaussian(1.0, 1.0), quantile=0.5, count_noise_std=5.0)}
    )
    with pytest.raises(ParameterError, match="fixed clip norm"):
        keyed(Network(), plan(adaptive), tables=TABLES)


def test_canaries_and_tables_do_not_go_together() -> None:
    with pytest.raises(ParameterError, match="in a run with canaries"):
        keyed(
            Network(),
            noisy(records=RECORDS + 4),
            tables=TABLES,
            canaries=GradientCanaries(4),
        )


def test_sums_that_could_wrap_are_refused() -> None:
    rates = [RATE] * 10**7
    with pytest.raises(ParameterError, match="one learning rate"):
        keyed(
            Network(),
            noisy(steps=10**7, records=10**6),
            tables={"table.weight": SparseTable(rates)},
        )


def test_what_it_costs_is_said() -> None:
    texts: list[str] = []
    trained(noisy(), TABLES, each=lambda run, _: texts.append(run.engine.explain()))
    assert "grad/table.weight: a table of 60 rows of 4" in texts[-1]
    assert "at most 3 normal numbers" in texts[-1]


def test_without_tables_there_is_nothing_to_do() -> None:
    tables = RunTables()
    assert not tables
    tables.conceal()
    tables.add({})
    tables.close()
    assert "grad/weight" not in tables
