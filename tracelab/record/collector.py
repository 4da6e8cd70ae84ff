"""The collector of GPU activity: Kineto, or Cuspy, the CUPTI collector of newer PyTorch.

CUPTI has one subscriber and never goes back to Kineto's interface: a process has one collector, and
looking for Cuspy must not subscribe.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from tracelab.base.arrays import Record
from tracelab.base.errors import reason_of

Collector: TypeAlias = Literal["kineto", "cuspy"]
CollectorSetting: TypeAlias = Literal["auto", "kineto", "cuspy"]
COLLECTOR_SETTINGS: tuple[str, ...] = get_args(CollectorSetting)

_PACKAGE = "torch.profiler._cuspy"
# LIBCUPTI_MIN_VERSION of torch 2.15, which needs cupti-python to be imported.
MIN_LIBCUPTI = 130300
_DRIVER = "libcuda.so.1"  # without it libcupti 13.2 crashes when asked for its version
_LOG_LEVEL, _SILENT = "KINETO_LOG_LEVEL", "99"  # above all levels, and versions add some

_AFTER_KINETO = "Kineto has recorded in this process before, and a process can have only one"
_AFTER_CUSPY = (
    "this process has used Cuspy, PyTorch's own CUPTI collector, after which Kineto receives no "
    "GPU activity"
)
# CUPTI_ACTIVITY_KIND_CUDA_EVENT of cupti_activity.h.
_CUPTI_KIND_CUDA_EVENT = 36
# Stock Kineto loses event records from here on (pytorch/kineto PR 1552), unless the kind above is
# enabled.
_RECORDS_LOST_SINCE = (12, 9)


class Choice(Record):
    """The collector that records.

    Attributes:
        collector: None if the chosen one must not start.
        reason: why there is none, or why Kineto though this torch has Cuspy; else "".
    """

    collector: Collector | None
    reason: str = ""


def choose_collector(setting: CollectorSetting, *, kineto_was_used: bool) -> Choice:
    """Decide which collector records the GPU now; "auto" is Cuspy wherever it can be used."""
    if cuspy_was_used():
        return Choice(None, _AFTER_CUSPY) if setting == "kineto" else Choice("cuspy")
    if setting == "kineto" or (setting == "auto" and not torch_has_cuspy()):
        return Choice("kineto")
    missing = "; ".join(missing_for_cuspy()) or (_AFTER_KINETO if kineto_was_used else "")
    if not missing:
        return Choice("cuspy")
    return Choice("kineto" if setting == "auto" else None, missing)


def torch_has_cuspy() -> bool:
    """Return True if this torch's profiler supports Cuspy, which records CUDA only."""
    import torch.profiler

    return torch.version.cuda is not None and hasattr(torch.profiler, "CuspyConfig")


def missing_for_cuspy() -> tuple[str, ...]:
    """List the requirements of Cuspy that are missing here, each as a clause, except a GPU."""
    import torch.profiler

    names = ("CuspyConfig", "ProfilerActivityConfig")
    absent = [f"no torch.profiler.{name}" for name in names if not hasattr(torch.profiler, name)]
    absent += ["no CUDA"] if torch.version.cuda is None else []
    missing = [f"torch {torch.__version__} has {' and '.join(absent)}"] if absent else []
    if importlib.util.find_spec("cupti") is None:
        missing.append(_needed("the package is not installed"))
    if missing:
        return tuple(missing)
    try:
        ctypes.CDLL(_DRIVER)
        cupti = importlib.import_module(f"{_PACKAGE}.cupti_python")
        version, needed = cupti.pylibcupti().get_version(), cupti.LIBCUPTI_MIN_VERSION
    except (AttributeError, ImportError, OSError, RuntimeError) as error:
        return (f"libcupti cannot be loaded ({reason_of(error)})",)
    return (_needed(f"libcupti is {_version(version)}", needed),) if version < needed else ()


def _needed(problem: str, libcupti: int = MIN_LIBCUPTI) -> str:
    needed = _version(libcupti)
    return (
        f"libcupti {needed} and the package cupti-python are needed, and {problem}: "
        f"pip install 'cupti-python>={needed}' brings both"
    )


def cuspy_was_used() -> bool:
    """Return True if this process has created Cuspy, which may have a subscription."""
    core = sys.modules.get(f"{_PACKAGE}.core")
    return getattr(getattr(core, "Cuspy", None), "_instance", None) is not None


def cuspy_is_collecting() -> bool:
    """Return True if Cuspy has subscribed to CUPTI; torch itself only logs a failure."""
    core = sys.modules.get(f"{_PACKAGE}.core")
    return core is not None and bool(core.has_live_subscription())


def has_kineto_session() -> bool:
    """Return True if the program still has a profiler with which Kineto recorded a GPU."""
    from torch.autograd.profiler import profile

    # By type, not by isinstance: that would run code of the program's own proxies.
    sessions = [item for item in gc.get_objects() if type(item) is profile]
    return any(is_kineto_session(x) and getattr(x, "entered", False) for x in sessions)


def is_kineto_session(session: Any) -> bool:
    """Return True if Kineto records a GPU in a session; with Cuspy it records only the CPU."""
    return getattr(session, "use_device", None) == "cuda"


@contextmanager
def quiet_kineto() -> Iterator[None]:
    """Keep Kineto's log out of the program's stderr, unless the user has chosen a log level.

    Kineto reads its level once, as the first profiler is prepared.
    """
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = _SILENT
    try:
        yield
    finally:
        os.environ.pop(_LOG_LEVEL, None)


def gpu_activity(collector: Collector) -> Any:
    """Return the GPU's element of a profiler's `activities`."""
    import torch.profiler

    cuda = torch.profiler.ProfilerActivity.CUDA
    if collector == "kineto":
        return cuda
    config = torch.profiler.CuspyConfig(enable_cuda_sync_events=True)
    return {cuda: torch.profiler.ProfilerActivityConfig(profiler_configs=[config])}


def _version(number: int) -> str:
    """CUPTI writes 13.3 as 130300."""
    return f"{number // 10_000}.{number % 10_000 // 100}"


def kineto_loses_records() -> bool:
    """Return True if stock Kineto receives no event records from this torch's CUDA."""
    import torch

    version = re.match(r"(\d+)\.(\d+)", torch.version.cuda or "")
    return version is not None and (int(version[1]), int(version[2])) >= _RECORDS_LOST_SINCE


def switch_event_records(*, on: bool) -> bool:
    """Turn CUPTI's event records on or off in this process; return True if CUPTI accepted it."""
    library = _loaded_cupti()
    if library is None:
        return False
    function = library.cuptiActivityEnable if on else library.cuptiActivityDisable
    return int(function(ctypes.c_int(_CUPTI_KIND_CUDA_EVENT))) == 0


def _loaded_cupti() -> Any:
    """The libcupti that this process has already loaded; a second copy would be another CUPTI."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    paths = {line.split()[-1] for line in maps.splitlines() if "libcupti" in line}
    return ctypes.CDLL(min(paths)) if paths else None
