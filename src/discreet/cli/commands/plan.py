"""`discreet plan`: three of batch, duration, noise and epsilon in, the fourth out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

import discreet as dp
from discreet.cli.answer import Answer, on_terminal
from discreet.cli.files import PLAN_SUFFIXES, check_outputs, plan_bytes, write_all
from discreet.cli.options import AsJson, Delta, Force, SavedPlan, count_option, number_option
from discreet.cli.views.plan_curves import CurveKind, chart, curve_of, figure, require_matplotlib
from discreet.cli.views.plan_view import Planned
from discreet.errors import DiscreetError
from discreet.units import Adjacency, Numerics

__all__ = ["PLAN_EXAMPLES", "plan"]

PLAN_EXAMPLES = """Examples: find the noise, the steps, the batch; state epsilon; draw and keep

  discreet plan --records 60000 --batch-size 512 --epochs 20 --epsilon 3
  discreet plan --records 60000 --batch-size 512 --noise-multiplier 1 --epsilon 3
  discreet plan --records 60000 --epochs 20 --noise-multiplier 1 --epsilon 3
  discreet plan --probability 0.01 --steps 1000 --noise-multiplier 1.1 --delta 1e-6
  discreet plan --records 60000 --batch-size 512 --epochs 20 --epsilon 3 \\
    --curve noise --save plan.toml
  discreet plan show train.ledger
"""
_FOUR = "Three of these four"
_UNKNOWNS = {
    "--batch-size": "batch",
    "--steps": "steps",
    "--noise-multiplier": "noise_multiplier",
    "--epsilon": "epsilon",
}
_CHOICE = "--batch-size (or --probability), --steps (or --epochs), --noise-multiplier and --epsilon"


def plan(
    context: typer.Context,
    records: Annotated[
        int | None,
        count_option("Size of the data set; public."),
    ] = None,
    batch_size: Annotated[
        float | None,
        number_option("SIZE", "Expected size of a sample.", panel=_FOUR),
    ] = None,
    probability: Annotated[
        float | None,
        number_option("P", "Of each record in each step, instead.", panel=_FOUR),
    ] = None,
    epochs: Annotated[
        float | None,
        number_option("EPOCHS", "Passes over the data.", panel=_FOUR),
    ] = None,
    steps: Annotated[
        int | None,
        count_option("Steps, instead.", panel=_FOUR),
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        number_option("FACTOR", "Noise on the sum / clip norm.", panel=_FOUR),
    ] = None,
    epsilon: Annotated[
        float | None,
        number_option("EPSILON", "The target.", panel=_FOUR),
    ] = None,
    delta: Delta = None,
    clip_norm: Annotated[
        float,
        number_option("NORM", "Bound on a record's gradient."),
    ] = 1.0,
    adjacency: Annotated[
        Adjacency, typer.Option(help="Against which change of the data.")
    ] = Adjacency.ADD_OR_REMOVE,
    unit: Annotated[
        str, typer.Option(metavar="NAME", help="What is protected: example, user, or another name.")
    ] = "example",
    numerics: Annotated[
        Numerics, typer.Option(help="Least level of the arithmetic.")
    ] = Numerics.CERTIFIED,
    curve: Annotated[
        CurveKind | None,
        typer.Option(
            help="Draw the noise on the average against the batch, or epsilon against the steps."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the curve to a .png or .svg file (matplotlib)."),
    ] = None,
    save: SavedPlan = None,
    force: Force = False,
    as_json: AsJson = False,
) -> Answer:
    """Find the one number of DP-SGD that is missing: batch, duration, noise or epsilon.

    What comes back was certified by the accountant at exactly these numbers. No data is touched:
    planning costs nothing. Delta, if left out, is the largest power of ten that is at most 1 / (10
    records).

    `discreet plan show LEDGER` gives back the plan of a run from the ledger's own row.
    """
    # Typer calls this before `plan show` too, whose own function then answers.
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return Answer()

    # Calibrating takes a while: what could not be written, or drawn, is refused before it.
    check_outputs([plot], suffixes=(".png", ".svg"), force=force)
    check_outputs([save], suffixes=PLAN_SUFFIXES, force=force)
    if plot is not None:
        require_matplotlib()

    # A batch can be given by its size or by a probability, the duration in steps or in epochs.
    missing = _missing(
        {
            "--batch-size": (batch_size, probability),
            "--steps": (steps, epochs),
            "--noise-multiplier": (noise_multiplier,),
            "--epsilon": (epsilon,),
        }
    )
    solved = dp.Plan.dpsgd(
        records=records,
        expected_batch_size=batch_size,
        sampling_probability=probability,
        epochs=epochs,
        steps=steps,
        clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
        epsilon=epsilon,
        delta=None if epsilon is None else delta,  # without a target it is only the claim's
        unit=dp.Unit(unit),
        adjacency=adjacency,
        numerics=numerics,
    )
    guarantee = dp.account(solved, delta=_delta(solved, delta, records))
    planned = Planned.of(solved, _UNKNOWNS[missing], guarantee)
    shown, data = planned.shown(), planned.data()

    # Nothing is written before everything is computed: a command that fails leaves no file.
    contents = {} if save is None else {save: plan_bytes(solved, save)}
    points = None
    if curve is not None or plot is not None:
        drawn = curve_of(curve, solved, guarantee, epochs=epochs)
        points = drawn.data
        if curve is not None:
            shown += ["", chart(drawn, blocks=on_terminal())]

        if plot is not None:
            contents[plot] = figure(drawn, plot.suffix)

    write_all(contents, force=force)

    data |= {"curve": points, "written": list(map(str, contents))}
    if contents:
        shown += ["", *map("Written: {}".format, contents)]

    return Answer(data=data, shown=shown, as_json=as_json)


def _refuse_options(context: typer.Context) -> None:
    """Refuse options of the plan to be made before a command that makes none: they would be
    ignored.
    """
    # Every parameter has a value by now; only its source tells an option from a default.
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            command = f"discreet plan {context.invoked_subcommand}"
            raise DiscreetError(
                expected=f"`{command}` without options to plan by",
                got=f"--{name.replace('_', '-')} before it",
                do=f"Put its own options after it: {command} --help",
            )


def _missing(four: Mapping[str, tuple[float | None, ...]]) -> str:
    """The option, of those that say the same number in one of two ways, that is to be found."""
    missing = [option for option, ways in four.items() if set(ways) == {None}]

    # That both ways of one number were used is for `Plan.dpsgd` to refuse.
    if len(missing) != 1:
        raise DiscreetError(
            expected=f"three of {_CHOICE}",
            got=f"{' and '.join(missing)} left out" if missing else "all of them",
            do="Leave out exactly the one that is to be found.",
        )

    return missing[0]


def _delta(plan: dp.Plan, delta: float | None, records: int | None) -> float:
    """The delta of the claim: the target's, or what was asked for, or the usual one."""
    from discreet.plan import default_delta

    if plan.target is not None:
        return plan.target.delta

    if delta is not None:
        return delta

    # The usual delta is small against 1/records, so that it cannot be chosen without them.
    if records is None:
        raise DiscreetError(
            expected="--delta, or --records to choose it by",
            got="neither",
            do="Give --delta, such as 1e-6.",
        )

    return default_delta(records)
