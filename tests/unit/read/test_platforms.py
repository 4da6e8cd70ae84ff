"""Files of other devices: recognised, and read where their rows say enough."""

from __future__ import annotations

import json

import pytest

from tests.build.files import complete_event, kernel, launch, operator, text, write
from tests.build.rows import US
from tracelab import analyze
from tracelab.base.errors import UnreadableInputError
from tracelab.model.trace import Category
from tracelab.read import cache
from tracelab.read.json.metadata import PLATFORMS, READ_PLATFORMS, platform_of
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources


def process(name, pid=0):
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


def on_xpu(start, end, name="gemm_kernel", *, queue, correlation, cat="kernel"):
    """A row of Kineto's plugin for Intel: no stream, the row's thread is the order of first use."""
    args = {"device": 0, "sycl queue": queue, "l0 queue": "0x5", "correlation": correlation}
    return complete_event(name, cat, start, end, pid=0, tid=0, **args)


def by_intel(name, start, end, correlation, cat="xpu_runtime"):
    return complete_event(name, cat, start, end, correlation=correlation)


XPU = [
    # A copy in queue 64, then a kernel in queue 65; the host waits for it from 20 to 32 us, and
    # launches the next only then.
    by_intel("urEnqueueUSMMemcpy", 0, 1 * US, 1),
    on_xpu(2 * US, 6 * US, "Memcpy M2D (Host (User Allocated) -> Device)", queue=64, correlation=1,
           cat="gpu_memcpy"),
    by_intel("urEnqueueKernelLaunch", 3 * US, 5 * US, 2),
    by_intel("zeCommandListAppendLaunchKernel", 3 * US + 100, 4 * US, 2, "xpu_driver"),
    on_xpu(8 * US, 30 * US, queue=65, correlation=2),
    by_intel("zeEventHostSynchronize", 20 * US, 32 * US, 3, "xpu_driver"),
    by_intel("urEnqueueKernelLaunch", 33 * US, 34 * US, 4),
    on_xpu(36 * US, 40 * US, queue=65, correlation=4),
    # The scope profiler's row of the same kernel, a nanosecond longer on both sides.
    complete_event("metrics: gemm_kernel", "kernel", 36 * US - 1, 40 * US + 1, pid=0, tid=9,
                   kernel_id=1, queue="0x5"),
]  # fmt: skip


class TestIntel:
    @pytest.fixture
    def report(self, tmp_path):
        return analyze(write(tmp_path / "xpu.json", XPU, before={"deviceProperties": []}))

    def test_is_told(self, report, tracelab, tmp_path):
        assert report.traces[0].platform == "Intel XPU"
        path = write(tmp_path / "xpu.json", XPU)
        screen = tracelab("analyze", path).out
        assert "Intel XPU" in screen.splitlines()[0]
        assert "made with CUDA and ROCm" in " ".join(screen.split())
        out = tracelab("analyze", path, "--full").out
        assert "Intel XPU · GPU 0" in out
        assert "the causes and fixes only hints" in " ".join(out.split())

    def test_queues_are_streams_and_all_work_has_its_launch(self, report):
        [whole] = report.windows
        [device] = whole.devices
        assert [(x.stream, x.busy_ns) for x in device.streams] == [(64, 4 * US), (65, 26 * US)]
        assert report.traces[0].losses == {}
        # 2 to 6, 8 to 30 and 36 to 40 of 2 to 40.
        assert (device.busy_ns, device.idle_ns) == (30 * US, 8 * US)
        assert (device.copy_ns, device.compute_ns) == (4 * US, 26 * US)

    def test_the_call_that_waits_is_found(self, report):
        [call] = report.syncs
        # Idle from 30 to 36 us: 2 us in the call, and until the next work arrives.
        assert (call.api, call.kind) == ("zeEventHostSynchronize", "event")
        assert (call.blocked_ns, call.caused_idle_ns) == (12 * US, 6 * US)


