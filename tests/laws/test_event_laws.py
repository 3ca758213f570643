"""Laws of every event: equal numbers make equal events, equality and hash agree, the codec loses
nothing.
"""

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import discreet as dp
from discreet.ledger.storage.codec import decode, encode
from discreet.ledger.storage.rows import Began, Reserved
from support.strategies import event_arguments, infos, queries, samplings, steps, wholes


@given(steps, wholes)
def test_codec_round_trip_of_every_step(step: dp.ledger.Step, count: int) -> None:
    row = Reserved(1, step, count)
    back = decode(encode(row), 0)
    assert back == row
    assert hash(back) == hash(row)
    assert encode(back) == encode(row)


@given(infos)
def test_codec_round_trip_of_every_run(info: dp.ledger.RunInfo) -> None:
    row = Began(info, (("python", "3.11"),), "now")
    assert decode(encode(row), 0) == row


@given(st.one_of(samplings, queries), st.data())
def test_numpy_and_python_numbers_make_equal_events(event: Any, data: st.DataObject) -> None:
    """P34: the type of a number never makes another event, as long as it is the same number."""

    def another_type(value: object) -> object:
        if isinstance(value, float):
            kinds: list[Any] = [float, np.float64, np.longdouble]
            with np.errstate(over="ignore"):
                kinds += [np.float32] if float(np.float32(value)) == value else []
            kinds += [int] if value.is_integer() and abs(value) < 2**53 else []
            return data.draw(st.sampled_from(kinds))(value)
        if isinstance(value, int):
            return data.draw(st.sampled_from([int, np.int64, np.uint64]))(value)
        return value

    again = type(event)(*map(another_type, event_arguments(event)))
    assert again == event
    assert hash(again) == hash(event)
    assert repr(again) == repr(event)


@given(steps, steps)
def test_equality_and_hash_agree_with_the_bytes(one: dp.ledger.Step, two: dp.ledger.Step) -> None:
    same_bytes = encode(Reserved(1, one, 1)) == encode(Reserved(1, two, 1))
    assert (one == two) == same_bytes
    assert one != two or hash(one) == hash(two)


@given(steps, st.randoms(use_true_random=False))
def test_the_order_of_queries_never_matters(step: dp.ledger.Step, random: Any) -> None:
    shuffled = list(step.queries)
    random.shuffle(shuffled)
    assert dp.ledger.Step(step.sampling, shuffled) == step


@given(
    st.one_of(samplings, queries),
    st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0]),
    st.data(),
)
def test_one_bad_number_anywhere_is_refused(event: Any, bad: float, data: st.DataObject) -> None:
    arguments = list(event_arguments(event))
    numbers = [place for place, value in enumerate(arguments) if not isinstance(value, str)]
    if not numbers:
        return
    arguments[data.draw(st.sampled_from(numbers))] = bad
    try:
        type(event)(*arguments)
    except dp.errors.ParameterError:
        return
    raise AssertionError(f"{type(event).__name__}{tuple(arguments)} was accepted")
