"""What is printed and drawn once all ranks of a machine have written their traces."""

import shutil
from pathlib import Path
from types import SimpleNamespace

from tracelab.record.capture import announce

TRACES = Path(__file__).parents[3] / "traces"


def recorded(folder, name, ranks):
    """The recorder of rank 0, whose job has written these bundled files."""
    for rank in range(ranks):
        file = f"{name}_rank{rank}.pt.trace.json.gz"
        shutil.copy(TRACES / file, folder / file)
    return SimpleNamespace(
        rank=0,
        local_world_size=ranks,
        has_gpu=True,
        path=folder / f"{name}_rank0.pt.trace.json.gz",
        created_s=0,
    )


def test_a_job_has_one_report_and_one_picture(tmp_path, capsys):
    announce(recorded(tmp_path, "straggler_more_work", 2), wait_s=0)
    told = capsys.readouterr()
    assert "Rank 0 makes rank 1 wait" in told.out
    assert [file.name for file in tmp_path.glob("*.png")] == ["timeline.png"]
    assert told.err.count("drew ") == 1


def test_one_file_has_its_own_picture(tmp_path, capsys):
    recorder = recorded(tmp_path, "straggler_more_work", 1)
    announce(recorder, wait_s=0)
    assert "makes rank 1 wait" not in capsys.readouterr().out
    assert (tmp_path / "timeline.png").exists()


def test_other_ranks_print_nothing(tmp_path, capsys):
    recorder = recorded(tmp_path, "straggler_more_work", 1)
    recorder.rank = 1
    announce(recorder, wait_s=0)
    assert capsys.readouterr().out == ""
