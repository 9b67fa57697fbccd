"""Which states of a device count: those of this run's own past, and none that it has gone back behind."""

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.server.fleet_state import Generations


def stored(*states):
    return [wire.Stored(round=round, generation=generation) for round, generation in states]


def test_a_run_that_has_not_begun_is_in_no_generation():
    assert Generations().current == 0


def test_anybody_can_go_back_to_the_start():
    assert Generations().restorable([]) == {0}


def test_what_was_stored_in_the_present_generation_counts():
    generations = Generations()
    now = generations.begin(0)
    assert generations.current == now
    assert generations.restorable(stored((5, now), (10, now))) == {0, 5, 10}


def test_what_was_stored_in_another_run_does_not():
    generations = Generations()
    generations.begin(0)
    assert generations.restorable(stored((5, 4711), (10, 0))) == {0}


def test_going_back_voids_all_that_came_after():
    generations = Generations()
    first = generations.begin(0)
    generations.begin(5)
    assert generations.restorable(stored((5, first), (10, first))) == {0, 5}


def test_a_second_attempt_at_a_round_is_another_state():
    generations = Generations()
    first = generations.begin(0)
    second = generations.begin(5)
    assert first != second
    assert generations.restorable(stored((10, second))) == {0, 10}
    assert generations.restorable(stored((10, first))) == {0}


def test_what_survived_one_going_back_is_voided_by_the_next():
    generations = Generations()
    first = generations.begin(0)
    generations.begin(10)
    assert generations.restorable(stored((5, first), (10, first))) == {0, 5, 10}
    generations.begin(5)
    assert generations.restorable(stored((5, first), (10, first))) == {0, 5}
    generations.begin(0)
    assert generations.restorable(stored((5, first), (10, first))) == {0}


def test_generations_of_a_run_that_was_started_again_are_never_the_same():
    assert len({Generations().begin(0) for _ in range(100)}) == 100
