"""Training scripts as they are written, small enough for a CPU, recorded by ``tracelab run``."""

import subprocess
import sys
from pathlib import Path

import pytest

from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources

torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = pytest.mark.frameworks


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize(
    ("program", "needed", "arguments", "says"),
    [
        (
            "image_classifier.py",
            (),
            "--batch-size 2 --size 16 --width 8 --blocks 1 --workers 0 --steps 24",
            "20: loss ",
        ),
        (
            "language_model.py",
            (),
            "--batch-size 2 --length 8 --width 16 --heads 2 --layers 1 --accumulate 2 --steps 24",
            "20: loss ",
        ),
        (
            "trainer_finetune.py",
            ("transformers", "accelerate"),
            "--batch-size 2 --length 16 --hidden 64 --layers 1 --steps 24",
            "steps a second",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.endswith(".py") else "",
)
def test_usual_training_scripts_run_unchanged(tmp_path, program, needed, arguments, says):
    for library in needed:
        pytest.importorskip(library, reason=f"{library} is not installed")
    script = Path(__file__).parents[1] / "programs" / program
    command = [sys.executable, "-m", "tracelab", "run", str(script), *arguments.split()]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    assert says in ran.stdout
    assert "there is no GPU here" in ran.stderr
    [source] = find_sources([str(tmp_path / "tracelab-run")])
    steps = [name for name in read_trace(source).strings if name.startswith("ProfilerStep#")]
    assert steps == [f"ProfilerStep#{number}" for number in (2, 3, 4, 5)]
