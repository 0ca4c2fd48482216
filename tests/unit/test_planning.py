"""Who steps next, on plain numbers: what is due, what can be afforded, what is left."""

from __future__ import annotations

import math
from dataclasses import dataclass

from oscine.engine.planning import COMFORT_S, FORCED, SHARE_LEFT, StepPlanner


@dataclass(eq=False)
class Job:
    """A job that takes part; `due` from now on, at time 0."""

    name: str
    due: float = math.inf
    heard: bool = False
    key: str = "decode"
    served: int = 0
    steps_to_audio: int = 1


def hearing(name: str, due: float, **fields: object) -> Job:
    return Job(name, due=due, heard=True, **fields)  # type: ignore[arg-type]


def plan(planner: StepPlanner[Job], *jobs: Job, limit: int = 15) -> list[str]:
    return [job.name for job in planner.plan(jobs, lambda job: job.key, lambda job: limit, 0.0)]


def knowing(**lengths: float) -> StepPlanner[Job]:
    """A planner that has seen steps of one job of these kinds take so long."""
    planner: StepPlanner[Job] = StepPlanner()
    for key, length in lengths.items():
        plan(planner, hearing("x", 9.0, key=key))
        planner.took(length)
    return planner


def test_without_listeners_groups_take_turns() -> None:
    planner: StepPlanner[Job] = StepPlanner()
    jobs = [Job("a"), Job("b"), Job("p", key="prefill")]
    served = []
    for _ in range(4):
        served.append(plan(planner, *jobs))
        planner.took(0.1)
    assert served == [["a", "b"], ["p"], ["a", "b"], ["p"]]


def test_what_is_due_first_steps_first_and_what_has_time_stands_aside() -> None:
    planner: StepPlanner[Job] = StepPlanner()
    jobs = [hearing("later", 0.3, key="other"), hearing("sooner", 0.2), hearing("ahead", 9.0), Job("nobody")]
    assert plan(planner, hearing("late", 0.1), *jobs)[0] == "late"
    planner = knowing(decode=0.001, other=0.001)
    assert plan(planner, *jobs) == ["sooner"]
    jobs[1].due = 0.4
    assert plan(planner, *jobs) == ["later"]


def test_with_audio_to_spare_all_of_a_group_step() -> None:
    planner = knowing(decode=0.001)
    jobs = [hearing("a", COMFORT_S + 1), hearing("b", 9.0), Job("nobody")]
    assert set(plan(planner, *jobs)) == {"a", "b", "nobody"}


def test_a_new_listener_begins_when_those_who_hear_can_afford_it() -> None:
    new = Job("new", due=-5.0, key="prefill")
    planner = knowing(decode=0.01, prefill=0.1)
    assert plan(planner, new, hearing("a", 0.15)) == ["a"]
    assert plan(planner, new, hearing("a", 0.30)) == ["new"]
    assert plan(planner, new, hearing("a", 0.30, steps_to_audio=16)) == ["a"]  # these steps take 0.16 s


def test_who_nobody_listens_to_gets_a_share_of_the_time_even_so() -> None:
    planner = knowing(decode=0.01, other=0.01)
    turns = []
    for _ in range(400):
        turns.append(plan(planner, hearing("a", 0.2), Job("nobody", key="other"))[0])
        planner.took(0.01)
    assert abs(turns.count("nobody") / 400 - SHARE_LEFT) < 0.01


def test_where_there_is_no_room_the_share_is_taken_late_but_taken() -> None:
    planner = knowing(decode=0.01, other=1.0)
    waited = 0
    while plan(planner, hearing("a", 0.2), Job("nobody", key="other")) == ["a"]:
        planner.took(0.01)
        waited += 1
    assert abs(waited * 0.01 * SHARE_LEFT - FORCED) < 0.01


def test_steps_get_narrow_for_what_is_urgent_where_that_costs_nothing() -> None:
    proportional: StepPlanner[Job] = StepPlanner()
    flat: StepPlanner[Job] = StepPlanner()
    crowd = [hearing(str(number), 0.3) for number in range(9)]
    for size in (1, 3, 9, 5):
        for planner, length in ((proportional, 0.01 * size), (flat, 0.1 + 0.0001 * size)):
            plan(planner, *crowd[:size])
            planner.took(length)
    urgent = hearing("urgent", 0.05)
    assert 1 <= len(plan(proportional, urgent, *crowd)) <= 3
    assert "urgent" in plan(proportional, *crowd, urgent)
    assert len(plan(flat, urgent, *crowd)) >= 8


def test_a_full_step_has_the_most_urgent_in_it() -> None:
    planner = knowing(decode=0.01)
    jobs = [hearing(str(number), 0.4 - number / 100) for number in range(9)]
    assert set(plan(planner, *jobs, limit=3)) == {"8", "7", "6"}
