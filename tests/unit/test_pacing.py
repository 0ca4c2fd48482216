"""The arithmetic of listening: when audio runs out, what is due, what rates say, who may begin and who waits."""

from __future__ import annotations

import math
from typing import Any

import pytest

from oscine.engine.admission import FALL, LEAST, USABLE, WORKED_AHEAD, Admission, Need, expected_wait, keeps_up
from oscine.engine.pacing import Live, Pace, Piece
from oscine.engine.rate import FORGOTTEN_S, Rates, StepLength
from oscine.errors import QueueFull
from oscine.types import AudioChunk, Event


def heard(now: float = 10.0, **live: Any) -> tuple[Pace, Piece]:
    """A listener who has begun with a second of audio."""
    pace, piece = Pace(live=Live(**live), let_in=True, num_pieces=2), Piece()
    pace.pieces.append(piece)
    pace.give(piece, 1.0, now - 5.0)
    pace.begin(now)
    return pace, piece


def test_audio_is_played_from_the_moment_it_is_first_heard() -> None:
    pace, piece = heard(10.0)
    assert (pace.runs_out, pace.lead_s(10.4)) == (11.0, pytest.approx(0.6))
    pace.give(piece, 2.0, 10.9)
    assert pace.runs_out == 13.0
    assert pace.paused_s == 0.0


def test_who_has_run_out_goes_on_from_when_there_is_more() -> None:
    pace, piece = heard(10.0)
    pace.give(piece, 2.0, 11.5)
    assert pace.paused_s == pytest.approx(0.5)
    assert pace.runs_out == pytest.approx(13.5)


def test_a_tempo_uses_audio_up_faster() -> None:
    pace, _ = heard(10.0, speed=2.0)
    assert pace.runs_out == 10.5


def test_a_later_piece_is_heard_after_those_before_it() -> None:
    pace, first = heard(10.0)
    second = Piece()
    pace.pieces.append(second)
    pace.give(second, 3.0, 10.1)
    assert pace.runs_out == 11.0
    first.coming_s = 0.5
    assert (pace.due(first), pace.due(second)) == (11.5, 14.5)
    pace.end(first, 11.2)
    assert pace.paused_s == pytest.approx(0.2)
    assert pace.runs_out == pytest.approx(14.2)
    assert not pace.over
    pace.end(second, 12.0)
    assert pace.complete


def test_before_the_first_audio_it_is_due_since_it_was_asked_for_and_to_nobody_never() -> None:
    pace, piece = Pace(live=Live(), arrived=7.0, let_in=True), Piece()
    pace.pieces.append(piece)
    assert pace.due(piece) == 7.0
    pace.let_in = False
    assert pace.due(piece) == math.inf
    assert Pace().due(piece) == math.inf


def test_who_goes_on_listening_hears_what_came_before_to_its_end() -> None:
    pace, piece = Pace(live=Live(audible_until=20.0), let_in=True), Piece()
    pace.pieces.append(piece)
    assert (pace.begun, pace.due(piece)) == (True, 20.0)
    pace.give(piece, 1.0, 18.0)
    assert pace.runs_out == 21.0


def test_events_are_kept_until_the_listener_begins() -> None:
    import numpy as np

    told: list[Event] = []
    pace = Pace(live=Live())
    event = AudioChunk(samples=np.zeros(4, np.float32), sample_rate=100)
    pace.kept.append((told.append, event))
    assert pace.begin(3.0) == [(told.append, event)]
    assert pace.kept == []
    assert not pace.begun, "there is nothing to hear yet"


@pytest.mark.parametrize(
    ("needs", "fits"),
    [
        ([(0, 10, 0.8)], True),
        ([(0, 10, 0.81)], False),
        ([(0, 100, 0.5), (0, 100, 0.5)], False),
        ([(0, 4, 0.5), (6, 4, 0.5)], True),  # one is done with before the other has played what they have
        ([(0, 4, 0.5), (2, 4, 0.5)], True),
        ([(0, 4, 0.5), (0.5, 4, 0.5)], False),
        ([(0, 0, 5.0)], True),
        ([], True),
    ],
)
def test_who_can_be_kept_up_with_by_four_fifths_of_the_time(
    needs: list[tuple[float, float, float]], fits: bool
) -> None:
    assert keeps_up([Need(begins=a, lasts=b, share=c) for a, b, c in needs], usable=0.8) is fits


