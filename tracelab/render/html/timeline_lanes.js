"use strict";
/* Lanes: read from the page's columns, and measured exactly by prefix sums of each kind. Times are
   integer nanoseconds in doubles, exact below 2**53 (104 days). A lane has start end from upto
   (Float64Array, ns), sums (of each kind, or null), group, and further columns by name. */
const timelineLanes = (() => {
  const NONE = 0xffffffff, GAP_ESCAPE = 0x7fffffff; // of columns of four bytes

  // ---------------------------------------------------------------- reading

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

  /** `count` unsigned numbers from byte planes: all low bytes, then the next ones. */
  function readPlanes(bytes, at, count, size) {
    const numbers = new { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: Float64Array }[size](count);
    for (let plane = 0; plane < size; plane++) {
      const offset = at + plane * count, shift = 8 * plane;
      if (size === 8) for (let i = 0; i < count; i++) numbers[i] += bytes[offset + i] * 2 ** shift;
      else for (let i = 0; i < count; i++) numbers[i] |= bytes[offset + i] << shift;
    }
    return numbers;
  }

  /** Makes lane[name] a lazy column: most are rarely used. */
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

  function findLane(reader, spec, group) {
    const lane = { ...spec, group };
    for (const column of spec.columns) addColumn(reader, lane, column);
    lane.binsAt = reader.at;
    if (spec.bins) reader.at += 4 * spec.bins.count * spec.bins.kinds.length;
    if (reader.at > reader.bytes.length) throw new Error("the timeline's data is cut off");
    return lane;
  }
  function readLane({ bytes }, lane, clockStart, rows) {
    addTimes(lane, clockStart, rows);
    addSums(lane);
    if (lane.bins) addBins(bytes, lane);
  }

  function rowsOf(streams) {
    const rows = { start: new Float64Array(count(streams)), end: new Float64Array(count(streams)) };
    let at = 0;
    for (const { start, end } of streams) {
      rows.start.set(start, at);
      rows.end.set(end, at);
      at += start.length;
    }
    return rows;
  }
  const count = (lanes) => lanes.reduce((sum, lane) => sum + lane.count, 0);

  /** Adds start and end, and from and upto without time covered by earlier activities. In a lane that
      refers to rows, gap and dur are differences from their times. */
  function addTimes(lane, clockStart, rows) {
    const n = lane.count, byRow = lane.columns.some(([name]) => name === "row");
    const gap = new Int32Array(lane.gap.buffer), dur = byRow ? new Int32Array(lane.dur.buffer) : lane.dur;
    const gaps = new Map(lane.escapes?.gap), durs = new Map(lane.escapes?.dur);
    const durEscape = byRow ? GAP_ESCAPE : NONE;
    const start = new Float64Array(n), end = new Float64Array(n);
    let before = clockStart, latest = -Infinity, overlaps = false;
    for (let i = 0; i < n; i++) {
      const row = byRow && lane.row[i] !== NONE ? lane.row[i] : -1;
      if (row > 0) before = Math.max(before, rows.end[row - 1]);
      start[i] = before + (gap[i] === GAP_ESCAPE && gaps.has(i) ? gaps.get(i) : gap[i]);
      const to = row < 0 ? start[i] : start[i] < rows.start[row] ? rows.start[row] : rows.end[row];
      before = end[i] = to + (dur[i] === durEscape && durs.has(i) ? durs.get(i) : dur[i]);
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

  function addSums(lane) {
    const { count, kind, from, upto } = lane;
    let occurring = 0; // a bit a kind
    for (let i = 0; i < count; i++) occurring |= 1 << kind[i];
    lane.sums = lane.kinds.map((name, k) => (occurring & (1 << k) ? new Float64Array(count + 1) : null));
    for (const [k, sums] of lane.sums.entries()) {
      let sum = 0;
      if (!sums) continue;
      for (let i = 0; i < count; i++) sums[i + 1] = kind[i] === k ? (sum += upto[i] - from[i]) : sum;
    }
  }

  /** Time outside the activities: ns a bin and kind, as running sums. */
  function addBins(bytes, lane) {
    const { count, start, end, kinds } = lane.bins;
    const edge = (bin) => start + (bin * (end - start)) / count;
    const outside = (lane.outside = { count, start, end, edge, sums: lane.kinds.map(() => null) });
    const inside = new Float64Array(lane.kinds.length); // within the detail
    for (const [at, kindName] of kinds.entries()) {
      const k = lane.kinds.indexOf(kindName), busy = readPlanes(bytes, lane.binsAt + 4 * at * count, count, 4);
      if (k < 0) throw new Error("the timeline's bins name a kind that the lane lacks");
      if (!busy.some(Boolean)) continue;
      const sums = (outside.sums[k] = new Float64Array(count + 1));
      let hint = rawUntil(lane, start, inside), before = inside[k];
      for (let bin = 0; bin < count; bin++) {
        hint = rawUntil(lane, edge(bin + 1), inside, hint);
        // A bin within the detail has nothing else; its edges are no whole ns, so that some would be left.
        const isCut = outsideLength(lane, edge(bin), edge(bin + 1)) > 0;
        sums[bin + 1] = sums[bin] + (isCut ? Math.max(0, busy[bin] - (inside[k] - before)) : 0);
        before = inside[k];
      }
    }
  }

  async function readGroups(meta, text) {
    const reader = { bytes: await inflate(text), at: 0 };
    return meta.groups.map((spec, number) => {
      const group = { ...spec, number, open: spec.open || meta.groups.length === 1 };
      group.lanes = spec.lanes.map((lane) => findLane(reader, lane, group));
      group.streams = group.lanes.filter((lane) => lane.type === "stream");
      group.hosts = group.lanes.filter((lane) => lane.type === "host");
      for (const lane of group.streams) readLane(reader, lane, meta.start);
      const rows = rowsOf(group.streams);
      for (const lane of group.lanes) if (lane.type !== "stream") readLane(reader, lane, meta.start, rows);
      return group;
    });
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

  /** The same with the bins, in which time outside the detail is spread evenly. */
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

  return { NONE, clamp, firstAbove, firstFrom, coveredUntil, busy, readGroups };
})();
