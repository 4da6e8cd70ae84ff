"""For tests of the text: reports with a default for all that a test is not about."""

from dataclasses import replace

from tests.build.reports import report
from tracelab.findings.finding import Finding, Savings, Where
from tracelab.findings.registry import about_of
from tracelab.measures.overlap import StreamTime
from tracelab.measures.window_times import SteadyMetrics
from tracelab.render.document import detailed
from tracelab.render.section import Tone
from tracelab.report.schema import (
    BlockingCallMetrics,
    DeviceMetrics,
    EventLinks,
    Job,
    TraceInfo,
    WindowMetrics,
)

MS = 1_000_000


NASTY = "[red]a[/] \x1b[31mb\x1b[0m\nc\r\td\u202ee\u2066f\ud800g :smile: \x9b1m"


def make_device(device=0, *, idle_ns=0, **figures):
    """A device that was busy for 10 ms, unless told otherwise; what is not exposed is compute."""
    busy_ns = figures.get("busy_ns", 10 * MS)
    exposed_ns = figures.get("exposed_comm_ns", 0) + figures.get("exposed_copy_ns", 0)
    defaults = {
        "device": device,
        "busy_ns": busy_ns,
        "idle_ns": idle_ns,
        "compute_ns": busy_ns - exposed_ns,
        "comm_ns": 0,
        "copy_ns": 0,
        "memset_ns": 0,
        "exposed_comm_ns": 0,
        "exposed_copy_ns": 0,
        "blocking_comm_ns": 0,
        "blocking_copy_ns": 0,
        "comm_compute_overlap_ns": 0,
        "copy_compute_overlap_ns": 0,
        "streams": (StreamTime(7, 10 * MS, 3),),
        "bubbles": {},
        "unknown_reasons": {},
    }
    return DeviceMetrics(**defaults | figures)


def make_window(*devices, rank=0, step=None, start_ns=0):
    devices = devices or (make_device(),)
    length_ns = devices[0].busy_ns + devices[0].idle_ns
    return WindowMetrics(rank, step, start_ns, start_ns + length_ns, devices)


def make_trace(**facts):
    defaults = {
        "path": "run/trace.json.gz",
        "rank": 0,
        "rank_source": "metadata",
        "objects": 20,
        "events": 10,
        "gpu_activities": 3,
        "software": {},
        "gpus": {},
        "losses": {},
        "event_links": EventLinks(0, 0, 0),
        "unrecognised": (),
        "launched_only": None,
    }
    return TraceInfo(**defaults | facts)


def make_report(*windows, traces=None, provenance=None, **parts):
    return report(
        provenance=provenance,
        traces=traces or (make_trace(),),
        windows=windows or (make_window(),),
        **parts,
    )


def make_finding(rule="TL101", *, severity="critical", bound_ns=4 * MS, **figures):
    defaults = {
        "title": "`item()` makes the CPU wait for the GPU",
        "rank": 0,
        "step": None,
        "cause": "host_sync",
        "cost_ns": 5 * MS,
        "where": Where(count=3, annotation="backward"),
        "evidence": (1,),
        "fix": "Read it later.",
        "fix_short": "Read it later.",
        "about": about_of(rule),
    }
    return Finding(rule=rule, severity=severity, bound_ns=bound_ns, **defaults | figures)


def make_priced(saves_ms, low_ms, high_ms, rule="TL101", **figures):
    """A finding whose fix saves so much, ms."""
    saved = {"saves_ns": saves_ms, "saves_low_ns": low_ms, "saves_high_ns": high_ms}
    return make_finding(rule, **{name: round(ms * MS) for name, ms in saved.items()}, **figures)


def make_savings(saves_ms=4, low_ms=3, high_ms=5, *, edits=("load=0", "queues"), **figures):
    """What all fixes save of a step of 10 ms with the profiler, unless told otherwise."""
    saved = [None if ms is None else round(ms * MS) for ms in (saves_ms, low_ms, high_ms)]
    defaults = {
        "rank": 0,
        "step": None,
        "step_ns": 10 * MS,
        "basis": "profiled",
        "is_of_trace": False,
        "edits": edits,
        "not_replayed": None,
    }
    saves, low, high = saved
    known = {"saves_ns": saves, "saves_low_ns": low, "saves_high_ns": high}
    return Savings(**defaults | known | figures)


def make_sync(api="cudaStreamSynchronize", *, rank=0, step=None, **figures):
    defaults = {
        "kind": "stream",
        "count": 5,
        "blocked_ns": 9 * MS,
        "caused_idle_ns": 1 * MS,
        "idle_after_ns": 0,
        "waited_for": None,
        "operator": "aten::item",
        "annotation": None,
        "function": "train",
        "file": "src/train.py",
        "line": None,
    }
    return BlockingCallMetrics(rank, step, api, **defaults | figures)


def make_steady(*devices, rank=0, steps=(1, 2), step_ns=10 * MS, **figures):
    """Steady steps of equal length in which a device was busy throughout, unless told otherwise."""
    length_ns = len(steps) * step_ns
    devices = devices or (make_device(busy_ns=length_ns),)
    defaults = {
        "steps": tuple(steps),
        "start_ns": 0,
        "end_ns": length_ns,
        "step_ns": step_ns,
        "lengths_ns": (step_ns,) * len(steps),
        "unprofiled_step_ns": None,
        "gpu_floor_ns": max(device.busy_ns for device in devices) // len(steps),
        "device": max(devices, key=lambda device: device.busy_ns).device,
        "left_out": (),
        "basis": "profiled",
        "baseline_error": None,
        "not_replayed": None,
        "unprofiled_ns": None,
        "devices": devices,
    }
    return SteadyMetrics(rank, None, **defaults | figures)


def make_steps(lengths_ms, rank=0):
    whole = make_window(make_device(busy_ns=sum(lengths_ms) * MS), rank=rank)
    return (
        whole,
        *(
            make_window(make_device(busy_ns=length * MS), rank=rank, step=number)
            for number, length in enumerate(lengths_ms)
        ),
    )


def make_steady_report(*devices, findings=(), trace=None, savings=None, **figures):
    """A file of the steps 0, 1 and 2, of 10 ms each; 1 and 2 are steady."""
    made = make_report(
        *make_steps([10, 10, 10]),
        steady=(make_steady(*devices, **figures),),
        findings=findings,
        traces=(trace or make_trace(),),
    )
    return made if savings is None else replace(made, savings=(savings,))


def make_job_report(ranks=4, findings=(), *, job=None, **of_last):
    """A job whose ranks have the steps 0, 1 and 2, of 10 ms each; the last rank may differ."""
    numbers = range(ranks)
    return make_report(
        *(window for rank in numbers for window in make_steps([10, 10, 10], rank=rank)),
        traces=tuple(make_trace(path=f"run/r{rank}.json", rank=rank) for rank in numbers),
        steady=tuple(
            make_steady(rank=rank, **(of_last if rank == ranks - 1 else {})) for rank in numbers
        ),
        findings=findings,
        job=job or Job(tuple(numbers)),
    )


def sections_of(report, **options):
    return [
        section for chapter in detailed(report, **options).chapters for section in chapter.sections
    ]


def section_of(report, title, **options):
    found = [x for x in sections_of(report, **options) if x.title == title]
    assert len(found) == 1, f"{title!r} is there {len(found)} times"
    return found[0]


def titles_of(report, **options):
    return [x.title for x in sections_of(report, **options) if x.title]


def headlines_of(report):
    return [x.lines for x in sections_of(report) if x.tone is Tone.STRONG]