MTIA = [
    complete_event("runFunction - job_prep_and_submit_for_execution", "mtia_runtime", 0, US,
                   correlation=1),
    complete_event("add", "mtia_ccp_events", 2 * US, 5 * US, pid=9, tid=4, correlation=1, stream=1,
                   column="0", row="0"),
    complete_event("dma_request", "mtia_ccp_events", 5 * US, 8 * US, pid=9, tid=4, correlation=2,
                   stream=1, direction="HOST_TO_DEVICE"),
    complete_event("event_wait", "mtia_ccp_events", 8 * US, 90 * US, pid=9, tid=4, stream=1),
    complete_event("synchronizeStream", "mtia_runtime", 6 * US, 9 * US, correlation=3),
]  # fmt: skip


def test_rows_of_mtia_are_kernels_copies_and_waits(tmp_path):
    trace = read_trace(write(tmp_path / "mtia.json", MTIA))
    assert [Category(x) for x in trace.category] == [
        Category.RUNTIME,
        Category.KERNEL,
        Category.MEMCPY,
        Category.OTHER,
        Category.RUNTIME,
    ]
    report = analyze(tmp_path / "mtia.json")
    [device] = report.windows[0].devices
    assert (device.device, device.busy_ns, report.traces[0].platform) == (9, 6 * US, "Meta MTIA")
    assert [(call.api, call.kind) for call in report.syncs] == [("synchronizeStream", "stream")]


@pytest.mark.parametrize("name", ["event_wait", "event_record"])
def test_events_of_mtia_are_no_kernels(tmp_path, name):
    lane = {"pid": 9, "tid": 4, "stream": 1}
    event = complete_event(name, "mtia_ccp_events", 8 * US, 90 * US, **lane)
    trace = read_trace(write(tmp_path / "mtia.json", [*MTIA[:2], event]))
    assert Category(trace.category[2]) == Category.OTHER


def test_musa_has_the_calls_of_cuda(tmp_path):
    events = [
        complete_event("musaLaunchKernel", "privateuse1_runtime", 0, US, correlation=1),
        kernel(2 * US, 9 * US, correlation=1),
        complete_event("musaStreamSynchronize", "privateuse1_runtime", 3 * US, 10 * US),
    ]
    report = analyze(write(tmp_path / "musa.json", events))
    assert report.traces[0].losses == {}
    assert [(call.api, call.kind) for call in report.syncs] == [("musaStreamSynchronize", "stream")]


def test_mlu_is_read(tmp_path):
    events = [
        complete_event("cnInvokeKernel", "mlu_runtime", 0, US, correlation=1),
        kernel(2 * US, 9 * US, correlation=1),
        kernel(9 * US, 10 * US, "Memcpy HtoD", correlation=2, cat="mlu_memcpy"),
        complete_event("cnrtQueueSync", "mlu_runtime", 3 * US, 10 * US),
    ]
    report = analyze(write(tmp_path / "mlu.json", events))
    [device] = report.windows[0].devices
    assert (device.compute_ns, device.copy_ns) == (7 * US, US)
    assert [(call.api, call.kind) for call in report.syncs] == [("cnrtQueueSync", "stream")]
    assert report.traces[0].platform == "Cambricon MLU"


@pytest.mark.parametrize(
    ("events", "name"),
    [
        (
            [
                process("Ascend Hardware", 31),
                {"ph": "X", "name": "MatMulV3", "pid": 31, "tid": 1, "ts": "1717575960208020.758",
                 "dur": 0.45, "args": {"Task Type": "AI_CORE", "Physic Stream Id": 1}},
            ],
            "Huawei Ascend NPU",
        ),
        (
            [
                process("/device:TPU:0", 1),
                {"ph": "X", "pid": 1, "tid": 3, "ts": 0.1, "dur": 0.01, "name": "fusion.1",
                 "args": {"device_duration_ps": "10000"}},
                {},
            ],
            "Google TPU, or another device of XLA",
        ),
        # Kineto's own categories, but lines that are nested views of the same time.
        (
            [process("/device:TPU:0", 1), kernel(0, 9 * US, "XLA Modules"), kernel(0, 4 * US)],
            "Google TPU, or another device of XLA",
        ),
        ([complete_event("GEMM", "hpu_op", 0, 9 * US, pid=0, tid=6001)], "Intel Gaudi"),
        (
            [process("GPU2", 2), complete_event("CopyHostToDevice", "", 0, 9 * US, pid="2")],
            "rocmProfileData (rpd)",
        ),
    ],
    ids=["ascend", "xla", "xla_kineto", "gaudi", "rpd"],
)  # fmt: skip
@pytest.mark.parametrize("layout", ["kineto", "bare"])
def test_what_is_not_read_is_named(tracelab, tmp_path, events, name, layout):
    path = write(tmp_path / "other.json", events, layout=layout)
    for command in (("analyze",), ("timeline",), ("check", "--max-idle", "5")):
        ran = tracelab(command[0], path, *command[1:])
        assert (ran.code, ran.out) == (3, "")
        assert f"a trace of {name}, " in ran.err
        assert "CUDA, ROCm, Intel XPU" in ran.err


