"""Many who listen at a time, on the real engine in simulated time: who is heard is kept ahead of their playback."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscine.engine.engine import Engine, EngineOptions
from oscine.engine.pacing import Live, Pace
from oscine.errors import QueueFull
from oscine.stream import SpeechStream
from oscine.types import AudioChunk, Done, Event, Failed, Job, Plan
from tests.simulated import COMPUTE_BOUND, FRAME_S, MEMORY_BOUND, TOO_SLOW, Clock, Cost, Crowd, SlowAR
from tests.toys import ToyAR, ToyFamily
from tests.unit.test_engine import Listener

MIXED = (20, 50, 100, 600)
COSTS = pytest.mark.parametrize("cost", [MEMORY_BOUND, COMPUTE_BOUND], ids=["memory", "compute"])


@COSTS
@pytest.mark.parametrize(("users", "num_frames"), [(4, (100,)), (16, (100,)), (16, MIXED), (64, (100,))])
def test_nobody_who_listens_waits_in_mid_speech(cost: Cost, users: int, num_frames: Any) -> None:
    crowd = Crowd(cost, users, num_frames=num_frames, live=Live(max_wait_s=30.0), seconds=40.0)
    assert len(crowd.served) > 20
    assert set(crowd.pauses) == {0.0}


@COSTS
def test_all_let_in_alike_everybody_stutters(cost: Cost) -> None:
    """What the others are compared with: the same crowd where the engine knows nothing of those who listen."""
    pauses = Crowd(cost, 16, live=None, seconds=30.0).pauses
    assert sum(pause > 0.1 for pause in pauses) > 0.9 * len(pauses)


def test_as_much_is_made_as_without_listeners_where_steps_gain_nothing_from_more_jobs() -> None:
    crowd, alike = (Crowd(COMPUTE_BOUND, 16, live=live, seconds=30.0) for live in (Live(), None))
    assert crowd.audio_per_s > 0.95 * alike.audio_per_s


@COSTS
def test_who_waits_is_served_in_order_and_soon(cost: Cost) -> None:
    crowd = Crowd(cost, 16, seconds=40.0)
    began = [visit for visit in crowd.visits if visit.first is not None]
    firsts = [visit.first for visit in began]
    assert firsts == sorted(firsts)
    assert max(visit.first - visit.asked for visit in began) < 16 * 4.0 / 6  # of 16, six at least are heard at a time
    assert not crowd.refused


def test_the_rate_is_measured_and_sets_the_places() -> None:
    crowd = Crowd(COMPUTE_BOUND, 16)
    (rates,) = crowd.stats.rates.values()
    per_audio_s = COMPUTE_BOUND.each / FRAME_S + COMPUTE_BOUND.prompt / (100 * FRAME_S)
    assert rates[9] == pytest.approx(1 / per_audio_s, rel=0.05)
    assert crowd.stats.places == {"toy": int(0.8 / per_audio_s)}
    assert 8 <= crowd.stats.listening <= 12  # more for a moment, if some need little more
    assert crowd.stats.waiting >= 3


def test_a_batch_friendly_model_is_found_out_to_be_one() -> None:
    crowd = Crowd(MEMORY_BOUND, 16)
    (rates,) = crowd.stats.rates.values()
    assert rates[1] < 2 < 5 < rates[5]
    assert max(len(jobs) for jobs in crowd.model.shared_steps) >= 6


def test_who_is_sent_away_while_worked_on_has_heard_nothing() -> None:
    """They used to be given what had been made, and then the refusal: a stream that broke off."""
    engine, _, _, _, ask = started(BARELY, 10)
    (_, first, _), waiting = ask("a", 10**9), ask("b", 10**9, max_wait_s=20.0)
    end = waiting[2].wait()
    assert isinstance(end, Failed)
    assert isinstance(end.error, QueueFull)
    assert waiting[0].made_s > 0
    assert waiting[2].events == [end]
    first.cancel()
    engine.close(drain=True)


def test_who_would_wait_too_long_is_sent_away_and_told_when_to_come_back() -> None:
    limit = 10.0
    crowd = Crowd(COMPUTE_BOUND, 64, live=Live(max_wait_s=limit), seconds=120.0)
    assert set(crowd.pauses) == {0.0}
    assert len(crowd.refused) > 10
    waits = [visit.first - visit.asked for visit in crowd.visits if visit.first is not None]
    assert max(waits) < limit + 1.0
    returned = [
        again
        for visit in crowd.refused
        for again in crowd.visits
        if again.user == visit.user and again.asked > visit.asked and again.asked < 180.0
    ]
    assert sum(visit in crowd.refused for visit in returned) < 0.5 * len(returned)
    for visit in crowd.refused:
        assert isinstance(visit.error, QueueFull)
        assert 1 <= visit.error.retry_after_s < 60
        assert "listening" in visit.error.message


@COSTS
def test_jobs_that_nobody_listens_to_fill_what_is_left_and_never_starve(cost: Cost) -> None:
    busy = Crowd(cost, 16, beside=1, seconds=60.0)
    assert set(busy.pauses) == {0.0}
    assert len([visit for visit in busy.beside if visit.pace.complete]) >= 1
    quiet = Crowd(cost, 1, beside=4, seconds=30.0)
    assert set(quiet.pauses) == {0.0}
    assert len([visit for visit in quiet.beside if visit.pace.complete]) >= 4
    assert quiet.audio_per_s > 0.7 * Crowd(cost, 5, live=None, seconds=30.0).audio_per_s


def test_neighbours_of_a_listener_do_not_change_what_is_heard() -> None:
    crowd = Crowd(MEMORY_BOUND, 16, seconds=30.0, num_frames=(30, 100))
    assert len({len(jobs) for jobs in crowd.model.shared_steps}) > 3
    with_alone = Engine(EngineOptions(memory_bytes=100))
    for visit in crowd.served[:20]:
        number = crowd.visits.index(visit) + 1
        listener = Listener()
        job = Job(id="alone", inputs=None, seed=number, max_frames=(30, 100)[number % 2], memory=1)
        with_alone.submit(ToyFamily(ToyAR(stop_code=-1)), [(job, listener)])
        listener.wait()
        heard = np.concatenate([chunk.samples for chunk in visit.chunks])
        np.testing.assert_array_equal(heard, listener.audio())
    with_alone.close()


def test_a_model_slower_than_playback_serves_all_together() -> None:
    crowd = Crowd(TOO_SLOW, 4, seconds=200.0, live=Live(max_wait_s=30.0))
    assert not crowd.refused
    assert max(len(jobs) for jobs in crowd.model.shared_steps) == 4
    assert crowd.stats.listening == crowd.stats.waiting == 0
    assert len(crowd.served) >= 8


def started(cost: Cost, num_frames: int, **live: Any) -> tuple[Engine, SlowAR, ToyFamily, Clock, Any]:
    """An engine whose one place is taken for good, and what submits one more listener."""
    clock = Clock()
    model = SlowAR(clock, cost)
    family, engine = ToyFamily(model), Engine(EngineOptions(memory_bytes=1000, decode_in_background=False), clock)

    def ask(name: str, frames: int, **fields: Any) -> tuple[Pace, Job, Listener]:
        pace, heard = Pace(live=Live(**fields), budget_s=frames * FRAME_S), Listener()
        job = Job(id=name, inputs=None, seed=1, max_frames=frames, memory=1)
        engine.submit(family, [(job, heard)], pace=pace)
        return pace, job, heard

    return engine, model, family, clock, ask


BARELY = Cost(prompt=0.02, any_step=0.035, each=0.001)
"""Fast enough for one listener, not for two."""


def test_one_who_waits_can_leave() -> None:
    engine, _, _, _, ask = started(BARELY, 10)
    (_, first, _), (pace, second, heard) = ask("a", 10**9), ask("b", 10**9)
    second.cancel()
    assert heard.wait().finish_reason == "cancelled"
    assert not heard.audio().size
    first.cancel()
    engine.close(drain=True)
    assert pace.over
    assert engine.pacing().listening == 0


@pytest.mark.parametrize("drain", [True, False])
def test_closing_tells_everybody_how_it_ended(drain: bool) -> None:
    engine, _, _, _, ask = started(BARELY, 10)
    heard = [ask(name, 200)[2] for name in "abcdefgh"]
    engine.close(drain=drain)
    ends = [listener.wait() for listener in heard]
    if drain:
        assert [end.finish_reason for end in ends] == ["length"] * 8
        assert {listener.audio().size for listener in heard} == {200 * 4}
    else:
        assert "cancelled" in [end.finish_reason for end in ends]


def test_a_fault_of_the_engine_is_told_to_those_who_wait_too() -> None:
    engine, model, _, _, ask = started(BARELY, 10)

    def leave() -> None:
        raise SystemExit

    (_, _, first), (_, _, second) = ask("a", 10**9), ask("b", 10**9)
    model.at(110.0, leave)
    assert type(first.wait().error).__name__ == type(second.wait().error).__name__ == "EngineFailed"
    engine.close()


def test_one_who_goes_on_listening_is_let_in_at_once() -> None:
    engine, model, _, clock, ask = started(BARELY, 10)
    stranger, waiting = ask("a", 10**9), ask("b", 10**9, max_wait_s=None)
    came: list[tuple[Pace, Job, Listener]] = []

    def go_on() -> None:
        came.append(ask("c", 50, audible_until=clock.now + 5.0, max_wait_s=0.0))

    model.at(101.0, go_on)
    while not came:
        pass
    assert came[0][2].wait().finish_reason == "length"
    assert came[0][0].paused_s == 0.0
    for _, job, _ in (stranger, waiting):
        job.cancel()
    engine.close()


def test_the_pieces_of_a_long_text_are_one_listener() -> None:
    clock = Clock()
    family = ToyFamily(SlowAR(clock, BARELY))
    engine = Engine(EngineOptions(memory_bytes=1000, decode_in_background=False), clock)
    jobs = tuple(Job(id=f"r.{n}", inputs=None, seed=n, max_frames=50, memory=1) for n in range(12))
    with SpeechStream(family, engine, Plan(jobs=jobs, seed=0), live=Live()) as stream:
        assert sum(len(chunk.samples) for chunk in stream) == 12 * 50 * 4
        assert stream._pace.paused_s == 0.0
        assert stream.audible_until > clock.now
    engine.close()
    assert engine.pacing().listening == 0


def test_a_first_piece_too_short_to_last_is_heard_all_the_same() -> None:
    """It used to be kept for ever: the second piece comes once the first is heard."""
    engine, _, family, _, ask = started(BARELY, 10)
    ask("a", 100)[2].wait()  # so that the rate is known
    jobs = tuple(Job(id=f"r.{n}", inputs=None, seed=n, max_frames=2, memory=1) for n in range(3))
    with SpeechStream(family, engine, Plan(jobs=jobs, seed=0), live=Live()) as stream:
        assert sum(len(chunk.samples) for chunk in stream) == 3 * 2 * 4
    engine.close()


def test_a_faster_tempo_needs_more_and_is_kept_up_with() -> None:
    events: list[Event] = []
    engine, _, _, _, ask = started(Cost(prompt=0.02, any_step=0.01, each=0.001), 10)
    pace, _, heard = ask("a", 200, speed=3.0)
    heard.wait()
    assert pace.paused_s == 0.0
    slow, _, too_fast = ask("b", 200, speed=4.0)  # 3.6 times as fast as playback: nobody can listen at 4
    too_fast.wait()
    assert not slow.paced
    events += [event for event in too_fast.events if isinstance(event, AudioChunk | Done)]
    assert sum(len(event.samples) for event in events if isinstance(event, AudioChunk)) == 200 * 4
    engine.close()
