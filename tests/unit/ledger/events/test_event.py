"""What all events share: names that never change, and fields in their order."""

from discreet.ledger.events import EVENTS, Event, GaussianSum, Poisson, TruncatedPoisson

WRITTEN = {  # in files that exist: never to be edited, only to be added to
    "everything",
    "poisson",
    "truncated-poisson",
    "fixed-size",
    "shuffled",
    "balls-in-bins",
    "gaussian-sum",
    "laplace-sum",
    "exponential-choice",
    "randomized-response",
    "correlated-gaussian-sum",
}


def test_no_name_of_a_file_is_ever_lost() -> None:
    assert set(EVENTS) >= WRITTEN
    assert all(event.kind == name for name, event in EVENTS.items())
    assert len({event.kind for event in EVENTS.values()}) == len(EVENTS)


def test_values_are_the_fields_and_make_an_equal_event() -> None:
    events: list[Event] = [Poisson(0.5), TruncatedPoisson(0.5, 3, 9), GaussianSum("g", 1.0, 2.0)]
    for event in events:
        assert type(event)(**event.values()) == event
    assert list(TruncatedPoisson(0.5, 3, 9).values()) == ["probability", "limit", "records"]
