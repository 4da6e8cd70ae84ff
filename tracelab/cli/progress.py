"""How far the work on files is: a bar on stderr, for what takes longer than a moment."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracelab.read.streams import watched

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_MOMENT_S = 0.7  # without a bar: a shorter flicker helps nobody


class Bar:
    """The bytes of files that are read one after the other, or side by side.

    Args:
        sizes: of the files, in bytes; 0 where it is not known.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._total = sum(sizes)
        self._begun = time.monotonic()
        self._ended = 0  # files
        self._ended_bytes = 0
        self._read_bytes = 0  # of the file that is being read in this process
        self._drawn: tuple[Progress, TaskID] | None = None

    def draw(self) -> None:
        """Show it from now on."""
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        rate = TextColumn("{task.fields[rate]}")
        words = TextColumn("{task.description}")
        progress = Progress(
            words, BarColumn(), DownloadColumn(), rate, console=Console(stderr=True), transient=True
        )
        task = progress.add_task("", rate="")
        progress.start()
        self._drawn = progress, task
        self._update()

    def stop(self) -> None:
        """Take it away."""
        if self._drawn:
            self._drawn[0].stop()

    def read(self, count: int) -> None:
        """So many bytes more of a file were read."""
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
        progress, task = self._drawn
        done = min(self._ended_bytes + self._read_bytes, self._total)
        progress.update(
            task,
            description=self._words(done),
            completed=done,
            # How long the analysis of what was read takes is not known.
            total=self._total if done < self._total else None,
            rate=self._rate(done),
        )

    def _words(self, done: int) -> str:
        what = "analyzing" if done >= self._total > 0 else "reading"
        count = len(self._sizes)
        return f"{what}, {self._ended} of {count} files done" if count > 1 else what

    def _rate(self, done: int) -> str:
        """Bytes a second from the beginning on, and how long the rest takes at that."""
        rate = done / (time.monotonic() - self._begun)
        if not 0 < done < self._total:
            return ""
        return f"{rate / 1e6:.0f} MB/s, {(self._total - done) / rate:.0f} s left"


@contextmanager
def progress(sizes: Sequence[int]) -> Iterator[Bar]:
    """A bar for the time of a `with` block; it is not shown where stderr is no terminal."""
    bar = Bar(sizes)
    if not sys.stderr.isatty():
        yield bar
        return
    timer = threading.Timer(_MOMENT_S, bar.draw)
    timer.daemon = True
    timer.start()
    try:
        with watched(bar.read):
            yield bar
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
