"use strict";
/* The page's timeline: lanes of activities on a canvas, from columns that the page carries.

   All times are integer nanoseconds on the page's clock, held in doubles, which are exact below 2**53
   (104 days). A lane's prefix sums say exactly how long it was busy with each kind until any moment, so
   a pixel that thousands of activities share shows their exact share, and a measured range is exact.

   Text of the trace reaches the page through textContent and fillText alone. Nothing moves by itself,
   so there is no motion to reduce. For tests and for other scripts of the page:
   window.tracelabTimeline, at the end. */
(() => {
  const metaElement = document.getElementById("timeline-meta");
  if (!metaElement) return; // a page made from a saved report has no timeline

  const byId = (id) => document.getElementById(id);
  const NONE_32 = 0xffffffff, NONE_16 = 0xffff, GAP_ESCAPE = 0x7fffffff;
  const CONSTRAINT_LAUNCH = 4, CONSTRAINT_UNKNOWN = 7; // the others have another activity as their source
  const OVERVIEW_PX = 52, AXIS_PX = 22, HEADER_PX = 20, SECOND_PX = 10; // SECOND_PX: for activities that overlap in a lane
  const LANE_PX = { steps: 18, idle: 22, exposed: 16, stream: 26, path: 16, host: 22, wait: 18 };
  const CROWDED = 1.5; // activities a pixel from which on shares are drawn and not rectangles
  const LEAST_VIEW_NS = 20;
  const HATCHED = new Set(["host_blocked", "blocking", "wait", "sync"]);
  const FONT = "11px system-ui, sans-serif";

  // ---------------------------------------------------------------- reading the columns

  /** The bytes behind base64 of gzip. */
  async function inflate(text) {
    let packed;
    if (typeof Uint8Array.fromBase64 === "function") packed = Uint8Array.fromBase64(text);
    else {
      const letters = atob(text);
      packed = new Uint8Array(letters.length);
      for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
    }
    const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(plain).arrayBuffer());
  }

  /** `count` unsigned numbers that are stored as byte planes: all low bytes, then the next ones. */
  function readPlanes(bytes, at, count, size) {
    const numbers = size === 1 ? new Uint8Array(count) : size === 2 ? new Uint16Array(count) : new Uint32Array(count);
    for (let plane = 0; plane < size; plane++) {
      const offset = at + plane * count, shift = 8 * plane;
      for (let i = 0; i < count; i++) numbers[i] |= bytes[offset + i] << shift;
    }
    return numbers;
  }

  /** Makes lane[name] a column that is read when it is first asked for: most are asked for rarely. */
  function addColumn(reader, lane, [name, size, code]) {
    const { bytes, at } = reader, { count } = lane;
    reader.at += count * size;
    if (reader.at > bytes.length) throw new Error("the timeline's data is cut off");
    const read = () => {
      const value = readPlanes(bytes, at, count, size);
      if (code === "delta") for (let i = 1; i < count; i++) value[i] += value[i - 1];
      Object.defineProperty(lane, name, { value });
      return value;
    };
    Object.defineProperty(lane, name, { get: read, configurable: true });
  }

  function readLane(reader, spec, group, clockStart) {
    const lane = { ...spec, group };
    for (const column of spec.columns) addColumn(reader, lane, column);
    addTimes(lane, clockStart);
    addSums(lane);
    if (spec.bins) addBins(reader, lane);
    return lane;
  }

  /** start and end; and from and upto, which leave out what an earlier activity covers already. */
  function addTimes(lane, clockStart) {
    const n = lane.count, gap = new Int32Array(lane.gap.buffer), { dur } = lane;
    const gaps = new Map(lane.escapes?.gap), durs = new Map(lane.escapes?.dur);
    const start = new Float64Array(n), end = new Float64Array(n);
    let before = clockStart, latest = -Infinity, overlaps = false;
    for (let i = 0; i < n; i++) {
      start[i] = before + (gap[i] === GAP_ESCAPE && gaps.has(i) ? gaps.get(i) : gap[i]);
      before = end[i] = start[i] + (dur[i] === NONE_32 && durs.has(i) ? durs.get(i) : dur[i]);
      if (start[i] < latest) overlaps = true;
      if (end[i] > latest) latest = end[i];
    }
    Object.assign(lane, { start, end, from: start, upto: end, overlaps });
    if (!overlaps) return;
    const from = (lane.from = new Float64Array(n)), upto = (lane.upto = new Float64Array(n));
    latest = -Infinity;
    for (let i = 0; i < n; i++) {
      from[i] = Math.max(start[i], latest);
      latest = upto[i] = Math.max(end[i], latest);
    }
  }

  /** For each kind that occurs, the covered ns before each activity. */
  function addSums(lane) {
    const { count, kind, from, upto } = lane;
    lane.sums = lane.kinds.map(() => null);
    for (let i = 0; i < count; i++) lane.sums[kind[i]] ??= new Float64Array(count + 1);
    for (const [k, sums] of lane.sums.entries()) {
      let sum = 0;
      if (sums) for (let i = 0; i < count; i++) sums[i + 1] = kind[i] === k ? (sum += upto[i] - from[i]) : sum;
    }
  }

  /** What lies outside the time of which there are activities: ns a bin and kind, as running sums. */
  function addBins(reader, lane) {
    const { count, start, end, kinds } = lane.bins;
    const edge = (bin) => start + (bin * (end - start)) / count;
    const outside = (lane.outside = { count, start, end, edge, sums: lane.kinds.map(() => null) });
    const before = new Float64Array(lane.kinds.length), after = new Float64Array(lane.kinds.length);
    for (const kindName of kinds) {
      const k = lane.kinds.indexOf(kindName), busy = readPlanes(reader.bytes, reader.at, count, 4);
      reader.at += 4 * count;
      if (k < 0) throw new Error("the timeline's bins name a kind that the lane lacks");
      const sums = (outside.sums[k] = new Float64Array(count + 1));
      for (let bin = 0; bin < count; bin++) {
        rawUntil(lane, edge(bin), before);
        rawUntil(lane, edge(bin + 1), after);
        sums[bin + 1] = sums[bin] + Math.max(0, busy[bin] - (after[k] - before[k]));
      }
    }
  }

  // ---------------------------------------------------------------- measuring

  /** The first index, not before `low`, at which the ascending numbers exceed x. */
  function firstAbove(numbers, x, low = 0) {
    let step = 1, high = low;
    while (high < numbers.length && numbers[high] <= x) { low = high + 1; high += step; step *= 2; }
    if (high > numbers.length) high = numbers.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (numbers[middle] <= x) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  /** The first index at which ascending integers are x or more. */
  const firstFrom = (numbers, x) => firstAbove(numbers, Math.ceil(x) - 1);
  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

  /** out[kind] = covered ns before t by the lane's activities. Returns where a later t can go on. */
  function rawUntil(lane, t, out, hint = 0) {
    if (lane.bins) t = clamp(t, lane.group.detail[0], lane.group.detail[1]);
    const i = firstAbove(lane.upto, t, hint), { sums } = lane;
    for (let k = 0; k < sums.length; k++) out[k] = sums[k] ? sums[k][i] : 0;
    if (i < lane.count && lane.from[i] < t) out[lane.kind[i]] += t - lane.from[i];
    return i;
  }

  /** The same with the bins: within one, busy time is taken as spread evenly outside the detail. */
  function coveredUntil(lane, t, out, hint = 0) {
    const next = rawUntil(lane, t, out, hint);
    if (!lane.bins) return next;
    const { count, start, end, edge, sums } = lane.outside;
    const bin = clamp(Math.floor(((t - start) / (end - start)) * count), 0, count - 1);
    const whole = outsideLength(lane, edge(bin), edge(bin + 1));
    const part = whole > 0 ? clamp(outsideLength(lane, edge(bin), t) / whole, 0, 1) : 0;
    for (let k = 0; k < sums.length; k++)
      if (sums[k]) out[k] += sums[k][bin] + part * (sums[k][bin + 1] - sums[k][bin]);
    return next;
  }
  function outsideLength(lane, a, b) {
    const [low, high] = lane.group.detail;
    return Math.max(0, b - a) - Math.max(0, Math.min(b, high) - Math.max(a, low));
  }

  /** How long a lane is covered from a to b: {ns, kinds: {name: ns}, exact}. */
  function busy(lane, a, b) {
    const first = new Float64Array(lane.kinds.length), last = new Float64Array(lane.kinds.length), kinds = {};
    coveredUntil(lane, a, first);
    coveredUntil(lane, b, last);
    let ns = 0;
    lane.kinds.forEach((kindName, k) => {
      const part = last[k] - first[k];
      if (part > 0) kinds[kindName] = part;
      ns += part;
    });
    const [low, high] = lane.group.detail ?? [-Infinity, Infinity];
    return { ns, kinds, exact: !lane.bins || (a >= low && b <= high) };
  }

  /** What every shown lane has in a range: idle lanes say how long the GPU was idle, the others busy. */
  function measure(a, b) {
    return rows.filter((row) => row.lane && row.lane.type !== "steps").map(({ lane }) => {
      const covered = busy(lane, a, b), rest = b - a - covered.ns;
      const [busyNs, idleNs] = lane.type === "idle" ? [rest, covered.ns] : [covered.ns, rest];
      return { lane: lane.id, group: lane.group.number, label: lane.label, busy: busyNs, idle: idleNs,
               kinds: covered.kinds, exact: covered.exact };
    });
  }

  // ---------------------------------------------------------------- words

  const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  /** A length of time with all its digits: 812 ns, 1.64 µs, 16.682383 ms. */
  function exactTime(ns) {
    const size = Math.abs(ns), [unit, name] = UNITS.find(([u]) => size >= u) ?? UNITS[3];
    return `${Number((ns / unit).toFixed(9)).toLocaleString("en-US", { maximumFractionDigits: 9 })} ${name}`;
  }
  const count = (n) => n.toLocaleString("en-US");
  /** The idle time that a call caused, ns; 0 where none is known. */
  function costOf({ cost, escapes }, i) {
    if (cost?.[i] !== NONE_32) return cost?.[i] ?? 0;
    return escapes?.cost?.find(([index]) => index === i)?.[1] ?? 0;
  }
  const words = (kindName) => meta.words?.[kindName] ?? kindName.replaceAll("_", " ");
  const fullName = (index) => (index < meta.names.length ? meta.names[index] : "");
  const shortName = (index) => (index < meta.names.length ? meta.short[index] || meta.names[index] : "");
  const itemKind = (lane, i) => lane.kinds[lane.kind[i]];

  /** The activity of a row, or the call of a number: {lane, i}, null for none. */
  function locate(lanes, number) {
    if (number === undefined || number === NONE_32) return null;
    for (const lane of lanes) {
      if (number < lane.count) return { lane, i: number };
      number -= lane.count;
    }
    return null;
  }
  const activityOf = (lane, number) => locate(lane.group.streams, number);
  const callOf = (lane, number) => locate(lane.group.hosts, number);

  /** What an activity waited for: {text, source: {lane, i} or null}. */
  function waitOf(lane, i) {
    const reason = meta.reasons[lane.why?.[i]];
    if (!reason) return { text: "", source: null };
    const why = lane.why[i], hasSource = why !== CONSTRAINT_LAUNCH && why !== CONSTRAINT_UNKNOWN;
    return { text: reason, source: hasSource ? activityOf(lane, lane.source[i]) : null };
  }

  /** The first activity that a call launched; the table is made when it is first asked for. */
  function launchedBy(lane, i) {
    const { group } = lane;
    if (!group.launched) {
      group.launched = new Uint32Array(group.hosts.reduce((n, host) => n + host.count, 0)).fill(NONE_32);
      let row = 0;
      for (const stream of group.streams)
        for (let k = 0; k < stream.count; k++, row++)
          if (stream.call && stream.call[k] < group.launched.length && group.launched[stream.call[k]] === NONE_32)
            group.launched[stream.call[k]] = row;
    }
    let number = i;
    for (const host of group.hosts) {
      if (host === lane) return activityOf(lane, group.launched[number]);
      number += host.count;
    }
    return null;
  }

  const titleOf = ({ lane, i }) => (lane.name ? fullName(lane.name[i]) : "") || words(itemKind(lane, i));
  const briefOf = ({ lane, i }) => (lane.name ? shortName(lane.name[i]) : "") || words(itemKind(lane, i));

  /** What is known of an item: {title, facts: [[label, text]], links: [{from, fromNs, to, toNs, ...}]}. */
  function describe(item) {
    const { lane, i } = item, start = lane.start[i], end = lane.end[i], facts = [], links = [];
    const fact = (label, text) => text && facts.push([label, text]);
    const link = (source, fromNs, target, toNs, isLaunch) =>
      links.push({ from: source.lane, fromNs, to: target.lane, toNs, isLaunch });
    const other = lane.type === "stream" ? null : activityOf(lane, lane.row?.[i]);
    const why = lane.type === "exposed" ? fullName(lane.name[i]) : "", title = why ? words(itemKind(lane, i)) : titleOf(item);
    if (title !== words(itemKind(lane, i))) fact("kind", words(itemKind(lane, i)));
    fact("duration", exactTime(end - start));
    fact("start", exactTime(start));
    fact("on", lane.label);
    if (lane.op) fact("operator", fullName(lane.op[i]));
    if (lane.line) fact("line", fullName(lane.line[i]));
    if (lane.type === "stream") {
      const call = callOf(lane, lane.call?.[i]), wait = waitOf(lane, i);
      if (call) {
        const since = start - call.lane.start[call.i];
        fact("launched by", `${briefOf(call)} (${call.lane.label}), which began ${exactTime(since)} before`);
        link(call, call.lane.start[call.i], item, start, true);
      }
      if (wait.source) {
        const { lane: from, i: k } = wait.source, late = start - from.end[k];
        const when = late >= 0 ? `started ${exactTime(late)} after that ended` : `started ${exactTime(-late)} before that ended`;
        fact("waited for", `${wait.text}: ${briefOf(wait.source)} (${from.label}); ${when}`);
        link(wait.source, from.end[k], item, start, false);
      } else fact("waited for", wait.text);
    } else if (lane.type === "idle" && other) {
      fact("ended by", `${briefOf(other)} (${other.lane.label})`);
      const call = callOf(other.lane, other.lane.call?.[other.i]);
      if (call) {
        fact("which was launched by", `${briefOf(call)} (${call.lane.label})`);
        link(call, call.lane.start[call.i], other, other.lane.start[other.i], true);
      }
      link(item, end, other, other.lane.start[other.i], false);
    } else if (lane.type === "host") {
      if (costOf(lane, i)) fact("idle time that it caused", exactTime(costOf(lane, i)));
      const launched = other ? null : launchedBy(lane, i);
      if (other) {
        fact("waited for", `${briefOf(other)} (${other.lane.label})`);
        link(other, other.lane.end[other.i], item, end, false);
      } else if (launched) {
        const at = launched.lane.start[launched.i];
        fact("launched", `${briefOf(launched)} (${launched.lane.label}), which started ${exactTime(at - start)} later`);
        link(item, start, launched, at, true);
      }
    } else if (other) fact("activity", `${titleOf(other)} (${other.lane.label})`);
    fact("not overlapped because of", why);
    return { title, facts, links };
  }

  // ---------------------------------------------------------------- state

  let meta, groups = [], rows = [], rowsPx = 0; // rows: {group, lane or null for a header, y, height}
  let view = [0, 1];
  const state = {
    hover: null, cursor: null, cursorRow: -1, // items {lane, i}; what the mouse and the keyboard are on
    finding: null, range: null, // the marked finding of meta; the measured [a, b]
    wheelZooms: false, pointerInside: false, printing: false,
    search: null, // {hits, at: number of the match shown or -1, matches: [{lane, i}] by start, once asked for}
  };
  const scroller = byId("lanes-scroll"), canvas = byId("lanes"), overview = byId("overview");
  const details = byId("details"), measured = byId("measured"), legend = byId("legend");
  const searchBox = byId("search"), windowSelect = byId("window");
  const surface = canvas.getContext("2d"), overviewSurface = overview.getContext("2d");
  // Lanes are painted when the view changes; hovering only lays lines over a copy of them.
  const lanesCopy = document.createElement("canvas"), overviewCopy = document.createElement("canvas");
  const spacer = document.createElement("div");
  spacer.setAttribute("aria-hidden", "true");
  scroller.append(spacer);
  // In css pixels, kept because asking for them costs a layout; scale: device pixels per css pixel.
  let width = 0, height = 0, labelPx = 150, scrollPx = 0, overviewPx = 0, scale = 1;
  let palette = null, letterPx = 6, lanesAreStale = true, frameAsked = false;

  function layoutRows() {
    rows = [];
    let y = 0;
    for (const group of groups) {
      group.y0 = y;
      if (groups.length > 1) { rows.push({ group, lane: null, y, height: HEADER_PX }); y += HEADER_PX; }
      for (const lane of group.lanes) {
        lane.shownRow = null;
        if (!group.open && !lane.summary) continue;
        const px = (LANE_PX[lane.type] ?? 20) + (lane.overlaps ? SECOND_PX : 0);
        lane.shownRow = { group, lane, y, height: px };
        rows.push(lane.shownRow);
        y += px;
      }
      group.y1 = y;
    }
    rowsPx = y;
    resize();
  }

  function resize() {
    width = scroller.clientWidth;
    labelPx = width < 560 ? 84 : 150;
    scroller.style.maxHeight = `${rowsPx + AXIS_PX + 2}px`; // no empty space below a few lanes
    height = state.printing ? rowsPx + AXIS_PX : Math.min(scroller.clientHeight, rowsPx + AXIS_PX);
    scale = state.printing ? 2 : window.devicePixelRatio || 1;
    scrollPx = state.printing ? 0 : scroller.scrollTop;
    overviewPx = overview.clientWidth;
    canvas.style.height = `${height}px`;
    spacer.style.height = `${state.printing ? 0 : Math.max(0, rowsPx + AXIS_PX - height)}px`;
    for (const each of [canvas, lanesCopy]) setSize(each, width, height);
    for (const each of [overview, overviewCopy]) setSize(each, overviewPx, OVERVIEW_PX);
    paintOverviewLanes();
    repaint();
  }
  function setSize(element, cssWidth, cssHeight) {
    element.width = Math.max(1, Math.round(cssWidth * scale));
    element.height = Math.max(1, Math.round(cssHeight * scale));
  }

  // ---------------------------------------------------------------- colors

  /** The palette as the canvas needs it: it cannot use CSS variables itself. */
  function readPalette() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    palette = { kinds: new Map() };
    for (const name of ["fg", "bg", "muted", "line", "accent", "mark"]) palette[name] = color(name);
    for (const group of groups)
      for (const lane of group.lanes)
        for (const kindName of lane.kinds)
          if (!palette.kinds.has(kindName)) {
            const fill = color(`k-${kindName}`) || palette.muted;
            const ink = inkOn(fill), hatch = HATCHED.has(kindName) ? hatchOf(ink) : null;
            palette.kinds.set(kindName, { fill, ink, hatch, pixel: pixelOf(fill), pale: pixelOf(fill, palette.bg, 0.55),
                                          hatchPixel: pixelOf(fill, ink, 0.35) });
          }
  }
  /** Red, green and blue of #rrggbb. */
  const partsOf = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  /** Black or white, whichever has more contrast with a color, as WCAG defines it. */
  function inkOn(fill) {
    const linear = partsOf(fill).map((part) => (part / 255 <= 0.04045 ? part / 3295 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179 ? "#101214" : "#ffffff";
  }
  /** A color, some of it replaced by another, as a word of an image. */
  function pixelOf(color, other = color, share = 0) {
    const others = partsOf(other);
    const [red, green, blue] = partsOf(color).map((part, k) => Math.round(part + (others[k] - part) * share));
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  }
  function hatchOf(ink) {
    const tile = document.createElement("canvas"), g = tile.getContext("2d");
    tile.width = tile.height = 6;
    g.strokeStyle = ink;
    g.globalAlpha = 0.35;
    for (const shift of [-6, 0, 6]) { g.moveTo(shift, 6); g.lineTo(shift + 6, 0); }
    g.stroke();
    return g.createPattern(tile, "repeat");
  }
  function themeChanged() {
    readPalette();
    paintOverviewLanes();
    repaint();
  }

  // ---------------------------------------------------------------- painting

  /** Paints in the next frame; `lanes` says whether more than the layer above the lanes changed. */
  function repaint(lanes = true) {
    lanesAreStale ||= lanes;
    if (frameAsked) return;
    frameAsked = true;
    requestAnimationFrame(paintNow);
  }
  function paintNow() {
    frameAsked = false;
    if (!palette) return;
    if (lanesAreStale) paintLanes();
    lanesAreStale = false;
    paintLayer();
    paintBrush();
  }

  const nsPerPx = () => (view[1] - view[0]) / (width - labelPx);
  const xOf = (t) => labelPx + (t - view[0]) / nsPerPx();
  const timeAt = (x) => view[0] + (x - labelPx) * nsPerPx();
  const yOf = (row) => row.y + AXIS_PX - scrollPx;
  const isSeen = (row) => yOf(row) + row.height > AXIS_PX && yOf(row) < height;

  function paintLanes() {
    const g = lanesCopy.getContext("2d");
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.fillStyle = palette.bg;
    g.fillRect(0, 0, width, height);
    g.font = FONT;
    g.textBaseline = "middle";
    letterPx = g.measureText("aemnu_:0").width / 8;
    for (const row of rows) if (isSeen(row)) paintRow(g, row);
    for (const step of meta.windows) paintStep(g, step);
    paintAxis(g);
  }

  function paintRow(g, row) {
    const y = yOf(row), { group, lane } = row;
    if (!lane) {
      g.fillStyle = palette.line;
      g.fillRect(0, y, width, row.height);
      g.fillStyle = palette.fg;
      g.font = `bold ${FONT}`;
      g.fillText(`${group.open ? "▾" : "▸"} ${group.label}`, 4, y + row.height / 2);
      g.font = FONT;
      return;
    }
    const from = view[0], to = view[1], full = row.height - (lane.overlaps ? SECOND_PX : 0) - 4;
    const [low, high] = lane.bins ? lane.group.detail : [-Infinity, Infinity];
    const first = firstAbove(lane.upto, Math.max(from, low)), last = firstFrom(lane.start, Math.min(to, high));
    const room = (Math.min(to, high) - Math.max(from, low)) / nsPerPx(), axis = { left: labelPx, t0: from, px: nsPerPx() };
    if (from < low) paintShares(g, lane, axis, y + 2, full, from, Math.min(low, to), true);
    if (last - first > CROWDED * room) paintShares(g, lane, axis, y + 2, full, Math.max(from, low), Math.min(to, high), false);
    else paintItems(g, lane, y + 2, full, first, last);
    if (to > high) paintShares(g, lane, axis, y + 2, full, Math.max(high, from), to, true);
    if (lane.found) paintFound(g, lane, y + row.height - 3, first, last);
    g.fillStyle = palette.bg; // a bar may begin under the labels
    g.fillRect(0, y, labelPx, row.height);
    g.fillStyle = palette.fg;
    g.fillText(fitted(g, lane.label, labelPx - 10 - indent()), 4 + indent(), y + 2 + full / 2);
    g.fillStyle = palette.line;
    g.fillRect(0, y + row.height - 1, width, 1);
  }
  const indent = () => (groups.length > 1 ? 10 : 0);

  const fits = new Map(); // text of a label as it was last shortened, by text and width
  function fitted(g, text, px) {
    const key = `${px} ${text}`;
    let shown = fits.get(key);
    if (shown === undefined) {
      shown = text;
      for (let n = text.length; n > 1 && g.measureText(shown).width > px; n--) shown = `${text.slice(0, n)}…`;
      fits.set(key, shown);
    }
    return shown;
  }

  const before = new Float64Array(16), after = new Float64Array(16); // by kind; made once
  let pixels = null, colors = null; // an image that the shares are written to, and its words

  /** The exact share of each pixel column that each kind covers, as stacked bars.

      Pixels are written one by one: a column has few, and a canvas fills rectangles more slowly.
      `axis` says where the lane's time lies: {left: css pixel of t0, t0, px: ns per css pixel}. */
  function paintShares(g, lane, axis, y, h, from, to, isPale) {
    const rowsOf = Math.max(1, Math.round(h * scale)), top = Math.round(y * scale), step = axis.px / scale;
    const x0 = Math.max(0, Math.floor(((from - axis.t0) / axis.px + axis.left) * scale));
    const columns = Math.ceil(((to - axis.t0) / axis.px + axis.left) * scale) - x0;
    if (columns <= 0) return;
    if (!pixels || pixels.width < columns || pixels.height < rowsOf) {
      pixels = new ImageData(Math.max(columns, pixels?.width ?? 0), Math.max(rowsOf, pixels?.height ?? 0));
      colors = new Uint32Array(pixels.data.buffer);
    }
    const wide = pixels.width, kinds = lane.kinds.length, hatch = Math.round(6 * scale), ground = pixelOf(palette.bg);
    const looks = lane.kinds.map((name) => palette.kinds.get(name));
    const t0 = axis.t0 + (x0 / scale - axis.left) * axis.px; // the time of column 0
    let hint = coveredUntil(lane, clamp(t0, from, to), before);
    for (let x = 0; x < columns; x++) {
      hint = coveredUntil(lane, clamp(t0 + (x + 1) * step, from, to), after, hint);
      let sum = 0, row = rowsOf;
      for (let k = 0; k < kinds; k++) {
        const part = after[k] - before[k];
        before[k] = after[k];
        if (part <= 0) continue;
        sum += part;
        const end = Math.max(0, rowsOf - Math.round((sum / step) * rowsOf)), look = looks[k];
        const fill = isPale ? look.pale : look.pixel, line = isPale || !look.hatch ? fill : look.hatchPixel;
        if (end === rowsOf) { colors[--row * wide + x] = look.pale; break; } // too little for a whole pixel
        while (row > end) { row--; colors[row * wide + x] = (x0 + x + row) % hatch < scale ? line : fill; }
      }
      while (row > 0) colors[--row * wide + x] = ground;
    }
    g.putImageData(pixels, x0, top, 0, 0, columns, rowsOf);
  }
  function fillBar(g, look, x, y, w, h) {
    g.fillStyle = look.fill;
    g.fillRect(x, y, w, h);
    if (!look.hatch || w < 3) return;
    g.fillStyle = look.hatch;
    g.fillRect(x, y, w, h);
  }

  /** Each activity as a rectangle with its name; part of a pixel shows as part of the color. */
  function paintItems(g, lane, y, full, first, last) {
    for (let i = first; i < last; i++) {
      const x = Math.max(labelPx, xOf(lane.start[i])), right = Math.min(width, xOf(lane.end[i]));
      if (right < labelPx || x > width) continue;
      let w = Math.max(right - x, 0.5);
      if (w > 4) w -= 0.75; // so that neighbors can be told apart
      const kindName = itemKind(lane, i), look = palette.kinds.get(kindName);
      const isSecond = lane.overlaps && lane.from[i] > lane.start[i];
      const isThin = kindName === "launch_call";
      const top = isSecond ? y + full + 1 : isThin ? y + full * 0.55 : y;
      const h = isSecond ? SECOND_PX - 1 : isThin ? full * 0.45 : full;
      fillBar(g, look, x, top, w, h);
      if (w > 34 && h > 9) {
        const cost = costOf(lane, i);
        paintName(g, briefOf({ lane, i }) + (cost ? ` · ${roundTime(cost)} idle` : ""), look, x, top + h / 2, w);
      }
    }
  }
  function paintName(g, name, look, x, y, w) {
    const room = Math.floor((w - 6) / letterPx), text = name.length > room ? `${name.slice(0, room - 1)}…` : name;
    if (look.hatch) { // letters are not to be read through lines
      g.fillStyle = look.fill;
      g.fillRect(x + 1, y - 7, Math.min(text.length * letterPx + 4, w - 2), 14);
    }
    g.fillStyle = look.ink;
    g.fillText(text, x + 3, y);
  }
  function roundTime(ns) {
    const [unit, name] = UNITS.find(([u]) => ns >= u) ?? UNITS[3];
    return `${(ns / unit).toPrecision(3).replace(/\.?0+$/, "")} ${name}`;
  }

  /** A line under what the search found. */
  function paintFound(g, lane, y, first, last) {
    g.fillStyle = palette.mark;
    if (lane.found[last] === lane.found[first]) return;
    if (last - first < 4 * (width - labelPx)) {
      for (let i = first; i < last; i++) {
        if (lane.found[i + 1] === lane.found[i]) continue;
        const x = Math.max(labelPx, xOf(lane.start[i]));
        g.fillRect(x, y, Math.max(2, Math.min(width, xOf(lane.end[i])) - x), 3);
      }
      return;
    }
    for (let x = labelPx, i = first; x < width; x++) {
      const next = Math.max(i, firstAbove(lane.upto, timeAt(x + 1), i));
      if (lane.found[next] > lane.found[i]) g.fillRect(x, y, 2, 3);
      i = next;
    }
  }

  function paintStep(g, step) {
    const isOfAll = meta.windows.every((each) => !each.group), group = groups[step.group ?? 0]; // a job's steps
    const y0 = Math.max(AXIS_PX, (isOfAll ? 0 : group.y0) + AXIS_PX - scrollPx);
    const y1 = (isOfAll ? rowsPx : group.y1) + AXIS_PX - scrollPx;
    if (y1 <= y0) return;
    g.fillStyle = palette.muted;
    g.globalAlpha = 0.5;
    for (const t of [step.start, step.end]) {
      const x = Math.round(xOf(t));
      if (x >= labelPx && x <= width) g.fillRect(x, y0, 1, y1 - y0);
    }
    g.globalAlpha = 1;
  }

  function paintAxis(g) {
    const px = nsPerPx(), step = niceStep(px * 110);
    const [unit, unitName] = UNITS.find(([u]) => Math.max(Math.abs(view[0]), Math.abs(view[1])) >= u) ?? UNITS[3];
    const digits = Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9));
    g.fillStyle = palette.bg;
    g.fillRect(0, 0, width, AXIS_PX);
    g.fillStyle = palette.muted;
    g.fillText(`time (${unitName})`, 4, AXIS_PX / 2);
    for (let t = Math.ceil(view[0] / step) * step; t <= view[1]; t += step) {
      const x = xOf(t);
      g.fillStyle = palette.line;
      g.fillRect(Math.round(x), AXIS_PX - 5, 1, 5);
      g.fillStyle = palette.muted;
      const text = (t / unit).toFixed(digits);
      if (x + g.measureText(text).width + 4 < width) g.fillText(text, x + 3, AXIS_PX / 2);
    }
    g.fillStyle = palette.line;
    g.fillRect(0, AXIS_PX - 1, width, 1);
  }
  /** 1, 2 or 5 times a power of ten, at least so many ns. */
  function niceStep(ns) {
    const power = 10 ** Math.floor(Math.log10(Math.max(ns, 1)));
    return power * ([1, 2, 5, 10].find((m) => m * power >= ns) ?? 10);
  }

  /** What lies over the lanes: the finding's evidence, the measured range, lines of the item. */
  function paintLayer() {
    const g = surface;
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.drawImage(lanesCopy, 0, 0);
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.save();
    g.beginPath();
    g.rect(labelPx, 0, width - labelPx, height);
    g.clip();
    if (state.finding) paintMarks(g, state.finding);
    if (state.range) paintRange(g, state.range);
    const item = state.hover ?? state.cursor;
    if (item) {
      for (const each of describe(item).links) paintLink(g, each);
      if (item.lane.shownRow) paintOutline(g, item);
    }
    g.restore();
    if (state.cursorRow >= 0 && document.activeElement === canvas && rows[state.cursorRow]) {
      const row = rows[state.cursorRow];
      g.fillStyle = palette.accent;
      g.fillRect(0, yOf(row), 3, row.height);
    }
  }
  function paintMarks(g, finding) {
    const group = groups[finding.group];
    g.strokeStyle = g.fillStyle = palette.mark;
    g.lineWidth = 2;
    for (const [laneIndex, start, end] of finding.marks) {
      const row = group.lanes[laneIndex]?.shownRow, x = xOf(start), w = Math.max(xOf(end) - x, 2);
      if (x > width || x + w < labelPx) continue;
      g.fillRect(x, AXIS_PX - 4, w, 4);
      if (!row || !isSeen(row)) continue;
      g.globalAlpha = 0.18;
      g.fillRect(x, yOf(row), w, row.height);
      g.globalAlpha = 1;
      if (w > 6) g.strokeRect(Math.max(x, -10) + 1, yOf(row) + 1, Math.min(w, width + 20) - 2, row.height - 3);
      else g.fillRect(x, yOf(row), w, row.height - 1);
    }
  }
  function paintRange(g, [a, b]) {
    const x = xOf(a), w = Math.max(xOf(b) - x, 1);
    g.fillStyle = palette.accent;
    g.globalAlpha = 0.16;
    g.fillRect(x, AXIS_PX, w, height);
    g.globalAlpha = 1;
    for (const edge of [x, x + w]) g.fillRect(edge - 0.5, 0, 1, height);
    g.font = FONT;
    g.textBaseline = "middle";
    const text = exactTime(b - a), room = g.measureText(text).width + 8;
    const at = clamp(x + w / 2 - room / 2, labelPx, width - room);
    g.fillRect(at, 2, room, AXIS_PX - 6);
    g.fillStyle = palette.bg;
    g.fillText(text, at + 4, AXIS_PX / 2 - 1);
  }
  function paintOutline(g, { lane, i }) {
    const x = Math.max(xOf(lane.start[i]), labelPx - 2), right = Math.min(xOf(lane.end[i]), width + 2);
    const row = lane.shownRow, isSecond = lane.overlaps && lane.from[i] > lane.start[i];
    const top = yOf(row) + (isSecond ? row.height - SECOND_PX : 0);
    const h = isSecond ? SECOND_PX : row.height - (lane.overlaps ? SECOND_PX : 0);
    g.lineWidth = 2;
    g.strokeStyle = palette.fg;
    g.strokeRect(x - 1, top + 1, Math.max(right - x, 1) + 1.5, h - 2);
  }
  /** From the launch (dashed) or from what was waited for (solid), with an arrow's head. */
  function paintLink(g, { from, fromNs, to, toNs, isLaunch }) {
    if (!from.shownRow || !to.shownRow) return;
    const far = 4 * width; // a canvas draws steep lines to far points badly
    const x0 = clamp(xOf(fromNs), -far, far), x1 = clamp(xOf(toNs), -far, far);
    const y0 = yOf(from.shownRow) + from.shownRow.height / 2, y1 = yOf(to.shownRow) + to.shownRow.height / 2;
    const bend = Math.max(18, Math.min(Math.abs(x1 - x0) / 2, 90));
    for (const [color, px] of [[palette.bg, 4], [isLaunch ? palette.fg : palette.mark, 1.6]]) {
      g.strokeStyle = g.fillStyle = color;
      g.lineWidth = px;
      g.setLineDash(isLaunch && px < 4 ? [5, 3] : []);
      g.beginPath();
      g.moveTo(x0, y0);
      g.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
      g.stroke();
      g.setLineDash([]);
      g.beginPath();
      g.moveTo(x1, y1);
      g.lineTo(x1 - 8, y1 - 4);
      g.lineTo(x1 - 8, y1 + 4);
      g.fill();
      g.beginPath();
      g.arc(x0, y0, px < 4 ? 2.5 : 4, 0, 7);
      g.fill();
    }
  }

  // ---------------------------------------------------------------- overview

  const overviewX = (t) => ((t - meta.start) / (meta.end - meta.start)) * overviewPx;
  const overviewTime = (x) => meta.start + (x / overviewPx) * (meta.end - meta.start);

  /** A small map of all the time: idle causes and streams of one group, or the summary of several. */
  function overviewLanes() {
    if (groups.length === 1) return groups[0].lanes.filter(({ type }) => type === "idle" || type === "stream").slice(0, 16);
    const summary = (group) => group.lanes.filter((lane) => lane.summary && lane.type !== "steps");
    return groups.map((group) => summary(group).find(({ type }) => type === "stream") ?? summary(group)[0]).filter(Boolean);
  }
  function paintOverviewLanes() {
    if (!palette) return;
    const g = overviewCopy.getContext("2d"), w = overviewPx, h = OVERVIEW_PX;
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.fillStyle = palette.bg;
    g.fillRect(0, 0, w, h);
    const lanes = overviewLanes(), room = (h - 15) / Math.max(lanes.length, 1);
    const axis = { left: 0, t0: meta.start, px: (meta.end - meta.start) / w };
    lanes.forEach((lane, k) => paintShares(g, lane, axis, 12 + k * room, room > 3 ? room - 1 : room, meta.start, meta.end, false));
    g.font = "10px system-ui, sans-serif";
    g.textBaseline = "top";
    let free = 0;
    for (const step of meta.windows) {
      if ((step.group ?? 0) !== 0) continue;
      const x = overviewX(step.start);
      g.fillStyle = palette.line;
      g.fillRect(x, 0, 1, h);
      g.fillStyle = step.steady ? palette.fg : palette.muted;
      if (x < free || overviewX(step.end) - x < 24) continue;
      g.fillText(step.label, x + 3, 1);
      free = x + g.measureText(step.label).width + 8;
    }
  }
  function paintBrush() {
    const g = overviewSurface, w = overviewPx, h = OVERVIEW_PX;
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.drawImage(overviewCopy, 0, 0);
    g.setTransform(scale, 0, 0, scale, 0, 0);
    const x0 = overviewX(view[0]), x1 = Math.max(overviewX(view[1]), x0 + 2);
    g.fillStyle = palette.bg;
    g.globalAlpha = 0.65;
    g.fillRect(0, 0, x0, h);
    g.fillRect(x1, 0, w - x1, h);
    g.globalAlpha = 1;
    g.strokeStyle = g.fillStyle = palette.accent;
    g.lineWidth = 1.5;
    g.strokeRect(x0 + 0.75, 0.75, x1 - x0 - 1.5, h - 1.5);
    for (const x of [x0, x1]) g.fillRect(x - 2, h / 2 - 8, 4, 16);
    if (state.finding) {
      g.fillStyle = palette.mark;
      for (const [, start, end] of state.finding.marks)
        g.fillRect(overviewX(start), h - 3, Math.max(2, overviewX(end) - overviewX(start)), 3);
    }
  }

  // ---------------------------------------------------------------- what is shown

  /** Shows a range, kept within the time there is. */
  function show(from, to) {
    const whole = meta.end - meta.start, length = clamp(to - from, Math.min(LEAST_VIEW_NS, whole), whole);
    if (to - from !== length) from = (from + to - length) / 2;
    from = clamp(from, meta.start, meta.end - length);
    view = [from, from + length];
    repaint();
    rememberInHash(false);
    showWindow();
  }
  function zoom(factor, x) {
    const t = x === undefined ? (view[0] + view[1]) / 2 : timeAt(clamp(x, labelPx, width));
    show(t - (t - view[0]) * factor, t + (view[1] - t) * factor);
  }
  function pan(share) {
    const by = (view[1] - view[0]) * share;
    show(view[0] + by, view[1] + by);
  }
  /** Moves the view as little as it takes to see an item; one that is longer than the view is seen. */
  function reveal({ lane, i }) {
    const start = lane.start[i], end = lane.end[i], length = view[1] - view[0];
    if (end <= view[0] || start >= view[1]) {
      const middle = end - start > length ? start + length / 3 : (start + end) / 2;
      show(middle - length / 2, middle + length / 2);
    }
    revealRow(lane.shownRow);
  }
  function revealRow(row) {
    if (!row) return;
    const top = row.y, bottom = row.y + row.height + AXIS_PX;
    if (top < scrollPx) scroller.scrollTop = top;
    else if (bottom > scrollPx + height) scroller.scrollTop = bottom - height;
    scrollPx = scroller.scrollTop;
  }
  function zoomTo({ lane, i }) {
    const margin = Math.max((lane.end[i] - lane.start[i]) * 0.25, LEAST_VIEW_NS);
    show(lane.start[i] - margin, lane.end[i] + margin);
  }
  function setOpen(group, isOpen) {
    if (group.open === isOpen) return;
    group.open = isOpen;
    layoutRows();
  }

  /** Goes to a finding's evidence and marks it. */
  function showFinding(number, { range = null, remember = true } = {}) {
    const finding = meta.findings.find((each) => each.number === number) ?? null;
    state.finding = finding;
    for (const entry of document.querySelectorAll("li.finding")) {
      if (finding && Number(entry.dataset.finding) === number) entry.setAttribute("aria-current", "true");
      else entry.removeAttribute("aria-current");
    }
    if (!finding) return repaint(false);
    setOpen(groups[finding.group], true);
    show(...(range ?? finding.view));
    revealRow(groups[finding.group].lanes[finding.marks[0]?.[0]]?.shownRow);
    if (remember) rememberInHash(true);
  }
  function stepFinding(by) {
    const numbers = meta.findings.map((each) => each.number);
    if (!numbers.length) return;
    const at = state.finding ? numbers.indexOf(state.finding.number) : by > 0 ? -1 : 0;
    showFinding(numbers[(at + by + numbers.length) % numbers.length]);
    document.querySelector('li.finding[aria-current="true"]')?.scrollIntoView({ block: "nearest" });
  }

  // The hash holds the finding and the view, so that a file and a hash share what is seen.
  let hashTimer = 0;
  function rememberInHash(isNew) {
    clearTimeout(hashTimer);
    const write = () => {
      const hash = `#${state.finding ? `f=${state.finding.number}&` : ""}t=${Math.round(view[0])}-${Math.round(view[1])}`;
      if (hash === location.hash) return;
      try {
        if (isNew) history.pushState(null, "", hash);
        else history.replaceState(null, "", hash);
      } catch { /* some browsers refuse that for files: then only the address lacks it */ }
    };
    if (isNew) write();
    else if (timeline.isReady) hashTimer = setTimeout(write, 250); // browsers limit how often
  }
  /** Returns whether the hash says what to show. */
  function followHash() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const range = /^(-?\d+)-(-?\d+)$/.exec(asked.get("t") ?? "")?.slice(1).map(Number) ?? null;
    const number = Number(asked.get("f")), isRange = range !== null && range[1] > range[0];
    if (meta.findings.some((each) => each.number === number)) {
      showFinding(number, { range: isRange ? range : null, remember: false });
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
      windowSelect.add(new Option("all the time", "all"));
      meta.windows.forEach((each, k) => windowSelect.add(new Option(each.label, String(k))));
    }
    windowSelect.addEventListener("change", () => {
      const chosen = meta.windows[Number(windowSelect.value)];
      if (chosen) {
        setOpen(groups[chosen.group ?? 0], true);
        show(chosen.start, chosen.end);
      } else show(meta.start, meta.end);
    });
  }
  /** The step selector names the step that the view is, if it is one. */
  function showWindow() {
    if (!windowSelect) return;
    const is = (each) => each.start === view[0] && each.end === view[1];
    const k = meta.windows.findIndex(is);
    if (k >= 0) windowSelect.value = String(k);
    else if (view[0] === meta.start && view[1] === meta.end) windowSelect.value = "all";
    else windowSelect.selectedIndex = -1;
  }

  // ---------------------------------------------------------------- text below the lanes

  function element(tag, text = "", className = "") {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    if (className) made.className = className;
    return made;
  }
  /** `spoken` says whether a screen reader is to say it: what the keyboard is on, not the mouse. */
  function showDetails(item, spoken) {
    details.setAttribute("aria-live", spoken ? "polite" : "off");
    if (!item) return details.replaceChildren(HINT);
    const { title, facts } = describe(item);
    const lines = [element("div", title, "what")];
    for (const [k, [label, text]] of facts.entries()) lines.push(k ? " · " : "", element("b", label), ` ${text}`);
    details.replaceChildren(...lines);
  }
  function say(text) {
    details.setAttribute("aria-live", "polite");
    details.replaceChildren(text);
  }
  const HINT = "Hover over an activity, or use the arrow keys once the lanes have the focus. Drag measures; " +
    "Ctrl and the wheel zoom, after a click the wheel alone. ? says all keys.";

  function showMeasured() {
    if (!state.range) return measured.replaceChildren();
    const [a, b] = state.range, table = element("table"), body = table.createTBody();
    table.createCaption().textContent =
      `Measured ${exactTime(b - a)} (${count(b - a)} ns), from ${exactTime(a)} to ${exactTime(b)}`;
    const head = table.createTHead().insertRow();
    for (const text of ["lane", "busy (ns)", "idle (ns)", "busy", "of which"]) {
      const cell = element("th", text);
      cell.scope = "col";
      head.append(cell);
    }
    for (const each of measure(a, b)) {
      const row = body.insertRow(), about = each.exact ? "" : "about ";
      const label = groups.length > 1 ? `${groups[each.group].label}, ${each.label}` : each.label;
      const th = element("th", label);
      th.scope = "row";
      row.append(th);
      for (const text of [about + count(Math.round(each.busy)), about + count(Math.round(each.idle)),
                          `${((100 * each.busy) / (b - a)).toFixed(1)} %`,
                          Object.entries(each.kinds).map(([name, ns]) => `${words(name)} ${count(Math.round(ns))}`).join(", ")])
        row.append(element("td", text));
    }
    measured.replaceChildren(table);
  }
  function setRange(range) {
    state.range = range;
    showMeasured();
    repaint(false);
  }

  function fillLegend() {
    if (!legend) return;
    const names = new Set(groups.flatMap((group) => group.lanes.flatMap((lane) =>
      lane.kinds.filter((name, k) => lane.sums[k] || lane.outside?.sums[k]))));
    legend.replaceChildren(...[...names].map((name) => {
      const entry = element("li");
      entry.append(element("span", "", `swatch k-${name}`), words(name));
      return entry;
    }));
  }

  // ---------------------------------------------------------------- search

  function search(text) {
    const wanted = text.trim().toLowerCase();
    state.search = null;
    for (const group of groups) for (const lane of group.lanes) lane.found = null;
    if (wanted) {
      const matched = Uint8Array.from(meta.names, (name) => Number(name.toLowerCase().includes(wanted)));
      let hits = 0;
      for (const group of groups)
        for (const lane of group.lanes) {
          if (lane.type !== "stream" && lane.type !== "host") continue;
          lane.found = foundIn(lane, matched);
          hits += lane.found[lane.count];
        }
      state.search = { hits, at: -1, matches: null };
    }
    showSearchCount();
    repaint();
  }
  /** How many activities before each one match, by name, operator or line. */
  function foundIn(lane, matched) {
    const found = new Uint32Array(lane.count + 1), { name, op, line } = lane;
    for (let i = 0; i < lane.count; i++)
      found[i + 1] = found[i] + (matched[name[i]] || (op && matched[op[i]]) || (line && matched[line[i]]) ? 1 : 0);
    return found;
  }
  let searchCount = null;
  function showSearchCount() {
    if (!searchCount) return;
    const { hits, at } = state.search ?? {};
    const all = hits === 0 ? "no match" : `${count(hits ?? 0)} ${hits === 1 ? "match" : "matches"}`;
    searchCount.textContent = !state.search ? "" : at >= 0 ? `${count(at + 1)} of ${all}` : all;
  }
  /** All matches by start: the lanes' own, which are in order, merged. */
  function sortedMatches() {
    const lanes = groups.flatMap((group) => group.lanes).filter((lane) => lane.found?.[lane.count]);
    const heads = lanes.map((lane) => firstFrom(lane.found, 1) - 1), matches = [];
    while (matches.length < state.search.hits) {
      let first = -1, start = Infinity;
      for (let k = 0; k < lanes.length; k++)
        if (heads[k] < lanes[k].count && lanes[k].start[heads[k]] < start) start = lanes[(first = k)].start[heads[k]];
      const lane = lanes[first], i = heads[first];
      matches.push({ lane, i });
      do heads[first]++; while (heads[first] < lane.count && lane.found[heads[first] + 1] === lane.found[heads[first]]);
    }
    return matches;
  }
  /** Goes to the next match, first to the next one in the view; by = -1: to the one before. */
  function nextMatch(by) {
    const found = state.search;
    if (!found?.hits) return;
    found.matches ??= sortedMatches();
    const { matches } = found, startOf = ({ lane, i }) => lane.start[i];
    if (found.at < 0) {
      const seen = matches.findIndex((match) => startOf(match) >= view[0]);
      found.at = by > 0 ? (seen < 0 ? 0 : seen) : seen < 1 ? matches.length - 1 : seen - 1;
    } else found.at = (found.at + by + matches.length) % matches.length;
    const match = matches[found.at];
    setOpen(match.lane.group, true);
    setCursor({ ...match });
    showSearchCount();
  }

  // ---------------------------------------------------------------- mouse

  const rowAt = (y) => rows.find((row) => y >= AXIS_PX && y >= yOf(row) && y < yOf(row) + row.height) ?? null;

  /** The item under a point, or the nearest within 3 pixels. */
  function itemAt(x, y) {
    const lane = x >= labelPx ? rowAt(y)?.lane : null;
    if (!lane || !lane.count) return null;
    const t = timeAt(x), reach = 3 * nsPerPx();
    const inSecond = lane.overlaps && y > yOf(lane.shownRow) + lane.shownRow.height - SECOND_PX;
    const middle = firstAbove(lane.start, t);
    let best = -1, distance = reach;
    for (let i = Math.max(0, middle - 64); i < Math.min(lane.count, middle + 2); i++) {
      if (lane.overlaps && lane.from[i] > lane.start[i] !== inSecond) continue;
      const off = Math.max(lane.start[i] - t, t - lane.end[i], 0);
      if (off < distance || (off === 0 && distance === 0)) { best = i; distance = off; }
    }
    return best < 0 ? null : { lane, i: best };
  }
  /** A moment for a measured range: the edge of an activity within 4 pixels, else a whole ns. */
  function momentAt(x, y) {
    const t = clamp(timeAt(x), view[0], view[1]), item = itemAt(x, y), reach = 4 * nsPerPx();
    if (item)
      for (const edge of [item.lane.start[item.i], item.lane.end[item.i]]) if (Math.abs(edge - t) < reach) return edge;
    return Math.round(t);
  }
  function setHover(item) {
    if (item?.lane === state.hover?.lane && item?.i === state.hover?.i) return;
    state.hover = item;
    showDetails(item ?? state.cursor, false);
    repaint(false);
  }

  let drag = null; // {x, y, from, moved}
  const touches = new Map(); // pointers on a touch screen: id -> x
  function onPointerDown(event) {
    const { offsetX: x, offsetY: y } = event;
    if (event.pointerType === "touch") return void touches.set(event.pointerId, x);
    if (event.button !== 0) return;
    state.wheelZooms = true;
    const row = rowAt(y);
    if (row && !row.lane) return setOpen(row.group, !row.group.open);
    if (x < labelPx) return;
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
  /** One finger moves the view, two zoom. */
  function onTouchMove(id, x) {
    const last = touches.get(id), others = [...touches].filter(([each]) => each !== id);
    touches.set(id, x);
    if (!others.length) return pan((last - x) / (width - labelPx));
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
    const zooms = event.ctrlKey || event.shiftKey || state.wheelZooms;
    if (!zooms) return; // the page scrolls
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1, { deltaX, deltaY } = event;
    if (!event.shiftKey && Math.abs(deltaX) > Math.abs(deltaY)) pan((deltaX * unit) / (width - labelPx));
    else zoom(Math.exp(((deltaY || deltaX) * unit) / (event.ctrlKey ? 150 : 400)), event.offsetX);
  }

  let brush = null; // {edge: 0, 1 or null for a move, at, view}
  function onBrushDown(event) {
    const x = event.offsetX, edges = view.map(overviewX), at = overviewTime(x);
    overview.setPointerCapture(event.pointerId);
    const edge = edges.findIndex((each) => Math.abs(each - x) < 6);
    const isInside = x > edges[0] && x < edges[1] && view[1] - view[0] < 0.98 * (meta.end - meta.start);
    brush = edge >= 0 ? { fixed: view[1 - edge] } : isInside ? { at, view } : { fixed: at };
  }
  function onBrushMove(event) {
    if (!brush) return;
    const t = clamp(overviewTime(event.offsetX), meta.start, meta.end);
    if (brush.view) show(brush.view[0] + t - brush.at, brush.view[1] + t - brush.at);
    else if (t !== brush.fixed) show(Math.min(t, brush.fixed), Math.max(t, brush.fixed));
  }

  // ---------------------------------------------------------------- keyboard

  function setCursor(item, { spoken = true } = {}) {
    state.cursor = item;
    state.hover = null;
    if (item) {
      state.cursorRow = rows.indexOf(item.lane.shownRow);
      if (spoken) reveal(item);
    }
    showDetails(item, spoken);
    repaint(false);
  }
  /** The item of a lane that is nearest to a moment; null in a lane without any. */
  function nearest(lane, t) {
    if (!lane?.count) return null;
    const i = clamp(firstAbove(lane.end, t), 0, lane.count - 1);
    const isNearer = i > 0 && t - lane.end[i - 1] < lane.start[i] - t;
    return { lane, i: isNearer ? i - 1 : i };
  }
  function moveRow(by) {
    const { cursor } = state, from = cursor ? clamp((cursor.lane.start[cursor.i] + cursor.lane.end[cursor.i]) / 2, ...view) : (view[0] + view[1]) / 2;
    const at = clamp(state.cursorRow + by, 0, rows.length - 1), row = rows[at];
    const item = nearest(row.lane, from);
    revealRow(row);
    if (item) return setCursor(item);
    state.cursorRow = at;
    state.cursor = null;
    say(row.lane ? `${row.lane.label}: nothing in it` : `${row.group.label}, ${row.group.open ? "open" : "closed"}; Enter ${row.group.open ? "closes" : "opens"} it`);
    repaint(false);
  }
  function moveItem(by) {
    const { cursor } = state;
    if (!cursor) return setCursor(nearest(rows[Math.max(state.cursorRow, 0)]?.lane ?? rows.find((row) => row.lane)?.lane, view[0]));
    const i = cursor.i + by;
    if (i >= 0 && i < cursor.lane.count) setCursor({ lane: cursor.lane, i });
  }
  function enter() {
    const row = rows[state.cursorRow];
    if (state.cursor) zoomTo(state.cursor);
    else if (row && !row.lane) { setOpen(row.group, !row.group.open); moveRow(0); }
  }
  function escape() {
    state.wheelZooms = false;
    if (state.range) return setRange(null);
    if (state.cursor || state.hover) return setCursor(null);
    if (state.finding) showFinding(null);
  }

  const LANE_KEYS = { // while the lanes have the focus
    ArrowUp: () => moveRow(-1), k: () => moveRow(-1), ArrowDown: () => moveRow(1), j: () => moveRow(1),
    ArrowLeft: () => moveItem(-1), ArrowRight: () => moveItem(1), Enter: enter, " ": enter,
    Home: () => show(meta.start, meta.end), m: () => setRange(view.map(Math.round)),
    z: () => state.range && show(...state.range),
  };
  const VIEW_KEYS = { // also while the mouse is over them
    w: () => zoom(0.7), "+": () => zoom(0.7), "=": () => zoom(0.7), s: () => zoom(1 / 0.7), "-": () => zoom(1 / 0.7),
    a: () => pan(-0.25), d: () => pan(0.25), Escape: escape,
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
    const action = (isFocused && LANE_KEYS[key]) || ((isFocused || state.pointerInside) && VIEW_KEYS[key]) || PAGE_KEYS[key];
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
    ["drag", "measure: busy and idle of each lane"], ["M", "measure what is seen"], ["Z", "zoom to the measured time"],
    ["double click", "zoom to the activity"], ["Ctrl or Shift and wheel", "zoom; after a click the wheel alone"],
    ["/", "search names, operators and lines; Enter and Shift+Enter go through the matches"],
    ["N, P", "next, previous finding"], ["Esc", "clear; the wheel scrolls the page again"], ["?", "this help"],
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
  function beforePrint() {
    if (state.printing) return;
    const root = document.documentElement;
    themeBefore = root.getAttribute("data-theme");
    state.printing = true;
    root.setAttribute("data-theme", "light");
    readPalette();
    resize();
    lanesAreStale = true;
    paintNow();
  }
  function afterPrint() {
    if (!state.printing) return;
    state.printing = false;
    if (themeBefore === null) document.documentElement.removeAttribute("data-theme");
    else document.documentElement.setAttribute("data-theme", themeBefore);
    readPalette();
    resize();
  }

  // ---------------------------------------------------------------- start

  function listen() {
    const on = (target, type, action, options) => target?.addEventListener(type, action, options);
    on(canvas, "pointerdown", onPointerDown);
    on(canvas, "pointermove", onPointerMove);
    on(canvas, "pointerup", onPointerUp);
    on(canvas, "pointercancel", onPointerUp);
    on(canvas, "pointerenter", () => { state.pointerInside = true; });
    on(canvas, "pointerleave", () => { state.pointerInside = false; setHover(null); });
    on(canvas, "dblclick", (event) => { const item = itemAt(event.offsetX, event.offsetY); if (item) zoomTo(item); });
    on(canvas, "wheel", onWheel, { passive: false });
    on(canvas, "blur", () => { state.wheelZooms = false; repaint(false); });
    on(canvas, "focus", () => repaint(false));
    on(overview, "pointerdown", onBrushDown);
    on(overview, "pointermove", onBrushMove);
    for (const type of ["pointerup", "pointercancel"]) on(overview, type, () => { brush = null; });
    on(scroller, "scroll", () => { scrollPx = scroller.scrollTop; repaint(); });
    on(document, "keydown", onKey);
    on(byId("help"), "click", showHelp);
    on(byId("findings"), "click", (event) => {
      if (event.target.closest("a, summary, select, input") || String(getSelection())) return;
      const entry = event.target.closest("li.finding");
      if (entry) showFinding(Number(entry.dataset.finding));
    });
    on(searchBox, "input", () => search(searchBox.value));
    on(searchBox, "keydown", onSearchKey);
    on(window, "hashchange", followHash);
    on(window, "beforeprint", beforePrint);
    on(window, "afterprint", afterPrint);
    on(matchMedia("(prefers-color-scheme: dark)"), "change", themeChanged);
    new MutationObserver(() => state.printing || themeChanged())
      .observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    new ResizeObserver(() => {
      if (scroller.clientWidth !== width || overview.clientWidth !== overviewPx ||
          Math.min(scroller.clientHeight, rowsPx + AXIS_PX) !== height) state.printing || resize();
    }).observe(scroller);
  }

  function describeCanvas() {
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", "Timeline. Arrow keys go from activity to activity, ? says all keys.");
    canvas.setAttribute("aria-describedby", "details");
    overview.setAttribute("aria-hidden", "true"); // the keys of the lanes do all that it does
    if (searchBox) {
      searchCount = element("output");
      searchCount.id = "search-count";
      searchCount.setAttribute("aria-live", "polite");
      searchBox.insertAdjacentElement("afterend", searchCount);
    }
  }

  async function start() {
    meta = JSON.parse(metaElement.textContent);
    const reader = { bytes: await inflate(byId("timeline-columns").textContent.trim()), at: 0 };
    groups = meta.groups.map((spec, number) => {
      const group = { ...spec, number, launched: null, open: spec.open || meta.groups.length === 1 };
      group.lanes = spec.lanes.map((lane) => readLane(reader, lane, group, meta.start));
      group.streams = group.lanes.filter((lane) => lane.type === "stream");
      group.hosts = group.lanes.filter((lane) => lane.type === "host");
      return group;
    });
    timeline.timings.decoded = performance.now();
    view = [meta.start, meta.end];
    describeCanvas();
    fillWindowSelect();
    fillLegend();
    readPalette();
    layoutRows();
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

  /* For tests and for other scripts of the page. A lane is named by its group's number and its id.
     timings: milliseconds since the page was asked for. */
  const laneOf = (id, group = 0) => groups[group].lanes.find((lane) => lane.id === id);
  const timeline = (window.tracelabTimeline = {
    get view() { return [...view]; },
    get finding() { return state.finding?.number ?? null; },
    get rows() { return rows.map(({ group, lane, y, height: px }) => ({ group: group.number, lane: lane?.id ?? null, y: y + AXIS_PX, height: px })); },
    goTo: (from, to) => show(from, to),
    paint: paintNow,
    busy: (id, a, b, group) => busy(laneOf(id, group), a, b),
    measure,
    select: (id, i, group) => setCursor({ lane: laneOf(id, group), i }),
    describe(id, i, group) {
      const { title, facts, links } = describe({ lane: laneOf(id, group), i });
      return { title, facts: Object.fromEntries(facts), links: links.map((x) => ({ ...x, from: x.from.id, to: x.to.id })) };
    },
    xOf, isReady: false, timings: {}, ready: null,
  });
  timeline.ready = start().catch((error) => {
    byId("timeline-note").textContent = `The timeline cannot be shown here: ${error.message}`;
    throw error;
  });
})();
