"""Profile a loop from within the program: record some steps, then report on them and draw them."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from html import escape
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from tracelab.analysis.analysis import Analysis, analyze_source
from tracelab.analysis.reports import analyze_file, merge_results
from tracelab.base.errors import MissingSupportError, TracelabError, UsageError
from tracelab.base.options import DEFAULTS, require_types
from tracelab.outputs.output import Request
from tracelab.outputs.picture import draw
from tracelab.outputs.registry import reduce_file, write_files
from tracelab.read.sources import find_sources
from tracelab.record.collector import CollectorSetting
from tracelab.record.hooks import around
from tracelab.record.recorder import Recorder
from tracelab.report.schema import Report
from tracelab.system.console import output_in_color, output_width, report_crash, tell, write_result

if TYPE_CHECKING:
    from tracelab.render.picture.save import Picture

FOLDER = Path("tracelab-run")
# For the other ranks of this machine to write their files.
MAX_WAIT_S = 60.0
_WAIT_AFTER_ERROR_S = 5.0
_POLL_S = 0.2
_NO_GPU = "there is no GPU here: the file contains only CPU events, so there is nothing to analyze"

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class capture(Recorder):  # noqa: N801 (like torch.profiler.profile, it is used as a statement)
    """Record some steps of a loop, then report on them and draw them.

    Example::

        with tracelab.capture() as cap:
            for batch in loader:
                train(batch)
                cap.step()
        cap.report()
        cap.png("timeline.png")

    In a notebook the report and the picture show themselves, and `cap` shows both.

    Args:
        path: the trace to write, as of `Recorder`.
        skip: number of steps to leave alone, so that what is compiled or cached at first is, and a
            data loader has used up what it had prepared (twice its number of workers).
        steps: number of steps to record, after eight more, or up to 52 short ones, for timing and
            warm-up (see `Recorder`).
        stacks: record Python functions: without them no line is named. Slows the host, which the
            analysis knows of.
        shapes: record the operators' input shapes, from which rates of work are computed.
        memory: record what PyTorch's allocator holds.
        print_report: when all is recorded, print the report and draw ``timeline.png`` beside the
            trace. In a job of several ranks the first one does, for all of its machine.
        settings: the others of `Recorder`, `collector` among them.

    Raises:
        MissingSupportError: torch is not installed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = FOLDER / "steps.pt.trace.json.gz",
        *,
        skip: int = 10,
        steps: int = 4,
        stacks: bool = True,
        shapes: bool = False,
        memory: bool = False,
        print_report: bool = False,
        **settings: Any,
    ) -> None:
        require_types(print_report=(print_report, bool))
        super().__init__(
            path,
            skip=skip,
            steps=steps,
            stacks=stacks,
            shapes=shapes,
            memory=memory,
            **settings,
        )
        self._prints_report = print_report
        self._finished_analysis: Analysis | None = None
        self._is_announced = False

    def step(self) -> None:
        """Say that one step of the loop has ended."""
        super().step()
        if self._is_announced or self.is_fork:
            return
        if self.done:
            self._announce(wait_s=MAX_WAIT_S)
        elif self.over:
            self._announce_nothing()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        if self._is_announced or self.is_fork:
            return
        if self.done:
            # Where this rank failed, the others mostly hang in a collective.
            self._announce(wait_s=MAX_WAIT_S if error is None else _WAIT_AFTER_ERROR_S)
        else:
            self._announce_nothing()

    def report(self) -> Report:
        """Report of this process's trace; for the other ranks of a job, `analyze` their files.

        Raises:
            UsageError: nothing is recorded.
            MissingSupportError: there is no GPU here.
            TracelabError: the trace cannot be analyzed.
        """
        return self._analysis().report

    def png(self, path: str | os.PathLike[str] | None = None) -> Picture:
        """Draw the timeline, and write it where a path is given.

        Raises:
            UsageError: nothing is recorded, or the file cannot be written.
            TracelabError: as of `report`.
        """
        return draw(self._analysis(), None if path is None else Path(path))

    def _repr_html_(self) -> str:
        from tracelab.render.text.report import render_notebook

        if not self.over:
            return (
                f"<p>{self.count} of {self.calls} steps completed; the report follows the last.</p>"
            )
        if not (self.done and self.has_gpu):
            reason = _NO_GPU if self.done else self.why_nothing()
            return f"<p>{escape(reason)}</p>"
        png = b64encode(self.png()._repr_png_()).decode()
        return f'{render_notebook(self.report())}<img src="data:image/png;base64,{png}">'

    def _analysis(self) -> Analysis:
        if not self.done:
            raise UsageError(self.why_nothing())
        if not self.has_gpu:
            raise MissingSupportError(_why_no_gpu(self))
        if self._finished_analysis is None:
            self._finished_analysis = analyze_source(self.path)
        return self._finished_analysis

    def _announce_nothing(self) -> None:
        self._is_announced = True
        if self.rank in {None, 0}:
            tell(self.why_nothing())

    def _announce(self, *, wait_s: float) -> None:
        self._is_announced = True
        if self.collector_reason and self.rank in {None, 0}:
            tell(
                "recorded with Kineto, not with Cuspy, PyTorch's own CUPTI collector: "
                f"{self.collector_reason}"
            )
        if not self._prints_report:
            if not (self.has_gpu or _is_notebook()):
                tell(_why_no_gpu(self))
            return
        try:
            announce(self, wait_s=wait_s)
        except TracelabError as error:
            tell(f"recorded {self.path}, but: {error}")
        except Exception as error:  # whatever it is, it is no reason to end somebody's training
            tell(f"recorded {self.path}, but the analysis failed")
            tell(report_crash(error))


