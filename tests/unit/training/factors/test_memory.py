"""What a pass holds for each record, and what a backward pass has given back."""

from discreet.training.factors.memory import Activations

HELD = Activations(after=(70, 40, 10), largest=40)


def test_the_peak_counts_the_gradient_of_the_largest_call() -> None:
    """Wrong: the activations alone, as if the backward pass needed no memory."""
    assert HELD.peak == 110


def test_a_backward_pass_gives_back_the_calls_after_the_one_it_has_come_to() -> None:
    """Wrong: the call itself is counted as given back; its factor is made of what it holds."""
    assert [HELD.given_back(call) for call in (0, 1, 2, 9)] == [40, 10, 10, 10]
    assert Activations().given_back(0) == 0


def test_a_record_of_several_rows_holds_so_many_times_as_much() -> None:
    assert HELD.times(3) == Activations(after=(210, 120, 30), largest=120)
