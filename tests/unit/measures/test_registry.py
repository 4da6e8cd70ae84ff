"""The measures themselves."""

import inspect
from dataclasses import fields, is_dataclass
from typing import get_type_hints

import numpy as np
import pytest

from tests.build.rows import call, comm, copy, graph, kernel, launch, operator, step
from tests.reference.ticks import scaled
from tracelab.measures.blocking_calls import blocking_calls
from tracelab.measures.critical_path import critical_paths
from tracelab.measures.exposed import exposed
from tracelab.measures.idle_causes import bubbles, device_gaps
from tracelab.measures.idle_culprits import idle_culprits
from tracelab.measures.measure import Measure, constrained
from tracelab.measures.overlap_blockers import serialized_streams
from tracelab.measures.registry import MEASURES
from tracelab.measures.unprofiled_windows import active_devices, profiler_overhead_ns, start_up
from tracelab.model.host import host_stalls


def test_every_measure_has_its_own_key():
    assert len({measure.key for measure in MEASURES}) == len(MEASURES)


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.key)
def test_every_row_begins_with_its_rank_and_step_and_is_explained(measure):
    columns = get_type_hints(measure.row)

    assert [x.name for x in fields(measure.row)][:2] == ["rank", "step"]
    assert (columns["rank"], columns["step"]) == (int, int | None)
    assert inspect.getdoc(measure.row)
    first = next(iter(inspect.signature(measure.rows).parameters))
    assert first in {"graph", "windows", "what_ran"}


def test_measure_is_its_key_its_rows_and_their_type():
    measure = Measure("nothing", int, lambda: [])

    assert (measure.key, measure.row, measure.rows()) == ("nothing", int, [])
    assert constrained(minimum=1).extra_json_schema == {"minimum": 1}


def test_no_result_can_be_written_to():
    measured = graph(
        *scaled(
            [
                step(1, 0, 90),
                operator("aten::mm", 0, 80),
                launch(1, 2, 1),
                copy(3, 10, correlation=1),
                launch(3, 4, 2),
                kernel(10, 20, correlation=2),
                call("cudaStreamSynchronize", 12, 21),
                launch(30, 31, 3),
                comm(32, 50, correlation=3, stream=20),
            ]
        )
    )
    idle, host = bubbles(measured), measured.host
    start, windows = start_up(measured, idle), host.timeline.windows
    results = [
        idle,
        start,
        device_gaps(host, 0),
        exposed(measured),
        serialized_streams(measured),
        blocking_calls(measured),
        blocking_calls(measured).attributed_idle,
        host_stalls(host),
        *critical_paths(measured),
        idle_culprits(measured, idle),
        *active_devices(measured, windows).values(),
        *profiler_overhead_ns(measured, windows, idle, start).values(),
    ]

    arrays = [array for result in results for array in _arrays(result)]

    assert len(arrays) > 40
    assert not any(array.flags.writeable for array in arrays)


def _arrays(result):
    values = [getattr(result, x.name) for x in fields(result)] if is_dataclass(result) else [result]
    parts = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return [part for part in parts if isinstance(part, np.ndarray)]
