"""The metrics of windows against those that they bring together."""

from hypothesis import given

from tests.build.random_rows import random_rows
from tests.build.rows import copy, graph, kernel, launch, step
from tests.examples import examples
from tests.reference.ticks import TICK, Account, scaled
from tracelab.measures.blocking_calls import blocking_calls
from tracelab.measures.exposed import exposed
from tracelab.measures.idle_causes import Cause, bubbles
from tracelab.measures.overlap import DeviceTime, device_times
from tracelab.measures.unprofiled_windows import start_up
from tracelab.measures.window_times import window_times


def measured(*rows):
    made = graph(*rows)
    idle = bubbles(made)
    start = start_up(made, idle)
    return made, window_times(made, None, idle, start, exposed(made), blocking_calls(made))


@examples(50)
@given(random_rows())
def test_windows_bring_together_what_other_measures_say(rows):
    account = Account(rows)
    made, windows = measured(*scaled(rows))

    assert [(x.step, x.start_ns, x.end_ns) for x in windows] == [
        (x.step, x.start * TICK, x.end * TICK) for x in account.windows
    ]
    for window, times in zip(windows, device_times(made), strict=True):
        for device, time in zip(window.devices, times, strict=True):
            assert all(getattr(device, x) == getattr(time, x) for x in DeviceTime.__struct_fields__)
            assert device.busy_ns + device.idle_ns == window.length_ns
            assert sum(device.bubbles.values()) == device.idle_ns
            assert sum(device.unknown_reasons.values()) == device.bubbles["unknown"]
            assert device.blocking_comm_ns <= device.exposed_comm_ns
            assert device.blocking_copy_ns <= device.exposed_copy_ns


def test_step_whose_kernel_waits_for_a_copy():
    # The copy from 5 to 25 us is exposed, and the kernel behind it in its stream waits for it.
    rows = [
        step(1, 0, 50_000),
        launch(0, 1_000, 1),
        copy(5_000, 25_000, correlation=1),
        launch(2_000, 3_000, 2),
        kernel(25_000, 50_000, correlation=2),
    ]

    _, (whole, first) = measured(*rows)

    assert (whole.step, whole.start_ns, whole.length_ns) == (None, 5_000, 45_000)
    assert (first.step, first.start_ns, first.length_ns, first.unprofiled_ns) == (
        (1, 0, 50_000, None)
    )
    [device] = first.devices
    assert (device.copy_ns, device.exposed_copy_ns, device.blocking_copy_ns) == (20_000,) * 3
    assert {name: ns for name, ns in device.bubbles.items() if ns} == {"launch": 5_000}
    assert [*device.bubbles] == [cause.name.lower() for cause in Cause]
