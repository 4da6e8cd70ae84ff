"""Every word that reports use, with its meaning: one table.

The text report takes the meanings beside its figures from here, ``tracelab explain`` and
``tracelab/docs/glossary.md`` take all of it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tracelab.base.arrays import OneLine
from tracelab.model.constraints import REASONS
from tracelab.model.losses import LOSSES


@dataclass(frozen=True, slots=True, repr=False)
class Term(OneLine):
    """A word and its meaning.

    Example: ``Term("edge", "before the GPU's first activity in the file, or after its last",
    shown="trace boundary")``.

    Attributes:
        key: the word, as in the JSON.
        meaning: a phrase, which may stand in a table.
        detail: sentences that say more; "" where there is no more to say.
        shown: what the text report calls it; "" where that is the key.
    """

    key: str
    meaning: str
    detail: str = ""
    shown: str = ""

    @property
    def name(self) -> str:
        """What the text report calls it."""
        return self.shown or self.key


@dataclass(frozen=True, slots=True, repr=False)
class Group(OneLine):
    """Words of one sort.

    Example: ``Group("causes", "Causes of idle time", "an idle cause", "Why a GPU was idle.",
    (Term("edge", ...), ...))``.

    Attributes:
        key: what it is asked for by.
        title: its heading.
        one: what each of its words is.
        about: where the words are used.
        terms: the words, in the order in which they are listed.
    """

    key: str
    title: str
    one: str
    about: str
    terms: tuple[Term, ...]

    @property
    def meanings(self) -> Mapping[str, str]:
        """The meaning of each word."""
        return MappingProxyType({term.key: term.meaning for term in self.terms})

    @property
    def names(self) -> Mapping[str, str]:
        """What the text report calls each word."""
        return MappingProxyType({term.key: term.name for term in self.terms})


FAMILIES = Group(
    "rules",
    "Rule families",
    "a family of rules",
    "The first digit of a rule's number says what the rule is about.",
    (
        Term("TL1", "blocking calls: the CPU waits for the GPU, and the GPU runs out of work"),
        Term("TL2", "missing overlap: work that could run at the same time runs one after another"),
        Term("TL3", "the CPU and the job: launches, data loading, other ranks, irregular stalls"),
        Term("TL4", "work of the GPU: more of it, or slower work, than the result needs"),
        Term("TL9", "the trace itself: what the file lacks, and which figures suffer from it"),
    ),
)

CAUSES = Group(
    "causes",
    "Causes of idle time",
    "a cause of idle time",
    "Every idle nanosecond of a GPU has one of these causes, so they add up to the idle time. "
    "`windows[].devices[].bubbles` in the JSON.",
    (
        Term(
            "host_blocked",
            "the CPU sat in a blocking call instead of launching",
            "The thread that launches the GPU's next activity was in a synchronize, a blocking "
            "copy or an allocator call, or another thread's allocation stalled its launch. "
            "`tracelab explain TL101` says what to do.",
            shown="blocking call",
        ),
        Term(
            "input",
            "the CPU waited for the data loader",
            "The launching thread was fetching or preparing the next batch: more workers, a longer "
            "prefetch queue or less work per sample help. See `tracelab explain TL302`.",
            shown="data loading",
        ),
        Term(
            "host_busy",
            "the CPU was busy with Python, operators or launches",
            "The CPU did not launch work as fast as the GPU finished it. Fewer and larger kernels "
            "help: `torch.compile`, CUDA graphs, fused optimizers. See `tracelab explain TL301`.",
            shown="CPU-bound",
        ),
        Term(
            "dependency",
            "the next activity was launched and waited for another GPU",
            "An event or a peer copy made it wait for work on another device.",
            shown="waiting for another GPU",
        ),
        Term(
            "launch",
            "launched, not yet started, and not waiting for another GPU",
            "The normal latency between a launch call and the start of its kernel, which shows "
            "when the GPU has nothing else to do.",
            shown="launch latency",
        ),
        Term("graph", "between two nodes of one CUDA graph", shown="inside CUDA graphs"),
        Term(
            "edge",
            "before the GPU's first activity in the file, or after its last",
            "The recording began earlier or ended later than the GPU's work, so this says nothing "
            "about the program. Within the step that launched the first activity, the time before "
            "it has the cause that the step shows.",
            shown="trace boundary",
        ),
        Term(
            "profiler",
            "the CPU was in the profiler's or recorder's own code",
            "This time does not exist when the program runs without a profiler.",
        ),
        Term(
            "unknown",
            "the file does not say",
            "The report gives the reason next to it, and `tracelab explain reasons` lists all "
            "reasons.",
        ),
    ),
)

REASONS_UNKNOWN = Group(
    "reasons",
    "Why a cause is unknown",
    "a reason why a cause is unknown",
    "`windows[].devices[].unknown_reasons` in the JSON.",
    tuple(Term(reason.name.lower(), text) for reason, text in REASONS.items()),
)

BLOCKERS = Group(
    "blockers",
    "Overlap blockers",
    "an overlap blocker",
    "Why a copy, a collective or other independent work did not overlap with compute: the `cause` "
    "of a finding about missing overlap.",
    (
        Term(
            "same_stream",
            "both are in one stream",
            "A stream runs its work in order. Put one of the two in a stream of its own.",
        ),
        Term(
            "event_wait",
            "one stream waited for an event of the other",
            "The wait comes earlier, or covers more work, than the data dependency requires.",
        ),
        Term(
            "host_sync",
            "a blocking call kept the CPU from launching the second one in time",
            "As a cause of idle time: the CPU waited for the GPU in that call.",
        ),
        Term("late_launch", "the CPU launched the second one too late, without a blocking call"),
        Term(
            "hardware_queue",
            "both were launched, but one waited for the other in a shared hardware queue",
            "Streams share a limited number of queues; `CUDA_DEVICE_MAX_CONNECTIONS` sets how "
            "many. See `tracelab explain TL204`.",
        ),
        Term(
            "no_free_sm",
            "the kernels already running left no streaming multiprocessor (SM) free",
            "The GPU was full, so overlap would not have made it faster.",
        ),
        Term(
            "true_dependency",
            "there was no independent work to overlap with",
            "Everything that followed needed its result. Streams do not help here; less or faster "
            "work does.",
        ),
        Term(
            "peer_wait",
            "the collective waited for another rank that started it later",
            "Most of its time was not spent on communication. Look at the rank that came last.",
        ),
        Term("unknown", "the file does not say what the second one waited for"),
    ),
)

FINDING_CAUSES = Group(
    "finding causes",
    "Other causes of findings",
    "the cause of a finding",
    "The `cause` of findings about idle time, single calls and the GPU's work; for missing overlap "
    "see the overlap blockers.",
    (
        Term("pageable", "a copy whose CPU memory is pageable, so the driver stages it"),
        Term("allocator", "an allocator call that waits for the GPU"),
        Term("default_stream", "a copy between GPUs in the default stream of one of them"),
        Term(
            "launch_bound",
            "the CPU launched short kernels more slowly than the GPU ran them",
            shown="CPU-bound",
        ),
        Term(
            "slow_host",
            "the CPU did other work than launching for a millisecond or more",
            shown="other CPU work",
        ),
        Term("input_bound", "the CPU waited for data", shown="data loading"),
        Term("first_use", "work that a program does once, such as loading a kernel's code"),
        Term("planning", "a library plans an operator for each new shape"),
        Term("irregular", "a stall in too few steps to be typical"),
        Term("float32_products", "matrix products or convolutions in float32 without TF32"),
        Term("layout", "convolutions that change the layout of their images in memory"),
        Term("float64", "work in double precision"),
        Term("untrained", "gradients that no optimizer uses"),
        Term("uncompiled", "a compiled function that runs eagerly"),
        Term("unprepared", "work in each step that could be done once, before the loop"),
        Term("recomputation", "a forward pass that is computed twice"),
        Term("float32_attention", "attention in float32 in a model in half precision"),
        Term("attention_scores", "attention whose scores are stored in memory"),
        Term("elementwise_chains", "elementwise kernels in a row, which a compiler makes one of"),
        Term("table_gradients", "gradients of whole embedding tables"),
    ),
)

ORIGINS = Group(
    "origins",
    "Where nodes of CUDA graphs come from",
    "how the origin of a graph's node is known",
    "A replay of a CUDA graph is one call, so its kernels count where they were captured, as far "
    "as that is known: `replay_basis` of operators, phases, lines and modules in the JSON. The "
    "surest comes first.",
    (
        Term(
            "annotation",
            "the file says what the program called the region in which it was captured",
            "The new CUPTI collector of PyTorch writes annotations, and so does "
            "`export_chrome_trace(cuda_graph_annotations=...)`.",
            shown="annotation of the graph",
        ),
        Term(
            "capture",
            "the file has the capture, whose calls fit the replay one by one",
            "As many calls as nodes, of the same kinds in the same order. If several captures "
            "fit, they are at the same place of the program, or the graphs are numbered.",
            shown="captured here",
        ),
        Term(
            "eager",
            "inferred: the same kernels ran eagerly in the file, in the same order",
            "A warm-up is such a run. Names and sizes are compared, and most of the replay has to "
            "be the same; where several runs fit, they are at the same place of the program.",
            shown="inferred from an eager run",
        ),
    ),
)

LATENESS = Group(
    "lateness",
    "Why a rank is late",
    "why a rank is late",
    "The reason why a rank was the last one to start a collective: it spent more time on this "
    "than the others since the collective before. `job.collectives[].cause` and "
    "`job.stragglers[].cause` in the JSON, and the `cause` of TL304.",
    (
        Term(
            "more_work",
            "its GPU had more to compute",
            "`tracelab explain TL304` says what to do.",
        ),
        Term(
            "uneven_work",
            "the rank that has the most to compute changes from step to step",
            "This is typical of sequences of uneven length. The cost is that of all ranks "
            "together.",
        ),
        Term("slower_gpu", "its GPU ran the same kernels as often, each more slowly"),
        Term("late_launch", "its GPU was idle because the CPU launched late"),
        Term("data_loading", "its GPU was idle because the CPU was loading data"),
        Term("blocked", "its GPU was idle because the CPU was in a blocking call"),
        Term("other_collective", "it was in other communication for longer"),
        Term("copies", "it spent more time on copies and memsets that nothing overlapped"),
        Term("recording_start", "it was late when the recording began"),
        Term("unknown", "its GPU was idle, and the file does not say why"),
    ),
)

PIPELINE = Group(
    "pipeline bubble",
    "Why the stages of a pipeline compute nothing",
    "a part of a pipeline's bubble, or the cause of TL303",
    "The bubble of a pipeline is the share of its schedule in which a stage computes nothing. "
    "These are its parts, `job.pipeline.parts` in the JSON, and the causes of TL303.",
    (
        Term(
            "theory",
            "the bubble of the schedule with even stages and nothing but compute",
            "`(p-1)/(m+p-1)` of p stages and m microbatches with GPipe and 1F1B.",
        ),
        Term("imbalance", "a stage, or a microbatch, takes longer than the others"),
        Term("uneven_microbatches", "the stages are even, but not the microbatches"),
        Term("transfer", "a message was on its way"),
        Term("host", "a stage was idle because of its CPU", shown="CPU"),
        Term("launch_bound", "a stage was idle because its CPU launched late"),
        Term("rest", "anything else: copies, other communication, the gaps between kernels"),
        Term(
            "few_microbatches",
            "nothing but theory, which more microbatches would make smaller",
            "Only where each one keeps the GPU busy for longer than the CPU takes to launch it.",
        ),
        Term("unknown", "it is larger than its theory, for no single reason"),
    ),
)

KINDS = Group(
    "kinds",
    "Kinds of GPU activities",
    "a kind of GPU activity",
    "Every GPU activity has one kind, which its name decides.",
    (
        Term("compute", "kernels", "All kernels that are not communication."),
        Term(
            "comm",
            "communication kernels",
            "NCCL, RCCL and other communication libraries; more names can be added.",
        ),
        Term(
            "copy",
            "memory copies",
            "CPU to GPU (h2d), GPU to CPU (d2h), within a GPU (d2d) and between GPUs "
            "(p2p), with pinned or pageable memory.",
        ),
        Term("memset", "memory sets"),
    ),
)

BLOCKING_KINDS = Group(
    "blocking calls",
    "Kinds of blocking calls",
    "a kind of blocking call",
    "A blocking call is a CPU call that returns only when GPU work has finished; this is what it "
    "waits for. `syncs[].kind` in the JSON.",
    (
        Term("device", "it waits for all work on a device", "For example `cudaDeviceSynchronize`."),
        Term("stream", "it waits for all work on a stream", "For example `.item()` of a tensor."),
        Term("event", "it waits until the GPU reaches an event", "`event.synchronize()`."),
        Term("copy", "a synchronous copy, or an asynchronous one with pageable memory"),
        Term("allocation", "an allocator call, which may have to wait for the device"),
    ),
)

PATH_KINDS = Group(
    "path",
    "Kinds of time on the critical path",
    "a kind of time on the critical path",
    "The critical path is the chain of work that decided how long a window took; its parts add up "
    "to the window's length. That of a job goes from rank to rank: a collective counts from the "
    "moment on at which the last rank had arrived, and before that the path is on that rank. "
    "`critical_path[].by_kind` and `job.critical_path.by_kind` in the JSON.",
    (
        *KINDS.terms,
        Term("launch", "from the launch call to the start of the activity"),
        Term("queue", "from the end of one activity to the start of the next, already launched"),
        Term(
            "host",
            "on the CPU, not waiting for the GPU as far as is known, or in a function that is a "
            "node of a CUDA graph",
            shown="CPU",
        ),
        Term("sync", "in a blocking call whose work was done or is not known, or stalled"),
        Term("unknown", "the file does not say what was waited for"),
    ),
)

CONSTRAINTS = Group(
    "constraints",
    "What activities wait for",
    "a binding constraint",
    "The last constraint to be met before an activity could start. `starts[].by_constraint` in the "
    "JSON.",
    (
        Term("stream", "the end of the activity before it in its stream"),
        Term(
            "dependent_launch",
            "the activity before it, which still ran: programmatic dependent launch or a CUDA "
            "graph",
        ),
        Term("event", "an event of another stream"),
        Term("peer_copy", "a copy between GPUs in a default stream"),
        Term("launch", "the CPU's launch"),
        Term(
            "queue",
            "work of another stream in the same hardware queue or copy engine; of a node of a CUDA "
            "graph also the node before it in its stream, on which it does not depend",
        ),
        Term("no_free_sm", "a free multiprocessor: kernels of other streams had all of them"),
        Term("callback", "a host function that runs as a node of a CUDA graph"),
        Term("unknown", "the file does not say"),
    ),
)

NODE_WAITS = Group(
    "graph_idle",
    "What nodes of CUDA graphs wait for",
    "a wait inside a CUDA graph",
    "The dependency for which a GPU was idle inside a replay, until the next node. "
    "`graph_idle[].wait` in the JSON.",
    (
        Term("node", "a node on which it depends"),
        Term(
            "callback", "a host function that is a node before it; the GPU is idle until it returns"
        ),
        Term("queue", "a node on which it does not depend: the driver put both into one queue"),
        Term("not_in_file", "not known: the file does not have what it depends on"),
        Term("other", "the launch, a free multiprocessor, or nothing that is known"),
    ),
)

EDGE_KINDS = Group(
    "edges",
    "Edges of the dependency graph",
    "a kind of edge in the dependency graph",
    "The `kind` of the edges of `window_graph(...)`.",
    (
        Term("launch", "from a CPU call to the activity that it launched"),
        Term("stream", "from an activity to the next one in its stream"),
        Term("host", "from a CPU call to the next one of its thread"),
        Term("sync", "from an activity to the blocking call that waited for it"),
        Term("event", "from an activity to one whose stream waited for an event recorded after it"),
        Term("queue", "from an activity to one after it in a shared hardware queue"),
    ),
)

PHASES = Group(
    "phases",
    "Phases of a step",
    "a phase of a step",
    "The work of the CPU, by the annotations, operators and Python functions in the file. "
    "`phases[]` in the JSON.",
    (
        Term("data", "in a data loader", shown="data loading"),
        Term("forward", "the forward pass"),
        Term("backward", "the backward pass"),
        Term("optimizer", "the optimizer's step, zero_grad, gradient clipping and scaling"),
        Term("other", "in none of these, as far as the file says"),
        Term("waiting", "the main thread waited for other threads of its process"),
        Term("unknown", "the file does not say what the CPU did"),
    ),
)

TERMS = Group(
    "terms",
    "Terms and columns",
    "a term",
    "Headings of tables and other words of the report.",
    (
        Term("GPU activity", "a kernel, a copy or a memset that ran on a GPU"),
        Term(
            "window",
            "the stretch of time that a table is about: a step, the steady steps or the whole "
            "trace",
        ),
        Term(
            "step",
            "one `ProfilerStep#N`, with all GPU work that was launched in it",
            "Without any, the annotations by which vLLM, SGLang or Lightning name their "
            "steps, if they launch most of the GPU's work. Other annotations can be chosen as "
            "steps.",
        ),
        Term(
            "steady steps",
            "recorded steps that contain all of their GPU work, and no work launched before the "
            "recording",
            "They decide what is typical: medians, comparisons and the shares of findings. The "
            "report says which steps were left out, and why.",
        ),
        Term("steady window", "from the start of the first steady step to the end of the last"),
        Term("steady step", "the median length of the steady steps", "`steady[].step_ns`."),
        Term(
            "replay",
            "the steady steps computed from their calls, launches, streams and waits",
            "With a change it predicts what a step then takes. Without one it has to take what was "
            "measured: by how much it is off is `steady[].baseline_error`. From 2 % on, or where "
            "more than that of a step is not explained, nothing is predicted, and "
            "`steady[].not_replayed` says why. `steady[].replayed_steps` are the steps; a single "
            "one is repeated.",
        ),
        Term(
            "calibration",
            "what the profiler costs per recorded event, fitted to the CPU without it",
            "Predictions are then of a step without the profiler: `steady[].basis` says so, and "
            "`steady[].not_calibrated` why not. Such a step follows another one, while the "
            "recorder timed a few at once, from an idle GPU on: it may be shorter than "
            "`unprofiled_step_ns`.",
        ),
        Term(
            "without profiler",
            "the CPU's time in a step without the profiler, as the calibrated replay says",
            "`host_unprofiled_ns` of `operators[]`, `phases[]`, `lines[]` and `modules[]`; null "
            "where the replay is not calibrated.",
        ),
        Term(
            "CPU time",
            "the time in which the CPU was in an operator, phase, line or module itself",
            "The times of all rows of a table add up to the length of the step's annotation.",
        ),
        Term(
            "GPU floor",
            "the median busy time of the busiest GPU per steady step",
            "A step cannot take less unless its GPU work changes.",
        ),
        Term("busy", "the time in which at least one activity ran on the GPU"),
        Term("idle", "the time in which nothing ran on the GPU"),
        Term("bubble", "an interval in which a GPU was idle"),
        Term(
            "exposed",
            "communication while no compute ran, or copies while neither compute nor communication "
            "ran",
            "Time that overlap could hide, if independent work exists.",
        ),
        Term(
            "blocking",
            "the part of the exposed time that the next kernel waited for",
            "The rest of the exposed time did not delay compute.",
        ),
        Term("together", "the time in which both of two streams, kinds or GPUs were busy"),
        Term("overlap", "the time in which both of two streams, kinds or GPUs were busy"),
        Term("of window", "as a share of the window's length"),
        Term("of idle", "as a share of the idle time"),
        Term(
            "blocking call",
            "a call of the CPU that returns only when GPU work has finished",
            "Synchronizing calls, copies with pageable memory and the allocator's calls. It costs "
            "nothing while the GPU has work.",
        ),
        Term("blocked", "the time that the CPU spent in a blocking call"),
        Term(
            "wake-up latency",
            "the time from the end of the awaited GPU work to the return of the blocking call",
        ),
        Term(
            "caused idle",
            "the GPU's idle time while a call blocked, and as much of it after the call, until new "
            "work reached the GPU, as the call delayed the CPU",
            "This is what a blocking call costs. A call that blocks while the GPU is busy costs "
            "nothing, unless the CPU is late after it.",
        ),
        Term("idle by blocking", "the idle time that blocking calls caused"),
        Term(
            "cost",
            "the GPU time that is lost where a finding points, on the GPU that loses most",
            "`cost_ns` in the JSON. It may include time that is attributed to other findings.",
        ),
        Term(
            "attributed",
            "the part of the cost that is counted for this finding and for no other",
            "`bound_ns` in the JSON. Attributed times add up to no more than the idle and exposed "
            "time that there is, nor to more idle time than typical steps have without the "
            "profiler, where that is known; those of findings about what a GPU is busy with "
            "(TL4...) to no more than its busy time. It is a share of what was lost, not a "
            "prediction of what a fix saves.",
        ),
        Term(
            "up to",
            "the share of the steady steps that is attributed to a finding",
            "It is shown if no replay says what the fix saves, which may be more or less: see "
            "`tracelab explain attributed`.",
        ),
        Term(
            "what-if",
            "the length of a steady step with a change, predicted by a replay of the steady steps",
            "`tracelab whatif` predicts the fix of each finding, and any other change. A change is "
            "written KIND[:PLACE][=VALUE], for example `unblock:train.py:40` or `load=0`.",
        ),
        Term(
            "saves",
            "how much shorter a fix makes a steady step, as a replay of the steps predicts it",
            "The interval is in brackets. `saves_ns`, "
            "`saves_low_ns` and `saves_high_ns` in the JSON. Fixes do not add up: `savings` has "
            "all of them together. A fix that saves nothing is `info`, however long its call "
            "blocks.",
        ),
        Term(
            "takes",
            "the share of the steady steps that something costs for which there is no remedy here",
            "For example a collective that waits for another rank.",
        ),
        Term("largest finding", "in a table of files, the alarm that saves most"),
        Term("seen in", "the number of steady steps in which a finding occurred"),
        Term(
            "noise",
            "a difference that is no larger than the spread between steps",
            "The report does not count it as a change.",
        ),
        Term("resolved wait", "a stream wait whose event record the file names"),
        Term(
            "inferred",
            "derived from the times or the order of the calls, because the file does not record it",
            "A stock trace of CUDA 12.9 or later does not say which event a stream waited for.",
        ),
        Term(
            "Cuspy",
            "PyTorch's own CUPTI collector, which can record the GPU instead of Kineto",
            "`traces[].collector` in the JSON. It says what nodes of CUDA graphs depend on.",
        ),
        Term(
            "unexplained",
            "a delay of more than 20 µs that neither the file nor the times account for",
        ),
        Term(
            "critical path",
            "the chain of work that decided how long a window took",
            "`tracelab explain path` lists what it can consist of.",
        ),
        Term("typical", "the median of what was measured, in this trace or in reference captures"),
        Term("rank", "one process of a distributed job, which records a file of its own"),
        Term(
            "straggler",
            "a rank that the others wait for in collectives",
            "TL304 says why it is late, and what that costs the job.",
        ),
        Term("job", "the ranks that ran one program together"),
        Term(
            "wait",
            "a collective ran on a rank, or a receive, and another rank had not started it yet",
            "In a step, the part that did not overlap with compute. `wait_ns` in the JSON.",
        ),
        Term(
            "transfer",
            "the time of a collective once all ranks have started it",
            "In a step, the part that did not overlap with compute. `transfer_ns` in the JSON.",
        ),
        Term("waits for", "the rank that came last in more than half of what a rank waits"),
        Term(
            "algbw",
            "algorithm bandwidth: the size of a collective over its transfer time",
            "As nccl-tests defines it. `algorithm_gbps` in the JSON, in GB/s.",
        ),
        Term(
            "busbw",
            "bus bandwidth: the algorithm bandwidth, corrected for the number of ranks",
            "As nccl-tests defines it, so that it can be compared with what the links can carry. "
            "`bus_gbps` in the JSON, in GB/s.",
        ),
        Term("offset", "by how much a rank's clock is ahead of the job's when its file begins"),
        Term("drift", "by how much a rank's clock runs faster than the job's"),
        Term("residual", "by how much the ends of a rank's collectives differ from the others'"),
        Term("microbatch", "a part of the batch that goes through a pipeline's stages by itself"),
        Term(
            "warm-up",
            "the part of a pipeline's schedule before a stage's first backward pass can begin",
        ),
        Term(
            "drain",
            "the part of a pipeline's schedule from a stage's last forward pass on",
            "The time between warm-up and drain is called steady.",
        ),
        Term("culprit", "the call, function or activity that a GPU waited for while it was idle"),
        Term("launch", "the CPU call that puts an activity on a stream"),
        Term(
            "hardware queue",
            "a queue through which the CPU hands work to the GPU",
            "Streams that share one can wait for each other without any event.",
        ),
        Term(
            "programmatic dependent launch",
            "a kernel that may start while the one before it in its stream still runs",
        ),
        Term(
            "graph_streams",
            "nearly empty streams of CUDA graph replays, at least 16 on a GPU, shown as one row",
            "Nearly all activities of such a stream are nodes of CUDA graphs, and it is busy for "
            "less than a tenth of the time in which its GPU is. The profiler reports the streams "
            "that the replay used, often hundreds. Their busy time is that of their union; the "
            "JSON has each stream as well. `stream:0/graphs` is what the overlap table and "
            "the lanes of `tracelab timeline` call them; the lane `stream:0/150` is one alone.",
            shown="streams of CUDA graphs",
        ),
        Term("pageable memory", "ordinary CPU memory, which the GPU cannot read directly"),
        Term("pinned memory", "page-locked CPU memory, which the GPU copies from on its own"),
        Term(
            "without the profiler",
            "the length of a step as measured before the profiler was started",
            "`unprofiled_ns` and `unprofiled_step_ns` in the JSON. Only captures made by "
            "`tracelab run` or `tracelab.capture` have it. The idle time in typical steps is worth "
            "no more than that length, less the time for which the GPU works in a step.",
        ),
        Term(
            "start of the recording",
            "the steps before the CPU has run ahead of the GPU, in a program in which it does",
            "The profiler starts with an empty GPU, which waits for launches until the CPU is "
            "ahead of it. Later it does not, so no finding is about that.",
        ),
        Term("loss", "something in the file that does not reach the figures, and is counted"),
    ),
)

FINDING_FIELDS = Group(
    "finding",
    "Fields of a finding",
    "a field of a finding",
    "`findings[]` in the JSON, `report.findings` in Python.",
    (
        Term("rule", "the rule that made it; its id never changes"),
        Term("title", "what happens, in one sentence"),
        Term("severity", "critical, warning or info"),
        Term("rank", "the rank whose file it is about"),
        Term("step", "the number of the step; null for the steady window or the whole trace"),
        Term("cause", "why it happens, in one word"),
        Term("cost_ns", "the GPU time lost there"),
        Term("bound_ns", "the part of it that is attributed to this finding alone"),
        Term(
            "edit",
            "the change of the program that a replay makes for it; null where nothing can be done",
            "As `tracelab whatif` takes it; several are joined by ` + `.",
        ),
        Term(
            "saves_ns",
            "what that change saves of a steady step, by a replay; null without one",
            "In a file without steps it is of the whole trace. It may be larger than the share "
            "that is attributed to the finding: a call that drains the queue leaves the CPU "
            "behind for the rest of the step.",
        ),
        Term("saves_low_ns", "the least that the change saves, as far as is known"),
        Term("saves_high_ns", "the most that the change saves, as far as is known"),
        Term(
            "saves_reason",
            "why there is an edit and no saving: `true_dependency`, `not_in_steps`, "
            "`no_place`, `launches`, or only a bound: `unmet`",
        ),
        Term("remedy", "the remedy that says what to write instead; `tracelab explain` shows it"),
        Term("source", "the documentation of a remedy's fix"),
        Term("spread_ns", "by how much steady steps differ for other reasons"),
        Term("steps_seen", "the number of steady steps in which it occurred"),
        Term("where", "the GPU, operator, function, file and line, as far as the file says"),
        Term("evidence", "ids of the events that show it, the most expensive first"),
        Term("fix", "what to change"),
        Term("fix_short", "the same in one or two sentences with the code to write"),
        Term("about", "`program`, or `trace` for what the file itself lacks"),
        Term(
            "role",
            "`specific`: the fix changes one place; `generic`: it asks for a rebuilding, such as a "
            "CUDA graph; `rest`: that comes after the specific fixes, and its saving is what it "
            "adds to them; `aside`: no typical step has it",
        ),
    ),
)

PREDICTION_FIELDS = Group(
    "prediction",
    "Fields of a prediction",
    "a field of a prediction",
    "`whatif` in the JSON: the length of the steady steps with a change, by a replay of them. "
    "`report.whatif` in Python, or `tracelab.whatif(path)`.",
    (
        Term(
            "baseline_error",
            "by which share of a step the replay without a change is off",
            "0.01 where it is 1 % longer. Beyond 2 % nothing is predicted.",
        ),
        Term("not_replayed", "why nothing is predicted; null where it is"),
        Term("is_of_trace", "true if the trace has no steps, and all of it is replayed once"),
        Term("name", "the finding that is fixed, or the edit"),
        Term("edits", "the changes of the program that are replayed"),
        Term("findings", "the findings whose fixes they are, by position from 0 on"),
        Term("predicted_ns", "the length of a step with the change"),
        Term("low_ns", "the least that it takes, as far as is known"),
        Term("high_ns", "the most that it takes, as far as is known"),
        Term("reason", "why a change has no effect, or a wide interval; null without one"),
    ),
)

SEVERITIES = Group(
    "severities",
    "Severities",
    "a severity",
    "The importance of a finding: by the saving that a replay predicts for its fix or, without a "
    "prediction, by the share that is attributed to it.",
    (
        Term("critical", "the fix saves 10 % of a step or more"),
        Term("warning", "the fix saves 2 % of a step or more, and more than steps differ"),
        Term("info", "less than that, or nothing can be done about it"),
    ),
)

LOSS_KINDS = Group(
    "losses",
    "Losses",
    "a loss",
    "Events that could not be read or linked, counted per file. `traces[].losses` in the JSON.",
    tuple(Term(loss.name, loss.text) for loss in LOSSES),
)

GROUPS = (
    FAMILIES,
    TERMS,
    CAUSES,
    REASONS_UNKNOWN,
    BLOCKERS,
    FINDING_CAUSES,
    ORIGINS,
    LATENESS,
    PIPELINE,
    KINDS,
    BLOCKING_KINDS,
    PATH_KINDS,
    CONSTRAINTS,
    NODE_WAITS,
    EDGE_KINDS,
    PHASES,
    FINDING_FIELDS,
    PREDICTION_FIELDS,
    SEVERITIES,
    LOSS_KINDS,
)


def find_terms(word: str) -> list[tuple[Group, Term]]:
    """What a word means, in every group that has it; capitals and separators do not matter.

    >>> [group.key for group, _ in find_terms("trace boundary")]
    ['causes']
    >>> [term.key for _, term in find_terms("caused_idle_ns")]
    ['caused idle']

    A word that is none by itself stands for those that it is a part of.

    >>> [term.key for _, term in find_terms("steady")]
    ['steady steps', 'steady window', 'steady step']
    """
    wanted = normalized(word)
    terms = [(group, term) for group in GROUPS for term in group.terms]
    exact = [pair for pair in terms if wanted in _names(pair[1])]
    return exact or [
        pair for pair in terms if any(f" {wanted} " in f" {name} " for name in _names(pair[1]))
    ]


def _names(term: Term) -> tuple[str, str]:
    """What a term is found by."""
    return normalized(term.key), normalized(term.name)


def find_group(word: str) -> Group | None:
    """The group of that key or title; None without one.

    >>> find_group("Causes").title
    'Causes of idle time'
    """
    wanted = normalized(word)
    return next(
        (group for group in GROUPS if wanted in (normalized(group.key), normalized(group.title))),
        None,
    )


def nearest(word: str, others: Iterable[str] = ()) -> list[str]:
    """The known words most like an unknown one, at most three; also among some others.

    >>> nearest("exposd")[0]
    'exposed'
    """
    names = [group.key for group in GROUPS]
    names += [name for group in GROUPS for term in group.terms for name in (term.key, term.name)]
    known = {normalized(name): name for name in (*others, *names)}
    return [known[close] for close in difflib.get_close_matches(normalized(word), known, n=3)]


def normalized(word: str) -> str:
    """A word without what does not tell words apart: capitals, separators, the unit.

    >>> normalized("Caused-Idle_ns")
    'caused idle'
    """
    return re.sub(r"[\s_-]+", " ", word).strip().casefold().removesuffix(" ns")
