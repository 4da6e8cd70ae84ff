import gzip
import json

import pytest

from tracelab import find_sources, read_trace

torch = pytest.importorskip("torch", reason="torch is not installed")
capture_module = pytest.importorskip("tracelab.capture")
Capture = capture_module.Capture


def work():
    return torch.randn(32, 32) @ torch.randn(32, 32)


def run(capture, calls):
    with capture:
        for _ in range(calls):
            work()
            capture.step()


def steps_in(path):
    trace = read_trace(find_sources([str(path)])[0])
    return [name for name in trace.strings if name.startswith("ProfilerStep#")]


def test_records_the_steps_after_the_warmup(tmp_path):
    path = tmp_path / "new folder" / "cpu.pt.trace.json.gz"
    capture = Capture(path, steps=2, warmup=1)
    run(capture, capture.calls)
    assert steps_in(path) == ["ProfilerStep#1", "ProfilerStep#2"]


def test_further_steps_change_nothing(tmp_path):
    path = tmp_path / "cpu.pt.trace.json"
    capture = Capture(path, steps=1, warmup=1)
    with capture:
        for _ in range(capture.calls):
            work()
            capture.step()
        written = path.read_bytes()
        for _ in range(5):
            work()
            capture.step()
    assert path.read_bytes() == written


def test_leaving_early_writes_what_there_is(tmp_path):
    path = tmp_path / "cpu.pt.trace.json"
    run(Capture(path, steps=5, warmup=1), calls=3)
    assert steps_in(path)[:2] == ["ProfilerStep#1", "ProfilerStep#2"]


def test_an_error_in_the_loop_passes_and_leaves_the_trace(tmp_path):
    path = tmp_path / "cpu.pt.trace.json"
    capture = Capture(path, steps=5, warmup=1)

    def fail_in_the_loop():
        with capture:
            for number in (2, 1, 0):
                work()
                capture.step()
                1 / number

    with pytest.raises(ZeroDivisionError):
        fail_in_the_loop()
    assert "ProfilerStep#1" in steps_in(path)


def test_file_says_how_it_was_made(tmp_path):
    path = tmp_path / "cpu.pt.trace.json.gz"
    capture = Capture(path, steps=1, warmup=1, metadata={"workload": "mine"})
    run(capture, capture.calls)
    about = json.loads(gzip.decompress(path.read_bytes()))["tracelab"]
    assert about["torch"] == torch.__version__
    assert about["workload"] == "mine"
    assert about["event_records"] == (
        "cupti" if capture_module._kineto_loses_records() else "kineto"
    )


def test_stacks_are_recorded_on_request(tmp_path):
    path = tmp_path / "cpu.pt.trace.json"
    capture = Capture(path, steps=1, warmup=1, stacks=True)
    run(capture, capture.calls)
    trace = read_trace(find_sources([str(path)])[0])
    assert any(name.endswith(": work") for name in trace.strings)


@pytest.mark.parametrize("counts", [{"steps": 0}, {"warmup": 0}])
def test_counts_must_be_positive(tmp_path, counts):
    with pytest.raises(ValueError, match="at least 1"):
        Capture(tmp_path / "x.json", **counts)


@pytest.mark.parametrize(
    ("version", "lost"), [(None, False), ("12.8", False), ("12.9", True), ("13.0", True)]
)
def test_records_are_lost_from_cuda_12_9_on(monkeypatch, version, lost):
    monkeypatch.setattr(torch.version, "cuda", version)
    assert capture_module._kineto_loses_records() is lost


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has loaded CUPTI here")
def test_without_cupti_the_records_stay_off_with_a_warning():
    with pytest.warns(UserWarning, match="no CUPTI"):
        assert capture_module._switch_event_records(on=True) is False


@pytest.mark.gpu
def test_gpu_capture_names_what_each_stream_waited_for(tmp_path):
    path = tmp_path / "gpu.pt.trace.json.gz"
    side = torch.cuda.Stream()
    matrix = torch.randn(1024, 1024, device="cuda")
    capture = Capture(path, steps=2, warmup=1)
    with capture:
        for _ in range(capture.calls):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                product = matrix @ matrix
            torch.cuda.current_stream().wait_stream(side)
            product @ matrix
            capture.step()
    from tracelab import analyze

    links = analyze(str(path)).traces[0].event_links
    assert links.exact == 4
    assert links.unresolved == 0
