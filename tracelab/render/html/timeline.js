"use strict";
/* Interaction with the lanes. timeline_lanes.js reads and measures them, timeline_items.js describes an
   activity, timeline_paint.js paints. Text of the trace reaches the page through textContent and fillText
   alone. For tests: window.tracelabTimeline, at the end. */
(() => {
  const byId = (id) => document.getElementById(id);
  if (!byId("timeline-meta")) return; // of a saved report

  const { clamp, firstAbove, firstFrom, busy, readGroups } = timelineLanes;
  const LEAST_VIEW_NS = 20;
  const meta = JSON.parse(byId("timeline-meta").textContent);
  const scene = { // read by the painter
    meta, groups: [],
    rows: [], rowsPx: 0, // {group, lane or null for a header, y, height}, by the painter
    view: [meta.start, meta.end], // ns
    hover: null, cursor: null, cursorRow: -1, // {lane, i}: under the mouse, under the keyboard
    finding: null, range: null, // of meta; measured [a, b]
    printing: false,
  };
  const canvas = byId("lanes"), scroller = byId("lanes-scroll"), overview = byId("overview");
  const details = byId("details"), measured = byId("measured"), legend = byId("legend");
  const searchBox = byId("search"), windowSelect = byId("window");
  const items = timelineItems(meta), painter = timelinePainter(scene, items, { scroller, canvas, overview });
  const { sinceZero, exactTime, roundTime, counted, words, describe } = items;
  const { repaint, paintNow, timeAt, nsPerPx, rowAt, itemAt } = painter;

  // ---------------------------------------------------------------- the view

  function show(from, to) {
    const whole = meta.end - meta.start, length = clamp(to - from, Math.min(LEAST_VIEW_NS, whole), whole);
    if (to - from !== length) from = (from + to - length) / 2;
    from = clamp(from, meta.start, meta.end - length);
    scene.view = [from, from + length];
    repaint();
    rememberInHash(false);
    showWindow();
  }
  function zoom(factor, x) {
    const t = x === undefined ? (scene.view[0] + scene.view[1]) / 2 : clamp(timeAt(x), ...scene.view);
    show(t - (t - scene.view[0]) * factor, t + (scene.view[1] - t) * factor);
  }
  function pan(ns) {
    show(scene.view[0] + ns, scene.view[1] + ns);
  }
  function reveal({ lane, i }) {
    const start = lane.start[i], end = lane.end[i], length = scene.view[1] - scene.view[0];
    if (end <= scene.view[0] || start >= scene.view[1]) {
      const middle = end - start > length ? start + length / 3 : (start + end) / 2;
      show(middle - length / 2, middle + length / 2);
    }
    painter.revealRow(lane.shownRow);
  }
  function zoomTo({ lane, i }) {
    const margin = Math.max((lane.end[i] - lane.start[i]) * 0.25, LEAST_VIEW_NS);
    show(lane.start[i] - margin, lane.end[i] + margin);
  }
  function setOpen(group, isOpen) {
    if (group.open === isOpen) return;
    const at = scene.rows[scene.cursorRow];
    group.open = isOpen;
    painter.layoutRows();
    scene.cursorRow = scene.rows.findIndex((row) => row.group === at?.group && row.lane === at.lane);
    showRanks();
  }

  const rankList = element("details"), rankBoxes = new Map();
  function fillRanks() {
    if (scene.groups.length < 2) return;
    const paces = ["slowest", "median", "fastest"], orderOf = ({ pace }) => (paces.indexOf(pace) + 4) % 4; // the others last
    rankList.id = "open-ranks";
    rankList.append(element("summary"));
    for (const group of [...scene.groups].sort((a, b) => orderOf(a) - orderOf(b))) {
      const label = element("label"), box = element("input");
      box.type = "checkbox";
      box.addEventListener("change", () => setOpen(group, box.checked));
      label.append(box, ` ${group.label}${group.pace ? ` (${group.pace})` : ""}`);
      rankBoxes.set(group, box);
      rankList.append(label);
    }
    overview.before(rankList);
    showRanks();
  }
  function showRanks() {
    for (const [group, box] of rankBoxes) box.checked = group.open;
    const open = scene.groups.filter((group) => group.open).map((group) => group.label);
    const named = open.length <= 4 ? open.join(", ") : `${open.length} of them`;
    const what = scene.groups.every(({ label }) => label.startsWith("rank ")) ? "ranks" : "files";
    const all = `${scene.groups.length} ${what}`;
    if (rankBoxes.size) rankList.firstChild.textContent = `${all}; open: ${named || "none"}`;
  }

  function showFinding(number, { range = null, remember = true } = {}) {
    const finding = meta.findings.find((each) => each.number === number) ?? null;
    const isShown = finding && finding === scene.finding && finding.view.every((t, k) => t === scene.view[k]);
    scene.finding = finding;
    for (const entry of document.querySelectorAll("li.finding")) {
      if (finding && Number(entry.dataset.finding) === number) entry.setAttribute("aria-current", "true");
      else entry.removeAttribute("aria-current");
    }
    if (!finding) return repaint(false);
    const group = scene.groups[finding.group];
    setOpen(group, true);
    scene.cursor = scene.hover = null;
    show(...(range ?? (isShown ? finding.place : finding.view)));
    const places = finding.marks.length, marked = `${places} ${places === 1 ? "place" : "places"} marked`;
    const inView = finding.marks.filter(([, start, end]) => start <= scene.view[1] && end >= scene.view[0]).length;
    const here = inView < places ? `, ${inView} of them in what is shown` : "";
    const more = !places || isShown ? "" : ` Choose it again to see ${places === 1 ? "it" : "the worst"} close.`;
    say(`Finding ${number}: ${marked}${here}.${more}`);
    painter.revealRow({ y: group.y0, height: Math.min(group.y1 - group.y0, scroller.clientHeight - painter.AXIS_PX) });
    painter.revealRow(group.lanes[finding.marks[0]?.[0]]?.shownRow);
    if (remember) rememberInHash(true);
  }
  function stepFinding(by) {
    const known = new Set(meta.findings.map((each) => each.number));
    const entries = [...document.querySelectorAll("#findings ol > li.finding")];
    const numbers = entries.map((entry) => Number(entry.dataset.finding)).filter((x) => known.has(x));
    if (!numbers.length) return;
    const at = scene.finding ? numbers.indexOf(scene.finding.number) : by > 0 ? -1 : 0;
    showFinding(numbers[(at + by + numbers.length) % numbers.length]);
    document.querySelector('li.finding[aria-current="true"]')?.scrollIntoView({ block: "nearest" });
  }

  // The hash keeps the finding and the view, for links.
  let hashTimer = 0;
  function rememberInHash(isNew) {
    clearTimeout(hashTimer);
    const write = () => {
      const finding = scene.finding ? `f=${scene.finding.number}&` : "";
      const hash = `#${finding}t=${scene.view.map(Math.round).join("-")}`;
      if (hash === location.hash) return;
      try {
        if (isNew) history.pushState(null, "", hash);
        else history.replaceState(null, "", hash);
      } catch { /* some browsers refuse that for files */ }
    };
    if (isNew) write();
    else if (timeline.isReady) hashTimer = setTimeout(write, 250); // browsers limit how often
  }
  function followHash() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const range = /^(-?\d+)-(-?\d+)$/.exec(asked.get("t") ?? "")?.slice(1).map(Number) ?? null;
    const number = Number(asked.get("f")), isRange = range !== null && range[1] > range[0];
    const finding = meta.findings.find((each) => each.number === number);
    if (finding) {
      showFinding(number, { range: isRange ? range : finding.view, remember: false });
      return true;
    }
    if (!isRange) return false;
    showFinding(null);
    show(...range);
    return true;
  }

  function fillWindowSelect() {
    if (!windowSelect) return;
    if (!windowSelect.options.length) {
      windowSelect.add(new Option("zoomed", ""));
      windowSelect.options[0].hidden = true; // of a view that is no step
      windowSelect.add(new Option("all the time", "all"));
      meta.windows.forEach((each, k) => windowSelect.add(new Option(each.label, String(k))));
    }
    windowSelect.addEventListener("change", () => {
      windowShown = windowSelect.value;
      const chosen = meta.windows[Number(windowSelect.value)];
      if (chosen) {
        setOpen(scene.groups[chosen.group ?? 0], true);
        show(chosen.start, chosen.end);
      } else show(meta.start, meta.end);
    });
  }
  let windowShown = null;
  function showWindow() {
    if (!windowSelect) return;
    const [from, to] = scene.view;
    const k = meta.windows.findIndex((each) => each.start === from && each.end === to);
    const value = k >= 0 ? String(k) : from === meta.start && to === meta.end ? "all" : "";
    if (value !== windowShown) windowSelect.value = windowShown = value; // slow with thousands of steps
  }

  // ---------------------------------------------------------------- text below the lanes

  /** Busy and idle time of each shown lane; of idle lanes only if known. */
  function measure(a, b) {
    const isMeasured = (lane) => lane && !lane.value && !["steps", "module", "operator"].includes(lane.type);
    return scene.rows.filter((row) => isMeasured(row.lane)).map(({ lane }) => {
      const { ns, kinds, exact } = busy(lane, a, b), rest = b - a - ns, isIdle = lane.type === "idle";
      return { lane: lane.id, type: lane.type, group: lane.group.number, label: lane.label, kinds, exact,
               busy: !isIdle ? ns : isIdleKnown(lane.group, a, b) ? rest : null, idle: isIdle ? ns : rest };
    });
  }
  function isIdleKnown(group, a, b) {
    const filled = (lane) => lane.count > 0 && !lane.bins;
    const steps = group.lanes.filter((lane) => lane.type === "steps" && filled(lane));
    const lanes = steps.length ? steps : group.streams.filter(filled);
    const first = Math.min(...lanes.map((lane) => lane.start[0]));
    return a >= first && b <= Math.max(...lanes.map((lane) => lane.upto.at(-1)));
  }

  function element(tag, text = "", className = "") {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    if (className) made.className = className;
    return made;
  }
  function showDetails(item, spoken) {
    details.setAttribute("aria-live", spoken ? "polite" : "off");
    if (!item) return details.replaceChildren(HINT);
    const { title, facts } = describe(item);
    const lines = [element("div", title, "what")];
    for (const [k, [label, text]] of facts.entries())
      lines.push(k ? " · " : "", element("b", label), ` ${text}`);
    details.replaceChildren(...lines);
  }
  function say(text) {
    details.setAttribute("aria-live", "polite");
    details.replaceChildren(text);
  }
  const HINT = "Hover over an activity, or click and use the arrow keys. Drag measures, the wheel with Ctrl " +
    "zooms. ? lists all keys.";

  function showMeasured() {
    if (!scene.range) return measured.replaceChildren();
    const [a, b] = scene.range, table = element("table"), body = table.createTBody();
    table.createCaption().textContent =
      `Measured ${exactTime(b - a)}, from ${exactTime(sinceZero(a))} to ${exactTime(sinceZero(b))}`;
    const head = table.createTHead().insertRow();
    for (const text of ["lane", "busy", "idle", "share", "of which"]) {
      const cell = element("th", text);
      cell.scope = "col";
      head.append(cell);
    }
    for (const each of measure(a, b)) {
      const row = body.insertRow(), about = each.exact ? "" : "about ";
      const name = each.type === "idle" ? each.label.replace(/ idle$/, "") : each.label;
      const label = scene.groups.length > 1 ? `${scene.groups[each.group].label}, ${name}` : name;
      const th = element("th", label);
      th.scope = "row";
      row.append(th);
      const isKnown = each.busy !== null, kinds = Object.entries(each.kinds);
      const isBusyOrIdle = ["stream", "idle", "host"].includes(each.type); // the others cover some of the time
      const time = (ns) => [about + roundTime(ns, 4), exactly(ns)], exactly = (ns) => `${counted(Math.round(ns))} ns`;
      const said = (write) => kinds.map(([name, ns]) => `${words(name)} ${write(ns)}`).join(", ");
      for (const [text, title] of [
        isKnown ? time(each.busy) : [""],
        isBusyOrIdle ? time(each.idle) : [""],
        [isKnown && isBusyOrIdle ? `${((100 * each.busy) / (b - a)).toFixed(1)} %` : ""],
        [said((ns) => roundTime(ns, 4)), said(exactly)],
      ]) row.append(Object.assign(element("td", text), title ? { title } : {}));
    }
    measured.replaceChildren(table);
  }
  function setRange(range) {
    scene.range = range;
    showMeasured();
    repaint(false);
  }

  const WITHOUT_LEGEND = ["steps", "phase", "module", "operator", "counter"]; // labeled themselves
  function fillLegend() {
    if (!legend) return;
    const style = getComputedStyle(document.documentElement), byColor = new Map();
    for (const lane of scene.groups.flatMap((group) => group.lanes))
      for (const [k, name] of WITHOUT_LEGEND.includes(lane.type) ? [] : lane.kinds.entries()) {
        const color = style.getPropertyValue(`--k-${name}`);
        if (!lane.sums[k] && !lane.outside?.sums[k]) continue;
        if (!byColor.has(color)) byColor.set(color, new Map());
        byColor.get(color).set(words(name), name);
      }
    legend.replaceChildren(...[...byColor.values()].map((kinds) => {
      const entry = element("li"), all = [...kinds.keys()];
      // "exposed copy" says no more than "copy" does.
      const said = all.filter((text) => !all.some((other) => other !== text && text.includes(other)));
      entry.append(element("span", "", `swatch k-${kinds.get(said[0])}`), said.join(", "));
      return entry;
    }));
  }

  // ---------------------------------------------------------------- search

  // {hits, places: [go there], at: number of the match shown or -1, matches: [{lane, i}] once asked for}
  let searched = null;
  function search(text) {
    const wanted = text.trim().toLowerCase();
    searched = null;
    for (const group of scene.groups) for (const lane of group.lanes) lane.found = null;
    if (wanted) {
      const isWanted = (name) => name.toLowerCase().includes(wanted);
      const matched = Uint8Array.from(meta.names, (name) => Number(isWanted(name)));
      const places = [...findingsSaying(isWanted), ...groupsCalled(isWanted)];
      let hits = places.length;
      for (const group of scene.groups)
        for (const lane of group.lanes) {
          if (!lane.name && !lane.line) continue;
          lane.found = foundIn(lane, matched, lane.kinds.map((kind) => isWanted(words(kind))));
          hits += lane.found[lane.count];
        }
      searched = { hits, places, at: -1, matches: null };
    }
    showSearchCount();
    repaint();
  }
  function findingsSaying(isWanted) {
    const entries = [...document.querySelectorAll("#findings ol > li.finding")];
    const textsOf = (entry) => [...entry.querySelectorAll(".title, .rule, .place")].map((part) => part.textContent);
    return entries.filter((entry) => textsOf(entry).some(isWanted)).map((entry) => () => {
      showFinding(Number(entry.dataset.finding));
      entry.scrollIntoView({ block: "nearest" });
    });
  }
  function groupsCalled(isWanted) {
    const groups = scene.groups.length > 1 ? scene.groups : [];
    return groups.filter(({ label, file }) => isWanted(label) || isWanted(file ?? "")).map((group) => () => {
      setOpen(group, true);
      painter.revealRow({ y: group.y0, height: Math.min(group.y1 - group.y0, scroller.clientHeight - painter.AXIS_PX) });
      say(`${group.label}${group.file && group.file !== group.label ? `: ${group.file}` : ""}`);
    });
  }
  /** Number of matches before each activity: by name, operator or line, else by kind. */
  function foundIn(lane, matched, isKindMatched) {
    const found = new Uint32Array(lane.count + 1), { name, op, line, kind } = lane;
    for (let i = 0; i < lane.count; i++) {
      const isMatch = (name && (name[i] < matched.length ? matched[name[i]] : isKindMatched[kind[i]])) ||
        (op && matched[op[i]]) || (line && matched[line[i]]);
      found[i + 1] = found[i] + (isMatch ? 1 : 0);
    }
    return found;
  }
  let searchCount = null;
  function showSearchCount() {
    if (!searchCount) return;
    const { hits, at } = searched ?? {};
    const all = hits === 0 ? "no match" : `${counted(hits ?? 0)} ${hits === 1 ? "match" : "matches"}`;
    searchCount.textContent = !searched ? "" : at >= 0 ? `${counted(at + 1)} of ${all}` : all;
  }
  function sortedMatches() {
    const lanes = scene.groups.flatMap((group) => group.lanes).filter((lane) => lane.found?.[lane.count]);
    const next = ({ found }, n) => firstFrom(found, n + 1) - 1; // index of match number n
    const heads = lanes.map((lane) => ({ lane, n: 0, i: next(lane, 0) })), matches = [];
    const count = searched.hits - searched.places.length;
    while (matches.length < count) {
      let first = null;
      for (const head of heads) {
        const isLeft = head.n < head.lane.found[head.lane.count];
        if (isLeft && !(first && first.lane.start[first.i] <= head.lane.start[head.i])) first = head;
      }
      matches.push({ lane: first.lane, i: first.i });
      first.i = next(first.lane, ++first.n);
    }
    return matches;
  }
  function nextMatch(by) {
    const found = searched;
    if (!found?.hits) return;
    found.matches ??= sortedMatches();
    const { matches, places, hits } = found, startOf = ({ lane, i }) => lane.start[i];
    if (found.at >= 0) found.at = (found.at + by + hits) % hits;
    else if (places.length) found.at = by > 0 ? 0 : hits - 1;
    else {
      const seen = matches.findIndex((match) => startOf(match) >= scene.view[0]);
      found.at = by > 0 ? (seen < 0 ? 0 : seen) : seen < 1 ? matches.length - 1 : seen - 1;
    }
    const match = matches[found.at - places.length];
    if (match) {
      setOpen(match.lane.group, true);
      setCursor({ ...match });
    } else places[found.at]();
    showSearchCount();
  }

  // ---------------------------------------------------------------- mouse

  function momentAt(x, y) {
    const t = clamp(timeAt(x), scene.view[0], scene.view[1]), item = itemAt(x, y), reach = 4 * nsPerPx();
    if (item)
      for (const edge of [item.lane.start[item.i], item.lane.end[item.i]])
        if (Math.abs(edge - t) < reach) return edge;
    return Math.round(t);
  }
  function setHover(item) {
    if (item?.lane === scene.hover?.lane && item?.i === scene.hover?.i) return;
    scene.hover = item;
    showDetails(item ?? scene.cursor, false);
    repaint(false);
  }

  let wheelZooms = false, pointerInside = false;
  let drag = null;
  const touches = new Map(); // id -> x
  function onPointerDown(event) {
    const { offsetX: x, offsetY: y } = event;
    if (event.pointerType === "touch") return void touches.set(event.pointerId, x);
    if (event.button !== 0) return;
    wheelZooms = true;
    const row = rowAt(y);
    if (row && !row.lane) return setOpen(row.group, !row.group.open);
    if (timeAt(x) < scene.view[0]) return; // a label
    canvas.setPointerCapture(event.pointerId);
    drag = { x, from: momentAt(x, y), moved: false };
  }
  function onPointerMove(event) {
    const { offsetX: x, offsetY: y } = event;
    if (touches.has(event.pointerId)) return onTouchMove(event.pointerId, x);
    if (!drag) return setHover(itemAt(x, y));
    drag.moved ||= Math.abs(x - drag.x) > 3;
    if (!drag.moved) return;
    const to = momentAt(x, y);
    setRange(to === drag.from ? null : [Math.min(drag.from, to), Math.max(drag.from, to)]);
  }
  function onTouchMove(id, x) {
    const last = touches.get(id), others = [...touches].filter(([each]) => each !== id);
    touches.set(id, x);
    if (!others.length) return pan((last - x) * nsPerPx());
    const anchor = others[0][1], spread = Math.abs(x - anchor);
    if (spread > 8) zoom(Math.abs(last - anchor) / spread, anchor);
  }
  function onPointerUp(event) {
    touches.delete(event.pointerId);
    if (drag && !drag.moved) {
      setRange(null);
      setCursor(itemAt(event.offsetX, event.offsetY), { spoken: false });
    }
    drag = null;
  }
  function onWheel(event) {
    const zooms = event.ctrlKey || event.shiftKey || wheelZooms;
    if (!zooms) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1, { deltaX, deltaY } = event;
    if (!event.shiftKey && Math.abs(deltaX) > Math.abs(deltaY)) pan(deltaX * unit * nsPerPx());
    else zoom(Math.exp(((deltaY || deltaX) * unit) / (event.ctrlKey ? 150 : 400)), event.offsetX);
  }

  let brush = null; // {fixed: the end that stays}, or to move {at, view}, from where it began
  function onBrushDown(event) {
    const x = event.offsetX, edges = scene.view.map(painter.overviewX), at = painter.overviewTime(x);
    overview.setPointerCapture(event.pointerId);
    const edge = edges.findIndex((each) => Math.abs(each - x) < 6);
    const isPart = scene.view[1] - scene.view[0] < 0.98 * (meta.end - meta.start);
    const isInside = isPart && x > edges[0] && x < edges[1];
    brush = edge >= 0 ? { fixed: scene.view[1 - edge] } : isInside ? { at, view: scene.view } : { fixed: at };
  }
  function onBrushMove(event) {
    if (!brush) return;
    const t = clamp(painter.overviewTime(event.offsetX), meta.start, meta.end);
    if (brush.view) show(brush.view[0] + t - brush.at, brush.view[1] + t - brush.at);
    else if (t !== brush.fixed) show(Math.min(t, brush.fixed), Math.max(t, brush.fixed));
  }

  // ---------------------------------------------------------------- keyboard

  function setCursor(item, { spoken = true } = {}) {
    scene.cursor = item;
    scene.hover = null;
    if (item) {
      scene.cursorRow = scene.rows.indexOf(item.lane.shownRow);
      if (spoken) reveal(item);
    }
    showDetails(item, spoken);
    repaint(false);
  }
  function nearest(lane, t) {
    if (!lane?.count) return null;
    const i = clamp(firstAbove(lane.end, t), 0, lane.count - 1);
    const isNearer = i > 0 && t - lane.end[i - 1] < lane.start[i] - t;
    return { lane, i: isNearer ? i - 1 : i };
  }
  function moveRow(by) {
    const { cursor, view } = scene;
    const [start, end] = cursor ? [cursor.lane.start[cursor.i], cursor.lane.end[cursor.i]] : view;
    const from = clamp((start + end) / 2, ...view);
    const at = clamp(scene.cursorRow + by, 0, scene.rows.length - 1), row = scene.rows[at];
    const item = nearest(row.lane, from);
    painter.revealRow(row);
    if (item) return setCursor(item);
    scene.cursorRow = at;
    scene.cursor = null;
    const { group, lane } = row, [is, does] = group.open ? ["open", "closes"] : ["closed", "opens"];
    say(lane ? `${lane.label}: nothing in it` : `${group.label}, ${is}; Enter ${does} it`);
    repaint(false);
  }
  function moveItem(by) {
    const { cursor, rows } = scene;
    if (!cursor) {
      const lane = rows[scene.cursorRow]?.lane ?? rows.find((row) => row.lane?.count)?.lane;
      return setCursor(nearest(lane, scene.view[0]));
    }
    const i = cursor.i + by;
    if (i >= 0 && i < cursor.lane.count) setCursor({ lane: cursor.lane, i });
  }
  function enter() {
    const row = scene.rows[scene.cursorRow];
    if (scene.cursor) zoomTo(scene.cursor);
    else if (row && !row.lane) { setOpen(row.group, !row.group.open); moveRow(0); }
  }
  function escape() {
    wheelZooms = false;
    if (scene.range) return setRange(null);
    if (scene.cursor || scene.hover) return setCursor(null);
    if (scene.finding) showFinding(null);
  }

  const LANE_KEYS = { // with the focus on the lanes
    ArrowUp: () => moveRow(-1), k: () => moveRow(-1), ArrowDown: () => moveRow(1), j: () => moveRow(1),
    ArrowLeft: () => moveItem(-1), ArrowRight: () => moveItem(1), Enter: enter, " ": enter,
    Home: () => show(meta.start, meta.end), m: () => setRange(scene.view.map(Math.round)),
    z: () => scene.range && show(...scene.range),
  };
  const VIEW_KEYS = { // also with the mouse over them
    w: () => zoom(0.7), "+": () => zoom(0.7), "=": () => zoom(0.7),
    s: () => zoom(1 / 0.7), "-": () => zoom(1 / 0.7),
    a: () => pan((scene.view[0] - scene.view[1]) / 4), d: () => pan((scene.view[1] - scene.view[0]) / 4),
    Escape: escape,
  };
  const PAGE_KEYS = {
    "/": () => { searchBox?.focus(); searchBox?.select(); },
    n: () => stepFinding(1), p: () => stepFinding(-1), "?": () => showHelp(),
  };
  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest?.("input, textarea, select, dialog[open], [contenteditable]")) return;
    const isFocused = document.activeElement === canvas;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const action = (isFocused && LANE_KEYS[key]) || ((isFocused || pointerInside) && VIEW_KEYS[key]) ||
      PAGE_KEYS[key];
    if (!action) return;
    event.preventDefault();
    action();
  }
  function onSearchKey(event) {
    if (event.key === "Enter") { event.preventDefault(); nextMatch(event.shiftKey ? -1 : 1); }
    else if (event.key === "Escape") { searchBox.value = ""; search(""); canvas.focus(); }
  }

  const HELP = [
    ["Tab", "to the lanes, and on"], ["Up, Down or K, J", "the lane above, below"],
    ["Left, Right", "the activity before, after"], ["Enter", "zoom to the activity; open or close a rank"],
    ["W, S or +, -", "zoom in, out"], ["A, D", "move left, right"], ["Home", "all the time"],
    ["drag", "measure: busy and idle of each lane"], ["M", "measure what is seen"],
    ["Z", "zoom to the measured time"], ["double click", "zoom to the activity"],
    ["Ctrl or Shift and wheel", "zoom; after a click the wheel alone"],
    ["/", "search findings, files and all names; Enter and Shift+Enter go through the matches"],
    ["N, P", "next, previous finding"], ["Esc", "clear; the wheel scrolls the page again"],
    ["?", "this help"],
  ];
  let help = null;
  function showHelp() {
    if (!help) {
      help = element("dialog");
      help.id = "timeline-help";
      const title = element("h2", "Keys of the timeline"), table = element("table"), form = element("form");
      title.id = "timeline-help-title";
      help.setAttribute("aria-labelledby", title.id);
      for (const [key, what] of HELP) {
        const row = table.insertRow(), th = element("th", key);
        th.scope = "row";
        row.append(th, element("td", what));
      }
      form.method = "dialog";
      form.append(element("button", "Close"));
      help.append(title, table, form);
      document.body.append(help);
    }
    help.showModal();
  }

  // ---------------------------------------------------------------- printing

  let themeBefore = null;
  /** Paper is light, shows all lanes of the open groups, and has more dots than a screen. */
  function setPrinting(printing) {
    if (scene.printing === printing) return;
    const root = document.documentElement;
    if (printing) themeBefore = root.getAttribute("data-theme");
    scene.printing = printing;
    if (printing) root.setAttribute("data-theme", "light");
    else if (themeBefore === null) root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", themeBefore);
    painter.refresh();
    paintNow();
  }

  // ---------------------------------------------------------------- start

  function listen() {
    const on = (target, type, action, options) => target?.addEventListener(type, action, options);
    on(canvas, "pointerdown", onPointerDown);
    on(canvas, "pointermove", onPointerMove);
    on(canvas, "pointerup", onPointerUp);
    on(canvas, "pointercancel", onPointerUp);
    on(canvas, "pointerenter", () => { pointerInside = true; });
    on(canvas, "pointerleave", () => { pointerInside = false; setHover(null); });
    on(canvas, "dblclick", (event) => {
      const item = itemAt(event.offsetX, event.offsetY);
      if (item) zoomTo(item);
    });
    on(canvas, "wheel", onWheel, { passive: false });
    on(canvas, "blur", () => { wheelZooms = false; repaint(false); });
    on(canvas, "focus", () => repaint(false));
    on(overview, "pointerdown", onBrushDown);
    on(overview, "pointermove", onBrushMove);
    for (const type of ["pointerup", "pointercancel"]) on(overview, type, () => { brush = null; });
    on(scroller, "scroll", painter.scrolled);
    on(document, "keydown", onKey);
    on(byId("help"), "click", showHelp);
    on(byId("findings"), "click", (event) => {
      if (event.target.closest("a, summary, select, input") || String(getSelection())) return;
      const entry = event.target.closest("li.finding");
      if (!entry) return;
      showFinding(Number(entry.dataset.finding));
      const { top, bottom } = scroller.getBoundingClientRect();
      if (top < 0 || bottom > innerHeight) byId("timeline").scrollIntoView(); // on a narrow screen
    });
    on(searchBox, "input", () => search(searchBox.value));
    on(searchBox, "keydown", onSearchKey);
    on(window, "hashchange", followHash);
    on(window, "beforeprint", () => setPrinting(true));
    on(window, "afterprint", () => setPrinting(false));
    on(matchMedia("(prefers-color-scheme: dark)"), "change", painter.refresh);
    new MutationObserver(() => scene.printing || painter.refresh())
      .observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    on(window, "resize", painter.layoutRows);
    new ResizeObserver(painter.fit).observe(scroller);
  }

  function describeCanvas() {
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", "Timeline. Arrow keys go from activity to activity, ? says all keys.");
    canvas.setAttribute("aria-describedby", "details");
    overview.setAttribute("aria-hidden", "true"); // the lanes have all its keys
    if (searchBox) {
      searchCount = element("output");
      searchCount.id = "search-count";
      searchCount.setAttribute("aria-live", "polite");
      searchBox.insertAdjacentElement("afterend", searchCount);
    }
  }

  async function start() {
    scene.groups = await readGroups(meta, byId("timeline-columns").textContent.trim());
    timeline.timings.decoded = performance.now();
    describeCanvas();
    fillWindowSelect();
    fillLegend();
    fillRanks();
    painter.layoutRows();
    const first = meta.windows.find((each) => each.steady);
    if (!followHash() && first) show(first.start, first.end);
    if (meta.note) byId("timeline-note").textContent = meta.note;
    showDetails(null, false);
    showWindow();
    paintNow();
    timeline.timings.drawn = performance.now();
    listen();
    timeline.isReady = true;
  }

  /* A lane is named by its group's number and its id. */
  const laneOf = (id, group = 0) => scene.groups[group].lanes.find((lane) => lane.id === id);
  const timeline = (window.tracelabTimeline = {
    get view() { return [...scene.view]; },
    get finding() { return scene.finding?.number ?? null; },
    get rows() { // css pixels of the canvas
      return scene.rows.map(({ group, lane, y, height }) =>
        ({ group: group.number, lane: lane?.id ?? null, y: y + painter.AXIS_PX, height }));
    },
    goTo: (from, to) => show(from, to),
    paint: paintNow,
    busy: (id, a, b, group) => busy(laneOf(id, group), a, b),
    measure,
    select: (id, i, group) => setCursor({ lane: laneOf(id, group), i }),
    describe(id, i, group) {
      const { title, facts, links } = describe({ lane: laneOf(id, group), i });
      const named = links.map((link) => ({ ...link, from: link.from.id, to: link.to.id }));
      return { title, facts: Object.fromEntries(facts), links: named };
    },
    xOf: painter.xOf, isReady: false, timings: { started: performance.now() }, ready: null,
  });
  timeline.ready = start().catch((error) => {
    byId("timeline-note").textContent = `The timeline cannot be shown here: ${error.message}`;
    throw error;
  });
})();