@pytest.mark.parametrize("name", ["aten::_mps_convolution", "aten::mps_convolution_backward"])
def test_a_program_on_a_mac_is_told_that_its_gpu_is_not_recorded(tmp_path, name):
    path = write(tmp_path / "mac.json", [operator(name, 0, 9 * US)])
    with pytest.raises(UnreadableInputError, match="a program on Apple's MPS, whose GPU"):
        analyze(path)


def test_cuda_and_rocm_are_no_other_platform(tmp_path):
    events = [process("python", 1), launch(0, US, 1), kernel(2 * US, 3 * US, correlation=1)]
    assert read_trace(write(tmp_path / "a.json", events)).info.platform == ""
    assert platform_of(["kernel", "cuda_runtime", "cpu_op"], ["python", "", "GPU"]) is None


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("xpu_runtime", "Intel XPU"),
        ("xpu_driver", "Intel XPU"),
        ("xpu_sync", "Intel XPU"),
        ("mtia_runtime", "Meta MTIA"),
        ("mtia_ccp_events", "Meta MTIA"),
        ("mtia_insight", "Meta MTIA"),
        ("mlu_runtime", "Cambricon MLU"),
        ("mlu_memcpy", "Cambricon MLU"),
        ("mlu_memset", "Cambricon MLU"),
        ("hpu_op", "Intel Gaudi"),
        ("privateuse1_runtime", "Moore Threads MUSA, or another device of PyTorch's PrivateUse1"),
        ("privateuse1_driver", "Moore Threads MUSA, or another device of PyTorch's PrivateUse1"),
    ],
)
def test_one_category_of_a_platform_tells_it(category, name):
    assert platform_of(["kernel", category, "cpu_op"], ["python"]).name == name


@pytest.mark.parametrize(
    ("process", "name"),
    [
        ("Ascend Hardware", "Huawei Ascend NPU"),
        ("CANN", "Huawei Ascend NPU"),
        ("/device:TPU:0", "Google TPU, or another device of XLA"),
        ("/device:TPU:0 (pid 3)", "Google TPU, or another device of XLA"),
        ("GPU12", "rocmProfileData (rpd)"),
    ],
)
def test_one_process_of_a_platform_tells_it(process, name):
    assert platform_of(["kernel", "cpu_op"], ["python", process]).name == name


def test_the_platform_is_kept_with_the_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "MIN_FILE_BYTES", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "xpu.json"
    path.write_bytes(text(XPU))
    [source] = find_sources([str(path)])
    assert cache.load_trace(source).info.platform == cache.load_trace(source).info.platform
    assert cache.load_trace(source).info.platform == "Intel XPU"
    assert any((tmp_path / "cache").rglob("*.columns"))


def test_categories_are_known_in_any_case(tmp_path):
    events = [by_intel("urEnqueueKernelLaunch", 0, US, 1, "XPU_RUNTIME")]
    assert read_trace(write(tmp_path / "a.json", events)).info.platform == "Intel XPU"


def test_a_report_of_before_has_no_platform(tmp_path, tracelab):
    path = write(tmp_path / "a.json", [launch(0, US, 1), kernel(2 * US, 3 * US, correlation=1)])
    report = json.loads(tracelab("analyze", path, "--json", "-").out)
    del report["traces"][0]["platform"]
    old = tmp_path / "old.json"
    old.write_text(json.dumps(report))
    assert tracelab("check", old, "--max-idle", "50").code == 0


def test_names_are_told_apart_and_some_are_read():
    assert len({platform.name for platform in PLATFORMS}) == len(PLATFORMS)
    assert READ_PLATFORMS[0] == "Intel XPU"
