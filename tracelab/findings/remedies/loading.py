"""Data that comes too late."""

from __future__ import annotations

import re

import numpy as np

from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import (
    are_in_launching_thread,
    counts_inside,
    named,
    recurring,
    step_indices,
)
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.graph import Graph
from tracelab.model.lookup import match_names
from tracelab.model.thread_states import is_in_launching_thread
from tracelab.model.trace import Category

_DATA = "PyTorch documentation: torch.utils.data"
_DATA_URL = "https://docs.pytorch.org/docs/stable/data.html"

_IN_PROCESS = re.compile(r"_SingleProcessDataLoaderIter\.__next__$")
_OF_WORKERS = re.compile(r"_MultiProcessingDataLoaderIter\.__next__$")
_NEXT = re.compile(r"torch/utils/data/dataloader\.py\(\d+\): __next__$")
_STARTS = re.compile(r"multiprocessing/popen_\w+\.py\(\d+\): _launch$")
# A batch that is ready is taken from the queue in 0.05 to 0.3 ms.
_WORKERS_PAY_NS = 1_000_000  # a step: to hand a batch over takes 0.1 to 1 ms itself
_WAIT_NS = 500_000
_REGIONS = (Category.ANNOTATION, Category.OPERATOR)


def _with_function(graph: Graph, regions: Int64Array) -> Int64Array:
    """Regions of a loader's `__next__`, and the Python functions of that name around them."""
    trace = graph.host.timeline.trace
    functions = named(trace, _NEXT.search, Category.PYTHON)
    return np.concatenate((regions, functions[counts_inside(trace, functions, regions) > 0]))


