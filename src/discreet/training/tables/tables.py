"""All tables of a run: declared, bound to its plan, concealed while it takes steps, and settled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from discreet import _validate as check
from discreet.aggregation.session import Session
from discreet.aggregation.sums import grid_of
from discreet.errors import ParameterError
from discreet.mechanisms import Group
from discreet.randomness.walk import Clock, Walk
from discreet.training.state.reach import modules_of, parameters_of
from discreet.training.tables.declared import SparseTable
from discreet.training.tables.held import HeldTable, Series
from discreet.training.tables.rows import RowSums

__all__ = ["RunTables"]

_OWNER = "PrivateRun"


@final
class RunTables:
    """The tables of one run; of most runs there are none.

    Args:
        declared: by name of the parameter.
        model: of the user.
        parameters: that are trained, by leaf.

    Raises:
        ParameterError: a name that no trained parameter has, or one that cannot be a table.
    """

    def __init__(
        self,
        declared: Mapping[str, SparseTable] | None = None,
        model: nn.Module | None = None,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._parameters = {
            f"grad/{name}": _checked(name, (parameters or {}).get(f"grad/{name}"))
            for name in declared or {}
        }
        self._declared = {
            f"grad/{name}": check.instance(_OWNER, "tables", table, SparseTable)
            for name, table in (declared or {}).items()
        }
        self._held = {leaf: HeldTable(table) for leaf, table in self._parameters.items()}
        self._model = model
        self._handles: list[RemovableHandle] = []

        # Of the run: its session, the weights of all its samples, the number of the next one.
        self._session: Session | None = None
        self._weights: dict[str, tuple[int, ...]] = {}
        self._done = 0

    def __bool__(self) -> bool:
        return bool(self._held)

    def __contains__(self, leaf: object) -> bool:
        return leaf in self._held

    def bind(self, session: Session) -> None:
        """Take over the plan's groups and random bits.

        Raises:
            ParameterError: a table in a group whose noise changes, that is not private, or whose
                sums could become too large to be exact; or a plan for records one by one.
        """
        self._session = session
        batches = session.sampler.batches_per_step
        for leaf, table in self._declared.items():
            weights = table.weights(session.plan.steps)
            self._weights[leaf] = tuple(weight for weight in weights for _ in range(batches))
            self._check_group(leaf, self._group(leaf))

        if self._held and self._model is not None:
            self._put_hooks(self._model)

    def start(self, done: int) -> None:
        """Go on after so many samples, those of an earlier run."""
        self._done = done

    # --- between steps and in them ---

    def conceal(self) -> None:
        """Begin a series for every table that is open."""
        for lane, (leaf, table) in enumerate(self._held.items()):
            if table.is_open:
                table.conceal(self._series(lane, leaf))

    def concealed(self, leaf: str) -> HeldTable | None:
        """The table of a leaf, if it must be asked for its rows; None if the parameter has them."""
        table = self._held.get(leaf)
        return None if table is None or table.is_open else table

    def sums(self) -> dict[str, RowSums]:
        """Empty sums for one step, by leaf."""
        return {leaf: RowSums(leaf, table.shape[1]) for leaf, table in self._parameters.items()}

    def add(self, leaf_sums: Mapping[str, RowSums]) -> None:
        """Add the sums of one step to what rows hold."""
        # Where no pass has read a table, as of an empty sample, a step has noise all the same.
        self.conceal()
        pairs = []
        for leaf, sums in leaf_sums.items():
            # On the grid of the group, as the sums of all other leaves.
            integers = grid_of(self._group(leaf)).integers(sums.values.numpy())
            pairs.append((self._held[leaf], sums.rows.numpy(), integers))

        for table, rows, integers in pairs:
            table.add(rows, integers.astype("int64"))

        self._done += 1

    def settle(self) -> None:
        """Give every row all of its noise; the parameters hold the tables then."""
        for table in self._held.values():
            table.settle()

    @contextmanager
    def settling(self) -> Iterator[None]:
        """For the time of a loop: at its end, however that comes, tables are settled."""
        try:
            yield
        finally:
            self.settle()

    def close(self) -> None:
        """Settle, and take the hooks away."""
        self.settle()
        while self._handles:
            self._handles.pop().remove()

    # --- what it costs ---

    def explain(self) -> str:
        """What a step and the end of a series cost, table by table. Public."""
        lines = []
        for leaf, table in self._parameters.items():
            rows, width = table.shape
            weights = self._weights.get(leaf, ())
            depth = 1 + max(0, len(weights) - 1).bit_length()
            lines.append(
                f"{leaf}: a table of {rows:,} rows of {width}, updated by the run with plain SGD. "
                f"A step computes what it looks up, with at most {depth} normal numbers for each "
                f"number of a row; settling (checkpoints, state_dict, the end) computes all rows, "
                "with one for each number."
            )

        return "\n".join(lines)

    # --- the parts ---

    def _group(self, leaf: str) -> Group:
        (group,) = [group for group in self._bound_session().groups() if leaf in group.leaves]
        return group

    def _bound_session(self) -> Session:
        if self._session is None:
            raise ParameterError(
                owner=_OWNER, name="tables", expected="tables of a run", got="tables without one"
            )

        return self._session

    def _series(self, lane: int, leaf: str) -> Series:
        """The law of the series that begins now."""
        session, group = self._bound_session(), self._group(leaf)
        grid = grid_of(group)
        rows, width = self._parameters[leaf].shape
        walk = Walk(
            session.table_stream(self._done, lane),
            Clock(self._weights[leaf][self._done :]),
            scale=grid.scale(group.noise_std),
            rows=rows,
            width=width,
        )

        # Of the sum in the unit in which it is clipped: to the leaf's own, to the average, to SGD.
        share = dict(zip(group.leaves, group.scales, strict=True))[leaf]
        divisor = group.divisor(session.plan.expected_batch_size)
        step = grid.spacing * 2.0**walk.shift
        return Series(walk, step * share * self._declared[leaf].unit / divisor)

    def _check_group(self, leaf: str, group: Group) -> None:
        session = self._bound_session()
        if not group.private or group.name in dict(session.bound.initial_state):
            raise ParameterError(
                owner=_OWNER,
                name="tables",
                expected="tables in groups with a fixed clip norm, and with noise",
                got=f"{leaf} in the group {group.name!r}",
                do="Give the table a group of its own: Groups({...}).",
            )

        # Beyond the largest sums of a sound run, and its noise. What wraps would still be private.
        weights, grid = self._weights[leaf], grid_of(group)
        records = 2.0 * session.plan.expected_batch_size + 64.0
        sums = sum(weights) * records * group.clip_norm / grid.spacing
        noise = 64.0 * grid.scale(group.noise_std) * float(sum(w * w for w in weights)) ** 0.5
        if sums + noise >= 2.0**62:
            raise ParameterError(
                owner=_OWNER,
                name="tables",
                expected="a plan whose sums over all steps are below 2^62 units of the grid",
                got=f"{sums + noise:.2g} units for {leaf}",
                do="Use one learning rate for all steps, which needs 1024 times less, or fewer "
                "steps.",
            )

    def _put_hooks(self, model: nn.Module) -> None:
        """Settle before a state_dict is made, of the model or of the layer that has the table."""
        tables = {id(parameter) for parameter in self._parameters.values()}
        for module in modules_of(model):
            if any(id(parameter) in tables for parameter in parameters_of(module)):
                register: Any = module.register_state_dict_pre_hook
                self._handles.append(register(self._before_state_dict))

    def _before_state_dict(self, *_: Any) -> None:
        self.settle()


def _checked(name: str, parameter: Tensor | None) -> Tensor:
    """A parameter that can be a table."""
    is_table = (
        parameter is not None
        and parameter.ndim == 2
        and parameter.numel() > 0
        and parameter.is_contiguous()
        and parameter.device.type == "cpu"
        and parameter.dtype in (torch.float32, torch.float64)
    )
    if parameter is None or not is_table:
        raise ParameterError(
            owner=_OWNER,
            name="tables",
            expected="names of trained parameters: matrices of float32 or float64 on the CPU",
            got=repr(name),
        )

    return parameter
