"""Nothing of the model can be written to: not its columns, and not what is worked out of them."""

from functools import cached_property

import numpy as np
import pytest
from hypothesis import given

from tests.build.random_rows import random_rows
from tests.build.rows import graph
from tests.examples import examples
from tests.reference.ticks import scaled
from tracelab.model.lookup import ByCorrelation, Nesting
from tracelab.model.stream_progress import StreamProgress, StreamQueues
from tracelab.model.stream_waits import resolve_waits
from tracelab.model.trace import GPU_ACTIVITIES, HOST_CALLS


def writable(thing):
    """Names of the public arrays of an object that could be written to."""
    properties = [
        name
        for name, value in vars(type(thing)).items()
        if isinstance(value, property | cached_property)
    ]
    names = {*getattr(thing, "__dict__", ()), *getattr(thing, "__slots__", ()), *properties}
    public = {name: getattr(thing, name) for name in names if not name.startswith("_")}
    return [
        name
        for name, value in public.items()
        if isinstance(value, np.ndarray) and value.flags.writeable
    ]


@examples(20)
@given(random_rows())
def test_arrays_of_the_model_are_read_only(rows):
    dependencies = graph(*scaled(rows))
    host = dependencies.host
    timeline, trace = host.timeline, host.timeline.trace
    queues = StreamQueues(timeline)
    model = [
        trace,
        trace.correlation,
        timeline,
        host,
        host.blocking_calls,
        host.stalled_calls,
        dependencies,
        queues,
        dependencies.binding,
        dependencies.binding.latencies,
        resolve_waits(timeline, queues, StreamProgress(timeline, queues)),
        Nesting(trace, trace.of_category(*HOST_CALLS)),
        ByCorrelation(trace, *GPU_ACTIVITIES),
    ]

    assert {type(thing).__name__: writable(thing) for thing in model if writable(thing)} == {}


def test_states_of_threads_cannot_be_replaced():
    states = graph().host.states

    with pytest.raises(TypeError, match="does not support item assignment"):
        states[0] = None
