"""TL906: activities of a stream that overlap."""

import pytest

from tests.build.files import US, kernel, launch, write
from tests.build.finding_events import clean
from tracelab import analyze
from tracelab.findings.finding import INFO


def test_activities_of_a_stream_that_overlap(lacks):
    early = [launch(6 * US, 7 * US, 3), kernel(190 * US, 210 * US, "next", correlation=3)]

    assert lacks(*clean(), *early) == [("TL906", INFO, 1)]


@pytest.mark.parametrize("name", ["cudaLaunchKernelExC", "cuLaunchKernelEx_ptsz"])
def test_kernel_that_its_launch_lets_begin_early(tmp_path, name, lacks_of_files):
    # GIVEN a kernel from 190 to 210 us, while the one before it in its stream ends at 200
    early = [
        launch(6 * US, 7 * US, 3, name=name),
        kernel(190 * US, 210 * US, "next", correlation=3),
    ]
    path = write(tmp_path / "t.json", [*clean(), *early])

    # WHEN
    report = analyze(path)

    # THEN nothing is lost, and 10 to 210 us is busy time, counted once
    assert lacks_of_files(path) == []
    assert report.traces[0].losses == {}
    (device,) = report.windows[0].devices
    assert (device.busy_ns, device.idle_ns) == (200_000, 0)
    assert [x.total_ns for x in report.critical_path] == [200_000]


def test_activities_of_two_streams_may_overlap(lacks):
    beside = [
        launch(6 * US, 7 * US, 3),
        kernel(190 * US, 210 * US, "next", correlation=3, stream=13),
    ]

    assert lacks(*clean(), *beside) == []
