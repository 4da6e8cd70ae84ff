"""TL903: no Python."""

from tests.build.files import US, call, kernel, launch, python, step, sync_row
from tests.build.finding_events import clean
from tracelab.findings.finding import INFO


def test_no_python_functions(lacks):
    assert lacks(*clean()[1:]) == [("TL903", INFO, 1)]


def waiting(file):
    """A file whose GPU waits for a call of `item` in a function of this source file."""
    return [
        python(f"{file}(3): step", 0, 200 * US),
        launch(US, 2 * US, 1),
        kernel(2 * US, 100 * US, correlation=1),
        python("<built-in method item of Tensor object at 0x7f>", 90 * US, 120 * US),
        call("cudaStreamSynchronize", 91 * US, 119 * US, correlation=8),
        sync_row("Stream Sync", 91 * US, 119 * US, stream=7, correlation=8),
        launch(120 * US, 121 * US, 2),
        kernel(121 * US, 200 * US, correlation=2),
        step(1, 0, 200 * US),
    ]


def test_calls_whose_source_is_not_here(lacks):
    assert lacks(*waiting("gone/train.py")) == [("TL903", INFO, 1)]


def test_calls_whose_source_the_recording_stored(lacks):
    # In line 5 of its `step`, which begins in line 3, it calls `item`.
    scope = ["step", [3], [["item", 5, 5, 20, [], True]], [], [], False]

    assert lacks(*waiting("gone/train.py"), before={"tracelab_source": {"train.py": [scope]}}) == []


def test_source_that_is_here_and_names_no_line(lacks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("def other():\n    pass\n")

    assert lacks(*waiting(tmp_path / "train.py")) == []
