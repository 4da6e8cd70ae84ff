"use strict";
/* The text about an item, which is one activity, call, gap or part of a lane: {lane, i}. */
const timelineItems = (meta) => {
  const { NONE } = timelineLanes;
  const NO_NAME = 0xffff;
  const CONSTRAINT_LAUNCH = 4, CONSTRAINT_UNKNOWN = 7; // the others name a source

  const sinceZero = (t) => t - (meta.zero ?? 0);
  const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const unitOf = (ns) => UNITS.find(([unit]) => Math.abs(ns) >= unit) ?? UNITS[3];
  /** A length of time with all its digits: 812 ns, 1.64 µs, 16.682383 ms. */
  function exactTime(ns) {
    const [unit, name] = unitOf(ns);
    return `${Number((ns / unit).toFixed(9)).toLocaleString("en-US", { maximumFractionDigits: 9 })} ${name}`;
  }
  function roundTime(ns, digits = 3) {
    const [unit, name] = unitOf(ns);
    return `${Number((ns / unit).toPrecision(digits))} ${name}`;
  }
  const counted = (n) => n.toLocaleString("en-US");
  /** A number in its unit: "1.5 GiB", "623 TFLOP/s", "3 streams". */
  function amount(value, unit) {
    const base = unit === "bytes" ? 1024 : 1000, digits = unit === "bytes" ? 4 : 3;
    const power = Math.min(5, Math.floor(Math.log(Math.max(value, 1)) / Math.log(base) + 1e-9));
    if (!power || (unit !== "bytes" && unit !== "FLOP/s")) return `${counted(value)} ${unit}`;
    const number = Number((value / base ** power).toPrecision(digits));
    return `${number} ${"KMGTP"[power - 1]}${unit === "bytes" ? "iB" : unit}`;
  }
  function costOf({ cost, escapes }, i) {
    if (cost?.[i] !== NONE) return cost?.[i] ?? 0;
    return escapes?.cost?.find(([index]) => index === i)?.[1] ?? 0;
  }
  const words = (kindName) => meta.words?.[kindName] ?? kindName.replaceAll("_", " ");
  const fullName = (index) => (index < meta.names.length ? meta.names[index] : "");
  const shortName = (index) => (index < meta.names.length ? meta.short[index] || meta.names[index] : "");
  const kindOf = (lane, i) => lane.kinds[lane.kind[i]];

  function locate(lanes, number) {
    if (number === undefined || number === NONE) return null;
    for (const lane of lanes) {
      if (number < lane.count) return { lane, i: number };
      number -= lane.count;
    }
    return null;
  }
  const activityOf = (lane, number) => locate(lane.group.streams, number);
  const callOf = (lane, number) => locate(lane.group.hosts, number);

  function waitOf(lane, i) {
    const reason = meta.reasons[lane.why?.[i]];
    if (!reason) return { text: "", source: null };
    const why = lane.why[i], hasSource = why !== CONSTRAINT_LAUNCH && why !== CONSTRAINT_UNKNOWN;
    return { text: reason, source: hasSource ? activityOf(lane, lane.source[i]) : null };
  }

  function waitText({ lane, i }) {
    const { text, source } = waitOf(lane, i);
    if (!source) return text;
    const late = lane.start[i] - source.lane.end[source.i];
    const when = `started ${exactTime(Math.abs(late))} ${late >= 0 ? "after" : "before"} that ended`;
    return `${text}: ${briefOf(source)} (${placeOf(source)}); ${when}`;
  }

  function launchedBy(lane, i) {
    const { group } = lane;
    if (!group.launched) {
      group.launched = new Uint32Array(group.hosts.reduce((n, host) => n + host.count, 0)).fill(NONE);
      let row = 0;
      for (const { call, count } of group.streams)
        for (let k = 0; k < count; k++, row++)
          if (group.launched[call[k]] === NONE) group.launched[call[k]] = row;
    }
    let number = i;
    for (const host of group.hosts) {
      if (host === lane) return activityOf(lane, group.launched[number]);
      number += host.count;
    }
    return null;
  }

  const titleOf = ({ lane, i }) => (lane.name ? fullName(lane.name[i]) : "") || words(kindOf(lane, i));
  const briefOf = ({ lane, i }) => (lane.name ? shortName(lane.name[i]) : "") || words(kindOf(lane, i));

  function laneName(lane) {
    const [type, thread] = lane.id.split(":");
    const host = ["phase", "module", "operator"].includes(type) ? lane.group.hosts.find(({ id }) => id === `host:${thread}`) : null;
    return host ? `${lane.label} of ${host.label}` : lane.label;
  }
  function hostRan(lane, i) {
    const named = lane.line?.[i], place = shortName(named ?? NO_NAME), all = fullName(named ?? NO_NAME);
    if (!all) return lane.op && fullName(lane.op[i]) ? `the host ran \`${fullName(lane.op[i])}\`` : "";
    return all === place ? `the host ran \`${all}\`` : `the host ran \`${all.slice(place.length + 3)}\` (${place})`;
  }

  const placeOf = ({ lane, i }) =>
    lane.streams ? `GPU ${lane.device} stream ${lane.streams[lane.stream[i]]}` : lane.label;

  /** {title, facts: [[label, text]], links: [{from, fromNs, to, toNs, ...}]} of an item. */
  function describe(item) {
    const { lane, i } = item, start = lane.start[i], end = lane.end[i], facts = [], links = [];
    const fact = (label, text) => text && facts.push([label, text]);
    const link = (source, fromNs, target, toNs, isLaunch) =>
      links.push({ from: source.lane, fromNs, to: target.lane, toNs, isLaunch });
    const other = lane.type === "stream" ? null : activityOf(lane, lane.row?.[i]);
    const kind = words(kindOf(lane, i)), why = lane.type === "exposed" ? fullName(lane.name[i]) : "";
    const title = lane.value ? lane.label : why ? kind : titleOf(item);
    if (lane.value) fact("is", amount(lane.value[i], lane.unit));
    else if (title !== kind) fact("kind", kind);
    fact("duration", exactTime(end - start));
    fact("start", exactTime(sinceZero(start)));
    fact("on", lane.streams ? `${placeOf(item)}, one of ${lane.label}` : laneName(lane));
    if (lane.type === "idle") {
      fact("because", meta.causes?.[kindOf(lane, i)]);
      fact("meanwhile", hostRan(lane, i));
    }
    else {
      if (lane.op) fact("operator", fullName(lane.op[i]));
      if (lane.line) fact("line", fullName(lane.line[i]));
    }
    if (lane.captured) fact("in a CUDA graph", fullName(lane.captured[i]));
    if (lane.type === "stream") {
      const call = callOf(lane, lane.call?.[i]), wait = waitOf(lane, i);
      if (call) {
        const since = start - call.lane.start[call.i];
        fact("launched by", `${briefOf(call)} (${call.lane.label}), which began ${exactTime(since)} before`);
        link(call, call.lane.start[call.i], item, start, true);
      }
      fact("waited for", waitText(item));
      if (wait.source) link(wait.source, wait.source.lane.end[wait.source.i], item, start, false);
    } else if (lane.type === "idle" && other) {
      fact("ended by", `${briefOf(other)} (${placeOf(other)})`);
      const call = callOf(other.lane, other.lane.call?.[other.i]);
      if (call) {
        fact("which was launched by", `${briefOf(call)} (${call.lane.label})`);
        fact("and waited for", waitText(other));
        link(call, call.lane.start[call.i], other, other.lane.start[other.i], true);
      }
      link(item, end, other, other.lane.start[other.i], false);
    } else if (lane.type === "host") {
      if (costOf(lane, i)) fact("idle time that it caused", exactTime(costOf(lane, i)));
      const launched = other ? null : launchedBy(lane, i);
      if (other) {
        fact("waited for", `${briefOf(other)} (${placeOf(other)})`);
        link(other, other.lane.end[other.i], item, end, false);
      } else if (launched) {
        const at = launched.lane.start[launched.i], later = exactTime(at - start);
        fact("launched", `${briefOf(launched)} (${placeOf(launched)}), which started ${later} later`);
        link(item, start, launched, at, true);
      }
    } else if (other) fact("activity", `${titleOf(other)} (${placeOf(other)})`);
    fact("not overlapped because", why);
    return { title, facts, links };
  }

  return { sinceZero, unitOf, exactTime, roundTime, counted, words, kindOf, costOf, titleOf, briefOf, describe };
};