@pytest.mark.parametrize(
    ("work", "queued", "places", "wait"),
    [
        ([], [], 1, 0.0),
        ([5.0], [], 2, 0.0),
        ([5.0], [], 1, 5.0),
        ([5.0], [3.0, 1.0], 1, 9.0),
        ([1.0, 3.0], [], 2, 2.0),  # both get half of the time: the shorter one is done after two seconds
        ([1.0, 3.0], [1.0], 2, 4.0),
        ([2.0, 2.0], [], 1, 4.0),
    ],
)
def test_how_long_one_waits_for_a_place(work: list[float], queued: list[float], places: int, wait: float) -> None:
    assert expected_wait(work, queued, places) == pytest.approx(wait)


def test_rates_are_audio_by_work_and_fade() -> None:
    rates = Rates()
    assert rates.rate("m", 1, 0.0) is None
    for _ in range(50):
        rates.stepped("m", 1, 0.25, 0.5, 1.0)
        rates.stepped("m", 4, 0.5, 2.0, 1.0)
    assert rates.measured("m", 1.0) == pytest.approx({1: 2.0, 4: 4.0})
    assert rates.rate("m", 2, 1.0) == pytest.approx(2.0)  # as one, or half of what four get
    assert rates.rate("m", 3, 1.0) == pytest.approx(3.0)
    assert rates.rate("m", 9, 1.0) == pytest.approx(4.0)
    for _ in range(200):
        rates.stepped("m", 1, 0.5, 0.5, 2.0)
    assert rates.rate("m", 1, 2.0) == pytest.approx(1.0, rel=0.02)
    assert rates.rate("m", 1, 2.1 + FORGOTTEN_S) is None
    assert rates.alone("m") == pytest.approx(1.0, rel=0.02)
    rates.forget()
    assert rates.alone("m") is None


def test_steps_that_make_no_audio_and_a_slower_decoder_count() -> None:
    rates = Rates()
    for _ in range(100):
        rates.stepped("m", 2, 0.1, 0.0, 1.0)
        rates.stepped("m", 2, 0.1, 1.0, 1.0)
    assert rates.rate("m", 2, 1.0) == pytest.approx(5.0, rel=0.05)
    for _ in range(100):
        rates.decoded("m", 0.5, 1.0, 1.0)
    assert rates.rate("m", 2, 1.0) == pytest.approx(2.0, rel=0.05)


def test_a_step_length_is_a_line_through_what_there_was() -> None:
    length = StepLength()
    assert length.of(3) == 0.0
    length.add(2, 0.5)
    assert length.of(2) == pytest.approx(0.5)
    assert length.of(9) == pytest.approx(0.5)
    for jobs in (1, 4, 2, 8):
        length.add(jobs, 0.3 + 0.1 * jobs)
    for jobs in (1, 4, 2, 8) * 60:
        length.add(jobs, 0.3 + 0.1 * jobs)
    assert length.line() == (pytest.approx(0.3), pytest.approx(0.1))
    assert length.narrowest(8, 1.0) == 8
    assert length.narrowest(8, 1.5) == 3  # 0.2 a job with three, 0.1375 with eight: 1.45 times as much
    for _ in range(500):
        length.add(4, 0.1)
    assert length.narrowest(4, 1.1) in (1, 4)


