import os
import pkgutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tracelab.record
from tracelab.record import pytorch

ROOT = Path(__file__).parents[3]
WITHOUT_TORCH = "import sys\nsys.modules['torch'] = None\n"
INSTALL = "recording needs torch: pip install 'tracelab-gpu[record]'"

MODULES = [
    module.name
    for module in pkgutil.walk_packages(tracelab.record.__path__, "tracelab.record.")
    # These two are classes of the framework that they are named after.
    if module.name.rpartition("frameworks.")[2] not in {"lightning", "transformers"}
]


def run_without_torch(code, folder):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + textwrap.dedent(code)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def test_every_module_imports_without_torch(tmp_path):
    assert {"tracelab.record.recorder", "tracelab.record.frameworks"} < set(MODULES)
    ran = run_without_torch(
        f"""
        from importlib import import_module
        for name in {MODULES}:
            import_module(name)
        import tracelab
        from tracelab import capture, profile_step
        print(hasattr(tracelab, "capture"), *(name for name in sys.modules if "torch." in name))
        """,
        tmp_path,
    )
    assert (ran.stdout, ran.stderr) == ("True\n", "")


def test_recording_says_what_it_needs(tmp_path):
    ran = run_without_torch(
        """
        import tracelab
        from tracelab.base.errors import MissingSupportError
        from tracelab.record import hooks, recorder
        from tracelab.record import frameworks

        for call in [
            lambda: tracelab.capture(),
            lambda: tracelab.profile_step(print),
            lambda: tracelab.profile_step(skip=1)(print),
            lambda: recorder.Recorder("x.json"),
            lambda: frameworks.TrainingCallback(),
            lambda: hooks.watch_optimizer_step(print),
            lambda: hooks.watch_annotation("step", print),
            lambda: hooks.watch_session(print, print),
        ]:
            try:
                call()
            except MissingSupportError as error:
                print(error)
        """,
        tmp_path,
    )
    assert (ran.stdout, ran.stderr) == (f"{INSTALL}\n" * 8, "")
    assert list(tmp_path.iterdir()) == []


def test_run_has_its_own_sentence(tmp_path, snapshot):
    ran = run_without_torch(
        """
        from tracelab.cli.main import main
        sys.argv = ["tracelab", "run", "train.py"]
        sys.exit(main())
        """,
        tmp_path,
    )
    assert ran.returncode == 4
    assert ran.stderr == snapshot


def test_a_torch_that_lacks_a_part_says_so_itself(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("import a_part_of_torch")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(ModuleNotFoundError, match="a_part_of_torch"):
        pytorch.require_pytorch()


@pytest.mark.parametrize(
    ("cuda", "hip", "counted", "has_driver", "lacks"),
    [
        (None, None, -1, False, True),
        (None, "6.2", -1, False, False),  # not known without initializing the device
        ("13.0", None, 2, True, False),
        ("13.0", None, 0, True, True),  # CUDA_VISIBLE_DEVICES is empty
        ("13.0", None, -1, True, False),  # NVML does not answer
        ("13.0", None, -1, False, True),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the driver has another name")
def test_a_gpu_is_lacking_only_where_that_is_certain(
    monkeypatch, cuda, hip, counted, has_driver, lacks
):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: counted)
    monkeypatch.setattr(pytorch, "_can_load", lambda _: has_driver)
    assert pytorch.lacks_gpu() is lacks
