"""Python threads that launch, wait for each other, or keep each other from running."""

from __future__ import annotations

import numpy as np

from tracelab.base.intervals import Int64Array, measure_within, union
from tracelab.findings.remedy import Instead, Remedy
from tracelab.measures.gil_waits import gil_waits
from tracelab.model.graph import Graph
from tracelab.model.host import Host
from tracelab.model.lookup import groups_of
from tracelab.model.thread_states import thread_waits
from tracelab.model.trace import ABSENT, Category

# Of the time in which a thread launches: less is what every data loader's thread costs.
_CONTENDED = 0.1
_MOSTLY = 0.5  # of the time before a launch, or of a function's


def _forward_passes_with_threads(graph: Graph, events: Int64Array) -> Int64Array:
    """Of `nn.DataParallel`'s forward passes, those in which other threads launched."""
    timeline = graph.host.timeline
    trace = timeline.trace
    launch_id = np.unique(timeline.launch_id[timeline.launch_id != ABSENT])
    has_threads = np.zeros(len(events), dtype=np.bool_)
    for thread, index in groups_of(trace.thread_index[events]):
        others_ns = np.sort(trace.start_ns[launch_id[trace.thread_index[launch_id] != thread]])
        first = np.searchsorted(others_ns, trace.start_ns[events[index]])
        has_threads[index] = first < np.searchsorted(others_ns, trace.end_ns[events[index]])
    return events[has_threads]


def _late_for_the_gil(graph: Graph, _: Int64Array) -> Int64Array:
    """The launches before which their thread mostly waited for the GIL, where that is frequent."""
    host, waits = graph.host, gil_waits(graph.host)
    late = [np.zeros(0, dtype=np.int64)]
    for thread, index in groups_of(waits.thread_index):
        launch_id = _launches_of(host, thread)
        launched_ns = host.timeline.trace.start_ns[launch_id]
        waited = union(waits.start_ns[index], waits.end_ns[index])
        waited_ns = measure_within(waited, launched_ns[:-1], launched_ns[1:])
        held_ns = int(waits.held_ns[index].sum())
        if held_ns >= _CONTENDED * (launched_ns[-1] - launched_ns[0]):
            late.append(launch_id[1:][waited_ns >= _MOSTLY * np.diff(launched_ns)])
    return np.concatenate(late)


def _launches_of(host: Host, thread: int) -> Int64Array:
    """int64[k], event ids of a thread's launches, by start."""
    timeline, trace = host.timeline, host.timeline.trace
    launch_id = np.unique(timeline.launch_id[timeline.launch_id != ABSENT])
    launch_id = launch_id[trace.thread_index[launch_id] == thread]
    by_start: Int64Array = launch_id[np.argsort(trace.start_ns[launch_id], kind="stable")]
    return by_start


def _waits_and_what_for(graph: Graph, _: Int64Array) -> Int64Array:
    """Where launching threads wait for threads that launch nothing, and what those run meanwhile.

    A wait for data belongs to the data loader.
    """
    host, trace = graph.host, graph.host.timeline.trace
    launching = np.array(sorted(host.launching_threads), dtype=np.int64)
    waits = thread_waits(trace)
    waits = waits[np.isin(trace.thread_index[waits], launching)]
    waiting = union(trace.start_ns[waits], trace.end_ns[waits])
    others = trace.of_category(Category.PYTHON)
    others = others[~np.isin(trace.thread_index[others], launching)]
    inside_ns = measure_within(waiting, trace.start_ns[others], trace.end_ns[others])
    is_awaited = (inside_ns > 0) & (inside_ns >= _MOSTLY * trace.duration_ns[others])
    return np.concatenate((waits, others[is_awaited])).astype(np.int64)


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="data-parallel",
        name="`nn.DataParallel`: one process for all GPUs",
        title="`nn.DataParallel` runs all GPUs from one process, and its threads share one GIL",
        shows="In the region `DataParallel.forward` other threads launch: in each forward pass "
        "the model is copied to every GPU, and `parallel_apply` starts one thread per GPU.",
        not_when="One GPU is enough, or the model runs only now and then, as in a notebook.",
        fixes=(
            Instead(
                "Use `DistributedDataParallel`, one process per GPU: `torchrun --standalone "
                "--nproc-per-node=gpu train.py`, `init_process_group`, `DDP(model.to(rank), "
                "device_ids=[rank])` and a `DistributedSampler`.",
                short="Use `DistributedDataParallel`, one process per GPU: `torchrun "
                "--nproc-per-node=gpu train.py` and `DDP(model.to(rank), "
                "device_ids=[rank])`.",
            ),
        ),
        source="PyTorch documentation: nn.DataParallel; Performance Tuning Guide",
        url="https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html",
        rules=("TL101", "TL102", "TL201", "TL202", "TL204", "TL301"),
        edit=None,
        operators=r"^DataParallel\.forward$",
        occurs=_forward_passes_with_threads,
    ),
    Remedy(
        id="gil-contention",
        name="a Python thread that holds the GIL while another one launches",
        title="The launching thread waits for the GIL, and another Python thread holds it",
        shows="The launching thread is in Python and begins nothing, while another thread of its "
        "process begins and ends Python functions.",
        not_when="The other thread sleeps or is inside a call that gives the GIL back, or Python "
        "is free-threaded.",
        fixes=(
            Instead(
                "Move the other thread's work to a process (`multiprocessing`, "
                "`ProcessPoolExecutor`, workers of a `DataLoader`), or to a library whose calls "
                "release the GIL, with few large calls instead of many small ones. Until then "
                "`sys.setswitchinterval(0.0005)` makes the other thread give way sooner. Threads "
                "that launch for one GPU each: one process per GPU.",
                short="Move the other thread's work to a process: `multiprocessing`, "
                "`ProcessPoolExecutor`, or workers of a `DataLoader`.",
            ),
        ),
        source="Python documentation: thread state and the global interpreter lock",
        url="https://docs.python.org/3/c-api/init.html"
        "#thread-state-and-the-global-interpreter-lock",
        rules=("TL301",),
        edit=None,
        occurs=_late_for_the_gil,
    ),
    Remedy(
        id="thread-wait",
        name="a launching thread that waits for another thread",
        title="The launching thread waits for another thread of its process",
        shows="The launching thread is in `join`, `result`, `get` or a lock while the GPU is idle.",
        not_when="The other thread launches the work itself, or is a data loader's.",
        fixes=(
            Instead(
                "Ask for the result later: submit the work for the next step before this step is "
                "launched (`future = pool.submit(...)`), and call `future.result()` where the "
                "value is used. If the other thread's work takes longer than a step, make it "
                "faster or spread it over processes.",
                short="Submit the work one step ahead (`future = pool.submit(...)`) and call "
                "`future.result()` where the value is used.",
            ),
        ),
        source="Python documentation: concurrent.futures",
        url="https://docs.python.org/3/library/concurrent.futures.html",
        rules=("TL301",),
        edit=None,
        occurs=_waits_and_what_for,
        is_general=True,
    ),
)