def _loads_in_process(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """The loads of the main process, if they take long enough that worker processes pay.

    The profiler makes them longer: they count for the share of a step that is left without it.
    """
    timeline = graph.host.timeline
    loads = named(timeline.trace, _IN_PROCESS.search, *_REGIONS)
    step_ns = float(np.median(timeline.typical_lengths_ns)) if timeline.steps else 0
    share = min(1, (timeline.trace.info.unprofiled_step_ns or step_ns) / (step_ns or 1))
    load_ns = timeline.trace.duration_ns[loads].sum() / max(1, len(timeline.steps))
    pays = not step_ns or load_ns * share >= _WORKERS_PAY_NS
    return _with_function(graph, loads) if pays else loads[:0]


def _waits_for_workers(graph: Graph, *, in_most_steps: bool) -> Int64Array:
    """The waits for worker processes, if most steady steps have one, or if they have not."""
    timeline = graph.host.timeline
    waits = named(timeline.trace, _OF_WORKERS.search, *_REGIONS)
    waits = waits[timeline.trace.duration_ns[waits] >= _WAIT_NS]
    if timeline.steady is None:
        return _with_function(graph, waits) if in_most_steps else waits[:0]
    steady = timeline.steady.indices
    has_one = np.intersect1d(step_indices(graph, waits), steady)
    is_often = 2 * len(has_one) > len(steady)
    return _with_function(graph, waits) if is_often == in_most_steps else waits[:0]


def _starved(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    return _waits_for_workers(graph, in_most_steps=True)


def _late_now_and_then(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    return _waits_for_workers(graph, in_most_steps=False)


def _starts_workers(graph: Graph, events: Int64Array) -> Int64Array:
    """Functions of the loader in which worker processes are started, where that goes on."""
    trace = graph.host.timeline.trace
    starts = named(trace, _STARTS.search, Category.PYTHON)
    return recurring(graph, events[counts_inside(trace, events, starts) > 0])


def _unpickles(graph: Graph, events: Int64Array) -> Int64Array:
    return recurring(graph, events[are_in_launching_thread(graph, events)])


def _loads_itself(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    loading_id = graph.host.loading_id.astype(np.int64)
    trace = graph.host.timeline.trace
    return loading_id[match_names(trace, loading_id, is_in_launching_thread)]


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="workers-started-again",
        name="DataLoader workers that are started again for each epoch",
        title="The loader starts its worker processes again",
        shows="`_launch` of multiprocessing/popen_fork.py or popen_spawn_posix.py in the loader's "
        "`__iter__`, in at least two steady steps.",
        not_when="The data set is changed in the main process between epochs.",
        fixes=(
            Instead(
                "Keep the workers: `DataLoader(..., persistent_workers=True)`. With short epochs, "
                "use a sampler that does not end.",
                since="1.7",
            ),
        ),
        source=_DATA,
        url=_DATA_URL,
        rules=("TL301", "TL302"),
        edit="host:{place}=0",
        frames=r"torch/utils/data/dataloader\.py\(\d+\): (?:__iter__|_get_iterator|__init__)$",
        occurs=_starts_workers,
    ),
    Remedy(
        id="unpickling-in-training-thread",
        name="batches of many tensors that the thread that launches unpickles",
        title="The launching thread unpickles batches",
        shows="`rebuild_...` of torch/multiprocessing/reductions.py in the thread that launches, "
        "in at least two steady steps.",
        not_when="Python's lock is the limit: another thread that unpickles holds it, too.",
        fixes=(
            Instead(
                "Let another thread do it: `DataLoader(..., pin_memory=True)`. Send fewer tensors: "
                "stack them in `collate_fn`; the cost is one of their number, not of their size.",
                short="Let another thread unpickle: `DataLoader(..., pin_memory=True)`. Send "
                "fewer tensors: stack them in `collate_fn`.",
            ),
        ),
        source=_DATA,
        url=_DATA_URL,
        rules=("TL301", "TL302"),
        edit="host:{place}=0",
        frames=r"multiprocessing/reductions\.py\(\d+\): rebuild_\w+$",
        occurs=_unpickles,
    ),
    Remedy(
        id="loader-without-workers",
        name="a DataLoader without worker processes",
        title="The DataLoader has no workers: the launching thread loads the data",
        shows="`enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__`, while the GPU waits.",
        not_when="Loading takes less than 1 ms a step, or the data set holds tensors of the GPU or "
        "handles that no other process can use.",
        fixes=(
            Instead(
                "Load in worker processes: `DataLoader(..., num_workers=8, pin_memory=True, "
                "persistent_workers=True)` (Hugging Face: `dataloader_num_workers=8`). Cache what "
                "is the same each time, or do the heavy part on the GPU.",
                since="1.7",
                short="Load in worker processes: `DataLoader(..., num_workers=8, pin_memory=True, "
                "persistent_workers=True)`.",
            ),
            Instead("Load in worker processes: `DataLoader(..., num_workers=8, pin_memory=True)`."),
        ),
        source=_DATA,
        url=_DATA_URL,
        rules=("TL302",),
        edit="workers=8",
        occurs=_loads_in_process,
    ),
    Remedy(
        id="starved-workers",
        name="DataLoader workers that are too slow",
        title="The DataLoader's workers are too slow",
        shows="`enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__` takes more than "
        "0.5 ms in most steady steps, while the GPU waits.",
        not_when="The storage is the limit: more workers do not help then.",
        fixes=(
            Instead(
                "Use twice as many workers (`num_workers`), decode more cheaply (torchcodec, DALI, "
                "transforms on the GPU), or decode ahead of time. A larger "
                "`prefetch_factor` helps only where batches take unequally long.",
                short="Use twice as many workers (`num_workers`), or decode more cheaply: "
                "torchcodec, DALI, transforms on the GPU.",
            ),
        ),
        source=_DATA,
        url=_DATA_URL,
        rules=("TL302",),
        edit="workers=2",
        occurs=_starved,
    ),
    Remedy(
        id="workers-late-now-and-then",
        name="a DataLoader that is late now and then",
        title="The DataLoader is late now and then",
        shows="`enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__` takes more than "
        "0.5 ms in some steady steps, in most of them not.",
        not_when="The order of the batches must be reproducible: keep `in_order=True` then.",
        fixes=(
            Instead(
                "One slow batch blocks those after it. Raise `prefetch_factor`, make batches take "
                "equally long, or pass `DataLoader(..., in_order=False)`.",
                since="2.6",
                short="Raise `prefetch_factor`, make batches take equally long, or pass "
                "`DataLoader(..., in_order=False)`.",
            ),
            Instead(
                "One slow batch blocks those after it. Raise `prefetch_factor`, or make batches "
                "take equally long.",
                since="1.7",
                short="Raise `prefetch_factor`, or make batches take equally long.",
            ),
        ),
        source=_DATA,
        url=_DATA_URL,
        rules=("TL302",),
        edit="load=0",
        occurs=_late_now_and_then,
    ),
    Remedy(
        id="data-in-launching-thread",
        name="data that is prepared in the thread that launches",
        title="",
        shows="Functions that prepare data (`collate`, `__getitem__`, a tokenizer, an image "
        "processor) in the thread that launches, while the GPU waits.",
        not_when="A batch depends on the step before it.",
        fixes=(
            Instead(
                "The data is loaded in the launching thread. Move that into worker "
                "processes: `DataLoader(..., num_workers=8, persistent_workers=True)`. "
                "Without a DataLoader, prepare the next batch in a thread of its own while "
                "the GPU works on this one: `upcoming = executor.submit(load, i + 1)`, and "
                "`upcoming.result()` a step later. Cache what is the same each time, or do "
                "the heavy part on the GPU.",
                short="Move it into worker processes: `DataLoader(..., num_workers=8, "
                "persistent_workers=True)`, or load ahead in a thread: "
                "`executor.submit(load, i + 1)`.",
            ),
        ),
        source=_DATA,
        url=_DATA_URL,
        rules=("TL302",),
        edit="load=0",
        occurs=_loads_itself,
        is_general=True,
    ),
)
