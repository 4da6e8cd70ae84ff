// Opens a served trace in the Perfetto UI: sends "PING" until its window answers "PONG", then posts
// the bytes. The first view is in the address: one posted while a large trace loads is dropped after
// some seconds. Later clicks use the same window.
"use strict";
(() => {
  const served = JSON.parse(document.getElementById("served").textContent);
  const metaElement = document.getElementById("timeline-meta");
  const meta = metaElement ? JSON.parse(metaElement.textContent) : {findings: [], groups: []};
  const opened = new Map(); // url of a trace: {tab: its window, given: true once it has it}
  const PING_MS = 100, EDGE_NS = 1000;

  const status = document.createElement("output");
  status.id = "perfetto-status";

  function say(text) {
    status.textContent = text;
  }

  // Page time to file time, ns since its first event.
  function timeInFile(trace, time) {
    const clock = trace.clock;
    const next = clock.findIndex(([page]) => page > time);
    if (next > 0) {
      const [page, own] = clock[next - 1], [nextPage, nextOwn] = clock[next];
      return own + (time - page) * (nextOwn - own) / (nextPage - page);
    }
    const [page, own] = clock[next < 0 ? clock.length - 1 : 0];
    return own + time - page;
  }

  // [start, end] in ns as the file itself counts, perhaps beyond the integers of Number. Perfetto shows
  // nothing outside the trace; it rounds the times of some files by less than EDGE_NS.
  function viewOf(trace, [start, end]) {
    const from = Math.max(trace.start_ns + EDGE_NS, Math.floor(timeInFile(trace, start)));
    const to = Math.min(trace.end_ns - EDGE_NS, Math.ceil(timeInFile(trace, end)));
    return from < to ? [from, to].map(own => BigInt(trace.origin_ns) + BigInt(own)) : null;
  }

  function addressOf(view) {
    const where = view ? `#!/?visStart=${view[0]}&visEnd=${view[1]}` : "";
    return `${served.perfetto}/${where}`;
  }

  function rangeOf(view) {
    const [timeStart, timeEnd] = view.map(time => Number(time) / 1e9);
    return {perfetto: {timeStart, timeEnd, viewPercentage: 1}};
  }

  // Resolves once the window answers as Perfetto's.
  function answers(tab) {
    return new Promise((resolve, reject) => {
      const timer = setInterval(() => {
        if (tab.closed) finish(() => reject(new Error("its window was closed")));
        else tab.postMessage("PING", "*");
      }, PING_MS);
      function hear(event) {
        if (event.source === tab && event.origin === served.perfetto && event.data === "PONG") {
          finish(resolve);
        }
      }
      function finish(then) {
        clearInterval(timer);
        removeEventListener("message", hear);
        then();
      }
      addEventListener("message", hear);
    });
  }

  async function give(tab, trace) {
    const fetched = fetch(trace.url).then(answer => {
      if (!answer.ok) throw new Error("it is not served any more");
      return answer.arrayBuffer();
    });
    const [buffer] = await Promise.all([fetched, answers(tab)]);
    const perfetto = {buffer, title: trace.name, keepApiOpen: true};
    tab.postMessage({perfetto}, served.perfetto, [buffer]);
  }

  function show(trace, view) {
    const known = opened.get(trace.url);
    if (known && !known.tab.closed) {
      const post = () => known.tab.postMessage(rangeOf(view), served.perfetto);
      if (view) known.given.then(post, () => {});
      known.tab.focus();
      return;
    }
    const tab = window.open(addressOf(view));
    if (!tab) {
      say("The browser did not let this page open a window for Perfetto.");
      return;
    }
    say(`Waiting for ${served.perfetto}…`);
    const given = give(tab, trace);
    opened.set(trace.url, {tab, given});
    given.then(() => say(""), error => {
      opened.delete(trace.url);
      say(`Perfetto did not get the trace: ${error.message}`);
    });
  }

  function showFinding(finding) {
    const rank = meta.groups[finding.group].rank;
    const trace = served.traces.find(one => one.rank === rank);
    show(trace, viewOf(trace, finding.place));
  }

  function button(text, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "perfetto";
    made.textContent = text;
    made.addEventListener("click", act);
    return made;
  }

  function choice(traces) {
    const made = document.createElement("select");
    made.className = "perfetto";
    made.setAttribute("aria-label", "Open in Perfetto");
    made.append(new Option("Open in Perfetto…"), ...traces.map(trace => new Option(trace.name)));
    made.addEventListener("change", () => {
      show(traces[made.selectedIndex - 1], null);
      made.selectedIndex = 0;
    });
    return made;
  }

  const controls = document.querySelector("#top .controls") || document.getElementById("top");
  const {traces} = served;
  controls.append(
    traces.length > 1 ? choice(traces) : button("Open in Perfetto", () => show(traces[0], null)),
    status);
  for (const finding of meta.findings) {
    const item = document.querySelector(`li.finding[data-finding="${Number(finding.number)}"]`);
    if (item && finding.marks.length) {
      item.append(button("Show in Perfetto", () => showFinding(finding)));
    }
  }
})();
