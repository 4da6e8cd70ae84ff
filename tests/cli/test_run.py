import subprocess
import sys
import textwrap

import pytest

from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources

torch = pytest.importorskip("torch", reason="torch is not installed")

SCRIPT = """
    import sys
    print("begun", file=sys.stderr)
    import torch
    assert sys.stdout is sys.__stdout__  # as it would be alone
    def step(model, optimizer):
        with torch.profiler.record_function("my_region"):
            optimizer.zero_grad()
            model(torch.randn(8, 64)).square().mean().backward()
            optimizer.step()
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(int(sys.argv[1])):
        step(model, optimizer)
    if "--fail" in sys.argv:
        raise ValueError("boom")
    if "--exit" in sys.argv:
        sys.exit(3)
    print("done", i)
"""


@pytest.fixture
def run(tmp_path):
    """Run a script in a process of its own: what it hooks stays hooked."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))

    def run(*options, steps=30, more=()):
        command = ["-m", "tracelab", "run", "-o", str(tmp_path / "out"), *options]
        arguments = [str(script), str(steps), *more]
        return subprocess.run(
            [sys.executable, *command, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return run


def recorded_steps(folder):
    trace = read_trace(find_sources([str(folder / "out" / "train.pt.trace.json.gz")])[0])
    return sum(name.startswith("ProfilerStep#") for name in trace.strings)


without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


@without_gpu
@pytest.mark.parametrize(
    "options",
    [
        [],
        pytest.param(["--step-on", "step"], marks=pytest.mark.slow),
        pytest.param(["--step-on", "my_region"], marks=pytest.mark.slow),
    ],
    ids=lambda options: options[-1:] or "-",
)
def test_steps_are_found_and_recorded(run, tmp_path, options):
    ran = run("--steps", "3", *options)
    assert (ran.returncode, ran.stdout) == (0, "done 29\n")
    # Nothing of Kineto: the script's own line stands between two of tracelab.
    before, begun, after = ran.stderr.splitlines()
    assert begun == "begun"
    assert "no GPU here" in before
    assert "recorded" in after
    assert recorded_steps(tmp_path) == 3


@without_gpu
@pytest.mark.slow
def test_a_log_level_of_kineto_that_the_user_has_chosen_stays(run, monkeypatch):
    monkeypatch.setenv("KINETO_LOG_LEVEL", "0")
    assert "Profiler" in run("--skip", "1", "--steps", "1").stderr


@without_gpu
@pytest.mark.slow
def test_program_can_end_with_the_recording(run, tmp_path):
    ran = run("--stop-after", "--skip", "1", "--steps", "1", steps=10_000_000)
    assert ran.stdout == ""
    assert recorded_steps(tmp_path) == 1


@pytest.mark.slow
@without_gpu
def test_exception_in_the_script_is_its_own(run, tmp_path):
    # GIVEN 18 steps before the recording, two recorded, and a failure in the third of four
    ran = run(steps=20, more=["--fail"])
    assert ran.returncode == 1
    assert "ValueError: boom" in ran.stderr
    assert recorded_steps(tmp_path) == 3


@without_gpu
@pytest.mark.slow
def test_exit_in_the_recorded_steps_keeps_its_code_and_the_recording(run, tmp_path):
    ran = run(steps=20, more=["--exit"])
    assert (ran.returncode, ran.stdout) == (3, "")
    assert recorded_steps(tmp_path) == 3


@pytest.mark.slow
def test_a_fork_of_the_script_ends_as_it_would(tmp_path):
    # GIVEN a script whose child ends by itself, before the script's own first step
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
            import os, sys, torch
            child = os.fork()
            if child == 0:
                sys.exit(0)
            print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            """)
    )
    command = [sys.executable, "-m", "tracelab", "run", "-o", str(tmp_path / "out"), str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ran.stdout == "child 0\n"
    assert ran.stderr.count("no step completed") == 1


@pytest.mark.slow
def test_too_few_steps_are_told(run):
    ran = run(steps=7)
    assert ran.returncode == 0
    assert "7 steps, too few" in ran.stderr
    assert "--skip 1" in ran.stderr


@pytest.mark.slow
def test_script_without_a_step_is_told(run, snapshot):
    ran = run("--step-on", "nothing_like_it")
    assert ran.returncode == 0
    assert "no step completed" in ran.stderr
    assert ran.stderr.splitlines()[-2:] == snapshot


@pytest.mark.slow
def test_function_that_no_module_has_is_told(run):
    ran = run("--step-on", "textwrap:no_such")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.endswith("tracelab: --step-on textwrap:no_such: no_such\n")
    assert "begun" not in ran.stderr


@pytest.mark.skipif(hasattr(torch.profiler, "CuspyConfig"), reason="this torch has Cuspy")
def test_a_collector_that_torch_does_not_have_is_an_error_before_the_script_runs(
    tracelab, tmp_path, snapshot
):
    (script := tmp_path / "train.py").write_text("print('ran')")
    ran = tracelab("run", "-o", tmp_path / "out", "--collector", "cuspy", script)
    assert (ran.code, ran.out) == (4, "")
    assert ran.err == snapshot
    assert "has no torch.profiler.CuspyConfig" in ran.err
    assert not (tmp_path / "out").exists()


def test_whole_run_has_no_steps(tracelab):
    ran = tracelab("run", "--whole", "--stop-after", "train.py")
    assert ran.code == 2
    assert "--whole" in ran.err


@pytest.mark.parametrize("first", [0, 17])
@pytest.mark.slow
def test_a_script_that_profiles_itself_keeps_its_profile(tmp_path, first):
    # GIVEN a script with a profiler of its own, from its start or when the other one is warming up
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(f"""
            import torch
            model = torch.nn.Linear(4, 4)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            def train(steps):
                for _ in range(steps):
                    model(torch.randn(2, 4)).sum().backward()
                    optimizer.step()
            train({first})
            with torch.profiler.profile() as profiler:
                train(40)
            events = profiler.key_averages()
            print(sum(event.key == "aten::linear" and event.count for event in events))
            """)
    )
    command = [sys.executable, "-m", "tracelab", "run", "-o", str(tmp_path / "out"), str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    # THEN that one has it all, and it is said why the other has nothing
    assert ran.stdout == "40\n"
    messages = [line for line in ran.stderr.splitlines() if line.startswith("tracelab:")]
    assert sum("runs its own profiler" in message for message in messages) == 1
    assert not any("recorded /" in message for message in messages)
    assert ran.returncode == 0


@pytest.mark.slow
def test_a_full_disk_does_not_make_a_script_fail(run, tmp_path, monkeypatch):
    """GIVEN a limit on the size of a file that no trace keeps to, as a disk that becomes full"""
    import resource

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # it would be cut off at the limit, too
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, before[1]))
    try:
        ran = run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert ran.returncode == 0
    assert "cannot write" in ran.stderr
    assert list((tmp_path / "out").iterdir()) == []
