"""Steps that serve requests, by phase and number of requests."""

from tests.build.rows import annotation, graph, kernel, launch
from tracelab.measures.window_times import ServedSteps, served_steps


def step(name, start, end, work, key, device=0):
    return [
        annotation(name, start, end),
        launch(start + 1, start + 2, key),
        kernel(start + 10, start + 10 + work, correlation=key, device=device),
    ]


def test_each_kind_of_step_has_a_row():
    # GIVEN two steps of 8 requests that are 100 and 140 ns long, one of 4, and two that prefill; on
    # device 1 less runs
    rows = [
        *step("step[DECODE bs=8]", 0, 100, 60, 1),
        *step("step[DECODE bs=8]", 100, 240, 80, 2),
        *step("step[DECODE bs=4]", 240, 300, 30, 3),
        *step("step[EXTEND bs=2 toks=512]", 300, 500, 200, 4),
        *step("step[EXTEND bs=2 toks=900]", 600, 900, 250, 5),
        launch(3, 4, 6),
        kernel(20, 40, correlation=6, device=1),
    ]
    made = graph(*rows)

    # WHEN they are measured; THEN the step that has work after its end is as long as that
    assert [*served_steps(made, made.host.timeline.windows)] == [
        ServedSteps(0, None, "decode", 4, count=1, length_ns=60, longest_ns=60, busy_ns=30),
        ServedSteps(0, None, "decode", 8, count=2, length_ns=120, longest_ns=140, busy_ns=70),
        ServedSteps(0, None, "prefill", 2, count=2, length_ns=255, longest_ns=300, busy_ns=225),
    ]


def test_other_programs_have_none():
    made = graph(*step("ProfilerStep#1", 0, 100, 60, 1))
    assert [*served_steps(made, made.host.timeline.windows)] == []