class Given(Admission):
    """Rates that are given."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        for number in range(1, 40):
            self.rates.stepped("m", number, 100.0 / rate, 100.0, 0.0)


def arriving(admission: Admission, now: float = 0.0, budget_s: float = 100.0, **live: Any) -> Pace:
    pace = Pace(live=Live(**live), model="m", budget_s=budget_s)
    pace.pieces.append(Piece())
    admission.arrive(pace, now)
    return pace


def test_as_many_are_let_in_as_the_rate_can_serve_and_the_rest_in_their_order() -> None:
    admission = Given(rate=5.0)
    paces = [arriving(admission) for _ in range(12)]
    assert [pace.let_in for pace in paces] == [True] * 4 + [False] * 8
    assert [pace.ahead for pace in paces[4:]] == [True] * WORKED_AHEAD + [False] * (8 - WORKED_AHEAD)
    paces[2].closed = True
    admission.let_in(1.0)
    assert [pace.let_in for pace in paces] == [True] * 5 + [False] * 7
    assert admission.stats(1.0).places == {"m": 4}
    assert (admission.stats(1.0).listening, admission.stats(1.0).waiting) == (4, 7)


def test_who_would_wait_too_long_is_refused_with_the_time_to_come_back() -> None:
    admission = Given(rate=5.0)
    for _ in range(4):
        arriving(admission)  # each needs 100 s of audio; all of them have 400 / 5 = 80 s of work
    with pytest.raises(QueueFull, match="4 are listening") as refused:
        arriving(admission, max_wait_s=30.0)
    assert refused.value.retry_after_s == 80
    assert len(admission.waiting) == 0
    assert not arriving(admission, max_wait_s=81.0).let_in
    with pytest.raises(QueueFull) as refused:
        arriving(admission, max_wait_s=60.0)
    assert refused.value.retry_after_s == 80  # four end at once, and one of their places is left


def test_who_has_waited_too_long_is_sent_away_unless_they_have_been_served_meanwhile() -> None:
    admission = Admission()  # nothing is known of rates, so that nobody can be told beforehand
    arriving(admission)
    late, lucky, patient = (arriving(admission, max_wait_s=limit) for limit in (10.0, 10.0, None))
    lucky.pieces.clear()
    assert admission.impatient(9.0) == []
    ((gone, error),) = admission.impatient(10.5)
    assert gone is late
    assert error.retry_after_s >= 1
    assert lucky.let_in
    assert admission.waiting == [patient]


def test_nobody_begins_while_somebody_waits_in_mid_speech() -> None:
    admission = Given(rate=5.0)
    pace = arriving(admission)
    pace.give(pace.pieces[0], 1.0, 0.0)
    pace.begin(0.0)
    assert not arriving(admission, 2.0).let_in
    assert arriving(admission, 2.0, audible_until=2.5).let_in


def test_what_requests_make_of_their_budgets_is_learned() -> None:
    admission = Given(rate=5.0)
    for _ in range(50):
        pace = arriving(admission, budget_s=10.0)
        pace.give(pace.pieces[0], 2.0, 0.0)
        pace.end(pace.pieces[0], 0.0)
        admission.let_in(0.0)
    for _ in range(4):
        arriving(admission)
    with pytest.raises(QueueFull) as refused:
        arriving(admission, max_wait_s=0.0)
    assert refused.value.retry_after_s == 16  # a fifth of 80


def test_where_listeners_had_to_wait_fewer_are_let_in_for_a_time() -> None:
    def heard_out(admission: Admission, late_s: float) -> None:
        pace = arriving(admission)
        pace.give(pace.pieces[0], 1.0, 0.0)
        pace.begin(0.0)
        pace.give(pace.pieces[0], 1.0, 1.0 + late_s)
        pace.end(pace.pieces[0], 1.0 + late_s)
        admission.let_in(2.0)

    admission = Given(rate=5.0)
    for _ in range(7):
        heard_out(admission, late_s=0.3)
    assert admission.usable == pytest.approx(USABLE - 7 * FALL)
    assert admission.stats(2.0).places == {"m": 2}
    for _ in range(3000):
        heard_out(admission, late_s=-0.1)
    assert admission.usable == USABLE
    for _ in range(100):
        heard_out(admission, late_s=0.3)
    assert admission.usable == LEAST


def test_first_audio_waits_until_it_lasts() -> None:
    admission = Given(rate=5.0)
    paces = [arriving(admission) for _ in range(4)]
    paces[0].next_run_s = 0.5
    paces[0].give(paces[0].pieces[0], 0.3, 0.0)
    assert not admission.has_enough(paces[0], 0.0)  # the next half second takes 0.4 s where four share the time
    paces[0].give(paces[0].pieces[0], 0.1, 0.0)
    assert admission.has_enough(paces[0], 0.0)


def test_where_not_even_one_can_be_kept_up_with_nobody_waits() -> None:
    admission = Given(rate=0.5)
    first, second = arriving(admission), arriving(admission, max_wait_s=0.0)
    assert (first.paced, second.paced) == (False, False)
    hearing = Given(rate=1.0)
    pace = arriving(hearing, speed=2.0)
    assert not pace.paced, "at twice the speed it is half as fast"
    assert (admission.listening, admission.waiting) == ([], [])
    assert admission.freed == [first, second]
