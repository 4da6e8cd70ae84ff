"""Progress bar on stderr for work on files that takes longer than a moment."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracelab.read.streams import watched
from tracelab.system.signals import leave_signals_to_the_main_thread

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# A bar that is shown for a shorter time only flickers.
_MIN_PROGRESS_S = 1.0


class Bar:
    """The bytes of files, of which the sizes are given, 0 if unknown, as they are read."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._total = sum(sizes)
        self._begun = time.monotonic()
        self._ended = 0  # files
        self._ended_bytes = 0
        self._read_bytes = 0  # of the file that is being read in this process
        self._drawn: tuple[Progress, TaskID, TaskID] | None = None

    def draw(self) -> None:
        """Show it from now on."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        words, figures = TextColumn("{task.description}"), TextColumn("{task.fields[figures]}")
        progress = Progress(
            words, BarColumn(), figures, console=Console(stderr=True), transient=True
        )
        # Two, since a bar that has a total cannot lose it: how long an analysis takes is not known.
        reading = progress.add_task("reading", total=self._total or None, figures="")
        analyzing = progress.add_task("analyzing", total=None, figures="", visible=False)
        self._drawn = progress, reading, analyzing
        self._update()
        progress.start()

    def stop(self) -> None:
        """Take it away."""
        if self._drawn:
            self._drawn[0].stop()

    def read(self, count: int) -> None:
        """Count further bytes of a file as read."""
        self._read_bytes += count
        self._update()

    def end_file(self) -> None:
        """The work on one file, the next in the order of the sizes, is over."""
        self._ended_bytes += self._sizes[self._ended]
        self._ended += 1
        self._read_bytes = 0
        self._update()

    def _update(self) -> None:
        if self._drawn is None:
            return
        progress, reading, analyzing = self._drawn
        done = self._ended_bytes + self._read_bytes_once()
        is_read = done >= self._total > 0
        count = len(self._sizes)
        files = f", {self._ended} of {count} files done" if count > 1 else ""
        progress.update(
            reading,
            description=f"reading{files}",
            completed=done,
            figures=self._figures(done),
            visible=not is_read,
        )
        progress.update(analyzing, description=f"analyzing{files}", visible=is_read)

    def _read_bytes_once(self) -> int:
        """The bytes read of this file, no more than it has: some of it may be read again."""
        if self._ended == len(self._sizes):
            return 0
        return min(self._read_bytes, self._sizes[self._ended])

    def _figures(self, done: int) -> str:
        if not 0 < done < self._total:
            return ""
        unit, name = (1e6, "MB") if self._total >= 1e6 else (1e3, "kB")
        rate = done / (time.monotonic() - self._begun)
        return (
            f"{done / unit:.1f}/{self._total / unit:.1f} {name} "
            f"{rate / unit:.0f} {name}/s, {(self._total - done) / rate:.0f} s left"
        )


@contextmanager
def progress(sizes: Sequence[int]) -> Iterator[Bar]:
    """A bar for the time of a `with` block; it is not shown where stderr is no terminal."""
    bar = Bar(sizes)
    if not sys.stderr.isatty():
        yield bar
        return
    timer = threading.Timer(_MIN_PROGRESS_S, _draw_beside, (bar,))
    timer.daemon = True
    timer.start()
    try:
        with watched(bar.read):
            yield bar
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def _draw_beside(bar: Bar) -> None:
    """Draw it from a thread that Ctrl-C does not wake."""
    leave_signals_to_the_main_thread()
    bar.draw()