def announce(recorder: Recorder, *, wait_s: float) -> None:
    """Print what was recorded and draw it; in a job, of all ranks of this machine, by the first."""
    from tracelab.render.text.report import render_text

    if recorder.rank not in {None, 0}:
        return
    if not recorder.has_gpu:
        tell(_why_no_gpu(recorder))
        return
    paths = [str(path) for path in _files_of_all_ranks(recorder, wait_s)]
    picture = recorder.path.parent / "timeline.png"
    requests = {"png": Request(picture, len(paths))}
    then = functools.partial(reduce_file, requests=requests)
    results = [analyze_file(source, DEFAULTS, then=then) for source in find_sources(paths)]
    report = merge_results(results, paths, DEFAULTS)
    write_result(render_text(report, width=output_width(), color=output_in_color()))
    tell(f"traces: {', '.join(paths)}")
    for drawn in write_files(report, results, requests):
        tell(str(drawn))


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def _why_no_gpu(recorder: Recorder) -> str:
    return f"recorded {recorder.path}, but {_NO_GPU}"


def _files_of_all_ranks(recorder: Recorder, wait_s: float) -> list[Path]:
    if recorder.rank is None or recorder.local_world_size == 1:
        return [recorder.path]
    pattern = recorder.path.name.replace(f"rank{recorder.rank}", "rank*")
    deadline_s = time.monotonic() + wait_s
    while True:
        files = sorted(recorder.path.parent.glob(pattern))
        files = [file for file in files if file.stat().st_mtime >= recorder.created_s]
        if len(files) >= recorder.local_world_size or time.monotonic() > deadline_s:
            return files
        time.sleep(_POLL_S)


@overload
def profile_step(function: Callable[_Parameters, _Result], /) -> Callable[_Parameters, _Result]: ...
@overload
def profile_step(
    *,
    path: str | os.PathLike[str] | None = None,
    skip: int = 10,
    steps: int = 4,
    stacks: bool = True,
    shapes: bool = False,
    memory: bool = False,
    collector: CollectorSetting = "auto",
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]: ...
def profile_step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    path: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Callable[..., Any]:
    """Make each call of a function one step of a `capture`, which prints its report.

    The function may be a coroutine or a generator, whose step ends when it does.

    Example::

        @tracelab.profile_step
        def train_step(batch): ...

    Args:
        function: the decorated function.
        path: the trace to write, by default of the function's name.
        settings: as of `capture`.

    Raises:
        MissingSupportError: torch is not installed; raised when a function is decorated.
    """
    require_types(function=(function, Callable | None))
    if function is None:
        return functools.partial(_profiled, path=path, settings=settings)
    return _profiled(function, path, settings)


def _profiled(
    function: Callable[..., Any], path: str | os.PathLike[str] | None, settings: dict[str, Any]
) -> Callable[..., Any]:
    name = getattr(function, "__name__", type(function).__name__)
    cap = capture(
        FOLDER / f"{name}.pt.trace.json.gz" if path is None else path,
        print_report=True,
        **settings,
    )
    is_entered = False

    def enter_once() -> None:
        nonlocal is_entered
        if not is_entered:
            is_entered = True
            cap.__enter__()
            atexit.register(cap.__exit__, None, None, None)

    return around(function, before=enter_once, after=cap.step)
