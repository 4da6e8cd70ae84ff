"use strict";
/* Paints the timeline, and finds items by place. A pixel of many activities shows their exact shares.
   Only the rows of `scene` (see timeline.js) change here. */
const timelinePainter = (scene, items, { scroller, canvas, overview }) => {
  const { clamp, firstAbove, firstFrom, coveredUntil } = timelineLanes;
  const { sinceZero, unitOf, exactTime, roundTime, kindOf, costOf, briefOf, describe } = items;
  const OVERVIEW_PX = 52, AXIS_PX = 22, HEADER_PX = 20, SECOND_PX = 10; // SECOND_PX: for overlaps
  const LEVEL_PX = 8, NAMED_LEVEL_PX = 13; // of lanes of several levels
  const LEAST_NAMED_PX = 34, MOST_IN_NAMED_CROWD = 5000;
  const LEAST_STEP_PX = 8; // on average
  const MOST_STRETCH = 1.5, MOST_OVERVIEW_LANES = 18;
  const CROWDED = 1.5; // activities a pixel; beyond it shares are drawn
  const FONT = "11px system-ui, sans-serif";

  const surface = canvas.getContext("2d"), overviewSurface = overview.getContext("2d");
  // Lanes are painted when the view changes; hovering draws lines over a lazy copy of them.
  const lanesCopy = document.createElement("canvas"), overviewCopy = document.createElement("canvas");
  const spacer = document.createElement("div"); // the hidden height, for the scroll bar
  spacer.setAttribute("aria-hidden", "true");
  scroller.append(spacer);
  // In css pixels, cached because reading them costs a layout; scale: device pixels per css pixel.
  let width = 0, height = 0, labelPx = 150, widestPx = 0, scrollPx = 0, overviewPx = 0, scale = 1;
  let palette = null, letterPx = 6, lanesAreStale = true, copyIsStale = true, frameAsked = false;

  function layoutRows() {
    const shown = (group) => group.lanes.filter((lane) => group.open || lane.summary);
    const style = getComputedStyle(document.documentElement);
    const plainPx = (lane) => Number(style.getPropertyValue(`--height-${lane.type}`));
    scroller.style.maxHeight = "none";
    const room = 0.85 * scroller.clientHeight - AXIS_PX;
    const allPx = scene.groups.flatMap(shown).reduce((px, lane) => px + plainPx(lane), 1);
    const stretch = clamp(room / allPx, 1, MOST_STRETCH);
    const lanePx = (lane) =>
      Math.max(Math.round(plainPx(lane) * stretch), levelPx(lane) * levelsOf(lane)) + secondPx(lane);
    const rows = (scene.rows = []);
    let y = 0;
    const add = (group, lane, px) => {
      rows.push({ group, lane, y, height: px });
      y += px;
      return rows.at(-1);
    };
    for (const group of scene.groups) {
      group.y0 = y;
      if (scene.groups.length > 1) add(group, null, HEADER_PX);
      for (const lane of group.lanes) lane.shownRow = null;
      for (const lane of shown(group)) lane.shownRow = add(group, lane, lanePx(lane));
      group.y1 = y;
    }
    scene.rowsPx = y;
    surface.font = FONT;
    widestPx = Math.max(...rows.map(({ lane }) => (lane ? surface.measureText(lane.label).width : 0)));
    scroller.style.maxHeight = `${y + AXIS_PX + 2}px`;
    resize();
  }

  function resize() {
    const all = scene.rowsPx + AXIS_PX;
    width = scroller.clientWidth;
    labelPx = Math.round(clamp(widestPx + indent() + 16, 84, width < 560 ? 84 : 220));
    height = scene.printing ? all : Math.min(scroller.clientHeight, all);
    scale = scene.printing ? 2 : window.devicePixelRatio || 1;
    scrollPx = scene.printing ? 0 : scroller.scrollTop;
    overviewPx = overview.clientWidth;
    canvas.style.height = `${height}px`;
    spacer.style.height = `${all - height}px`;
    for (const each of [canvas, lanesCopy]) setSize(each, width, height);
    for (const each of [overview, overviewCopy]) setSize(each, overviewPx, OVERVIEW_PX);
    if (!palette) readPalette();
    paintOverviewLanes();
    repaint();
  }
  function fit() {
    const isFitting = scroller.clientWidth === width && overview.clientWidth === overviewPx &&
      Math.min(scroller.clientHeight, scene.rowsPx + AXIS_PX) === height;
    if (!isFitting && !scene.printing) resize();
  }
  function scrolled() {
    scrollPx = scroller.scrollTop;
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
    for (const group of scene.groups)
      for (const lane of group.lanes)
        for (const kindName of lane.kinds)
          if (!palette.kinds.has(kindName)) {
            const fill = color(`k-${kindName}`) || palette.muted;
            const ink = inkOn(fill), hatch = color(`striped-${kindName}`) ? hatchOf(ink) : null;
            const pale = pixelOf(fill, palette.bg, 0.55), hatchPixel = pixelOf(fill, ink, 0.35);
            palette.kinds.set(kindName, { fill, ink, hatch, pixel: pixelOf(fill), pale, hatchPixel });
          }
  }
  const partsOf = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  function inkOn(fill) {
    const [red, green, blue] = partsOf(fill)
      .map((part) => (part < 10.32 ? part / 3295 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#101214" : "#ffffff";
  }
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
  function refresh() {
    readPalette();
    resize();
  }

  // ---------------------------------------------------------------- lanes

  /** Paints in the next frame; `lanes`: more than the layer above them changed. */
  function repaint(lanes = true) {
    lanesAreStale ||= lanes;
    if (frameAsked) return;
    frameAsked = true;
    requestAnimationFrame(paintNow);
  }
  function paintNow() {
    frameAsked = false;
    if (!palette) return;
    if (lanesAreStale) paintLanes(surface);
    else {
      if (copyIsStale) paintLanes(lanesCopy.getContext("2d"));
      surface.setTransform(1, 0, 0, 1, 0, 0);
      surface.drawImage(lanesCopy, 0, 0);
    }
    copyIsStale = lanesAreStale;
    lanesAreStale = false;
    paintLayer();
    paintBrush();
  }

  // A hidden page has no width.
  const nsPerPx = () => (scene.view[1] - scene.view[0]) / Math.max(1, width - labelPx);
  const xOf = (t) => labelPx + (t - scene.view[0]) / nsPerPx();
  const timeAt = (x) => scene.view[0] + (x - labelPx) * nsPerPx();
  const yOf = (row) => row.y + AXIS_PX - scrollPx;
  const isSeen = (row) => yOf(row) + row.height > AXIS_PX && yOf(row) < height;

  function paintLanes(g) {
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.fillStyle = palette.bg;
    g.fillRect(0, 0, width, height);
    g.font = FONT;
    g.textBaseline = "middle";
    letterPx = g.measureText("aemnu_:0").width / 8;
    for (const row of scene.rows) if (isSeen(row)) paintRow(g, row);
    paintSteps(g);
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
    const from = scene.view[0], to = scene.view[1], full = row.height - secondPx(lane) - 4;
    const [low, high] = lane.bins ? lane.group.detail : [-Infinity, Infinity];
    const since = Math.max(from, low), until = Math.min(to, high); // of single activities
    const first = firstAbove(lane.upto, since), last = firstFrom(lane.start, until);
    const axis = { left: labelPx, t0: from, px: nsPerPx() };
    const isCrowded = last - first > (CROWDED * (until - since)) / axis.px && !isNested(lane);
    row.isCrowded = isCrowded;
    if (from < low) paintShares(g, lane, axis, y + 2, full, from, Math.min(low, to), true);
    if (lane.value) paintValues(g, lane, y + 2, full, first, last);
    else {
      if (isCrowded) paintShares(g, lane, axis, y + 2, full, since, until, false);
      const leastPx = isCrowded ? LEAST_NAMED_PX : 0; // names of long ones in a crowd
      const isNamed = !isCrowded || (levelsOf(lane) === 1 && last - first < MOST_IN_NAMED_CROWD);
      if (isNamed) paintItems(g, lane, y + 2, full, first, last, xOf(since), xOf(until), leastPx);
    }
    if (to > high) paintShares(g, lane, axis, y + 2, full, Math.max(high, from), to, true);
    if (lane.found) paintFound(g, lane, y + row.height - 3, first, last);
    g.fillStyle = palette.bg; // a bar may begin under the labels
    g.fillRect(0, y, labelPx, row.height);
    g.fillStyle = palette.fg;
    g.fillText(fitted(g, lane.label, labelPx - 10 - indent()), 4 + indent(), y + 2 + full / 2);
    g.fillStyle = palette.line;
    g.fillRect(0, y + row.height - 1, width, 1);
  }
  const indent = () => (scene.groups.length > 1 ? 10 : 0);

  const fits = new Map(); // shortened labels, by text and width
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
  let pixels = null, colors = null; // an image for the shares, and its words

  /** Stacks the exact shares of the kinds in each pixel column; pixels are faster than rectangles.
      `axis`: {left: css pixel of t0, t0, px: ns per css pixel}. */
  function paintShares(g, lane, axis, y, h, from, to, isPale) {
    const rowsOf = Math.max(1, Math.round(h * scale)), top = Math.round(y * scale), step = axis.px / scale;
    const x0 = Math.max(0, Math.floor(((from - axis.t0) / axis.px + axis.left) * scale));
    const columns = Math.ceil(((to - axis.t0) / axis.px + axis.left) * scale) - x0;
    if (columns <= 0) return;
    if (!pixels || pixels.width < columns || pixels.height < rowsOf) {
      pixels = new ImageData(Math.max(columns, pixels?.width ?? 0), Math.max(rowsOf, pixels?.height ?? 0));
      colors = new Uint32Array(pixels.data.buffer);
    }
    const wide = pixels.width, kinds = lane.kinds.length;
    const hatch = Math.round(6 * scale), ground = pixelOf(palette.bg);
    const looks = lane.kinds.map((name) => palette.kinds.get(name));
    const t0 = axis.t0 + (x0 / scale - axis.left) * axis.px; // of column 0
    let hint = coveredUntil(lane, clamp(t0, from, to), before);
    for (let x = 0; x < columns; x++) {
      hint = coveredUntil(lane, clamp(t0 + (x + 1) * step, from, to), after, hint);
      let sum = 0, row = rowsOf;
      for (let k = 0; k < kinds; k++) {
        const part = after[k] - before[k];
        before[k] = after[k];
        if (part <= 0) continue;
        sum += part;
        // Keeps half a pixel from being rounded up here and down there.
        const end = Math.max(0, rowsOf - Math.round((sum / step) * rowsOf - 1e-6)), look = looks[k];
        const fill = isPale ? look.pale : look.pixel, line = isPale || !look.hatch ? fill : look.hatchPixel;
        if (end === rowsOf) { colors[--row * wide + x] = look.pale; break; } // too little for a whole pixel
        while (row > end) { row--; colors[row * wide + x] = (x0 + x + row) % hatch < scale ? line : fill; }
      }
      while (row > 0) colors[--row * wide + x] = ground;
    }
    g.putImageData(pixels, x0, top, 0, 0, columns, rowsOf);
  }
  function paintValues(g, lane, y, full, first, last) {
    lane.most ??= lane.value.reduce((most, value) => Math.max(most, value), 1);
    const shares = new Float64Array(Math.ceil(width) + 1);
    const columnOf = (t) => Math.floor(clamp(xOf(t), labelPx, width));
    for (let i = first; i < last; i++) {
      const to = Math.max(columnOf(lane.end[i]), columnOf(lane.start[i]) + 1);
      for (let x = columnOf(lane.start[i]); x < to; x++) shares[x] = Math.max(shares[x], lane.value[i] / lane.most);
    }
    g.fillStyle = palette.kinds.get(lane.kinds[0]).fill;
    shares.forEach((share, x) => share && g.fillRect(x, y + full * (1 - share), 1, full * share));
  }
  function fillBar(g, look, x, y, w, h) {
    g.fillStyle = look.fill;
    g.fillRect(x, y, w, h);
    if (!look.hatch || w < 3) return;
    g.fillStyle = look.hatch;
    g.fillRect(x, y, w, h);
  }

  const levelsOf = (lane) => lane.levels ?? 1;
  const levelPx = (lane) => (lane.streams ? LEVEL_PX : NAMED_LEVEL_PX);
  const isNested = (lane) => lane.levels > 1 && !lane.streams;
  const isSecond = (lane, i) => lane.overlaps && !lane.levels && lane.from[i] > lane.start[i];
  const secondPx = (lane) => (lane.overlaps && !lane.levels ? SECOND_PX : 0);
  function barOf(lane, i, y, full) {
    if (isSecond(lane, i)) return [y + full + 1, SECOND_PX - 1];
    if (kindOf(lane, i) === "launch_call") return [y + full * 0.55, full * 0.45];
    if (levelsOf(lane) === 1) return [y, full];
    const high = full / lane.levels;
    return [y + lane.level[i] * high, high - 1];
  }

  /** Gaps thinner than a pixel are as high as their share: else few would look like a GPU always idle. */
  function paintItems(g, lane, y, full, first, last, leftPx, rightPx, leastPx) {
    let thinX = 0, thinPx = 0, thinLook = null;
    const painted = isNested(lane) ? new Float64Array(lane.levels) : null; // right edge, by level
    const paintThin = () => {
      const h = Math.max(1, Math.min(1, thinPx) * full);
      if (thinPx > 0) fillBar(g, thinLook, thinX, y + full - h, 1, h);
      thinPx = 0;
    };
    for (let i = first; i < last; i++) {
      const x = Math.max(leftPx, xOf(lane.start[i])), right = Math.min(rightPx, xOf(lane.end[i]));
      if (right < leftPx || x > rightPx || right - x < leastPx) continue;
      if (painted) {
        if (right < painted[lane.level[i]] + 0.5) continue; // invisible
        painted[lane.level[i]] = right;
      }
      let w = Math.max(right - x, 0.5);
      if (w > 4) w -= 0.75; // tells neighbors apart
      const look = palette.kinds.get(kindOf(lane, i));
      if (w < 1 && levelsOf(lane) === 1 && !isSecond(lane, i) && lane.type !== "host") {
        if (Math.floor(x) !== thinX) paintThin();
        thinX = Math.floor(x);
        thinPx += right - x;
        thinLook = look;
        continue;
      }
      const [top, h] = barOf(lane, i, y, full);
      fillBar(g, look, x, top, w, h);
      if (w > LEAST_NAMED_PX && h >= 9) {
        const cost = costOf(lane, i);
        const name = briefOf({ lane, i }) + (cost ? ` · caused ${roundTime(cost)} idle` : "");
        paintName(g, name, look, x, top + h / 2, w);
      }
    }
    paintThin();
  }
  function paintName(g, name, look, x, y, w) {
    const room = Math.floor((w - 6) / letterPx);
    const text = name.length > room ? `${name.slice(0, room - 1)}…` : name;
    if (look.hatch) { // readable on a hatch
      g.fillStyle = look.fill;
      g.fillRect(x + 1, y - 6, Math.min(text.length * letterPx + 4, w - 2), 12);
    }
    g.fillStyle = look.ink;
    g.fillText(text, x + 3, y);
  }
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

  const isOnOneClock = scene.meta.windows.every((step) => !step.group); // shared steps
  /** Edges of steps, unless so many lines would hide the lanes. */
  function paintSteps(g) {
    const [from, to] = scene.view;
    const seen = scene.meta.windows.filter((step) => step.end > from && step.start < to);
    const yOfGroup = (y) => clamp(y + AXIS_PX - scrollPx, AXIS_PX, height);
    if (seen.length * LEAST_STEP_PX > width - labelPx) return;
    g.fillStyle = palette.muted;
    g.globalAlpha = 0.5;
    for (const step of seen) {
      const { y0, y1 } = isOnOneClock ? { y0: 0, y1: scene.rowsPx } : scene.groups[step.group];
      for (const x of [step.start, step.end].map((t) => Math.round(xOf(t))))
        if (x >= labelPx && x <= width) g.fillRect(x, yOfGroup(y0), 1, yOfGroup(y1) - yOfGroup(y0));
    }
    g.globalAlpha = 1;
  }

  function paintAxis(g) {
    const px = nsPerPx(), step = niceStep(px * 110);
    const [from, to] = scene.view.map(sinceZero), shift = scene.view[0] - from;
    const [unit, unitName] = unitOf(Math.max(Math.abs(from), Math.abs(to)));
    const digits = Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9));
    g.fillStyle = palette.bg;
    g.fillRect(0, 0, width, AXIS_PX);
    g.fillStyle = palette.muted;
    g.fillText(`time from 0 (${unitName})`, 4, AXIS_PX / 2);
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      const x = xOf(t + shift);
      g.fillStyle = palette.line;
      g.fillRect(Math.round(x), AXIS_PX - 5, 1, 5);
      g.fillStyle = palette.muted;
      const text = (t / unit).toFixed(digits);
      if (x + g.measureText(text).width + 4 < width) g.fillText(text, x + 3, AXIS_PX / 2);
    }
    g.fillStyle = palette.line;
    g.fillRect(0, AXIS_PX - 1, width, 1);
  }
  function niceStep(ns) {
    const power = 10 ** Math.floor(Math.log10(Math.max(ns, 1)));
    return power * ([1, 2, 5, 10].find((m) => m * power >= ns) ?? 10);
  }

  function paintLayer() {
    const g = surface;
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.save();
    g.beginPath();
    g.rect(labelPx, 0, width - labelPx, height);
    g.clip();
    if (scene.finding) paintMarks(g, scene.finding);
    if (scene.range) paintRange(g, scene.range);
    const item = scene.hover ?? scene.cursor;
    if (item) {
      for (const each of describe(item).links) paintLink(g, each);
      if (item.lane.shownRow) paintOutline(g, item);
    }
    g.restore();
    if (scene.cursorRow >= 0 && document.activeElement === canvas && scene.rows[scene.cursorRow]) {
      const row = scene.rows[scene.cursorRow];
      g.fillStyle = palette.accent;
      g.fillRect(0, yOf(row), 3, row.height);
    }
  }
  function paintMarks(g, finding) {
    const group = scene.groups[finding.group];
    g.strokeStyle = g.fillStyle = palette.mark;
    g.lineWidth = 2;
    for (const [laneIndex, start, end] of finding.marks) {
      const row = group.lanes[laneIndex]?.shownRow;
      const x = Math.max(xOf(start), -10), w = Math.max(Math.min(xOf(end), width + 10) - x, 2);
      if (x > width || x + w < labelPx) continue;
      g.fillRect(x, AXIS_PX - 4, w, 4);
      if (!row || !isSeen(row)) continue;
      g.globalAlpha = 0.18;
      g.fillRect(x, yOf(row), w, row.height);
      g.globalAlpha = 1;
      if (w > 6) g.strokeRect(x + 1, yOf(row) + 1, w - 2, row.height - 3);
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
    const row = lane.shownRow, full = row.height - secondPx(lane);
    let top = yOf(row), h = full;
    if (isSecond(lane, i)) [top, h] = [top + full, SECOND_PX];
    else if (levelsOf(lane) > 1 && !row.isCrowded) [top, h] = barOf(lane, i, top + 2, full - 4);
    g.lineWidth = 2;
    g.strokeStyle = palette.fg;
    g.strokeRect(x - 1, top + 1, Math.max(right - x, 1) + 1.5, h - 2);
  }
  /** From the launch (dashed) or the awaited event (solid), with an arrow's head. */
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

  const overviewX = (t) => ((t - scene.meta.start) / (scene.meta.end - scene.meta.start)) * overviewPx;
  const overviewTime = (x) => scene.meta.start + (x / overviewPx) * (scene.meta.end - scene.meta.start);

  function overviewLanes() {
    if (scene.groups.length === 1) {
      const isShown = ({ type }) => type === "idle" || type === "stream";
      return scene.groups[0].lanes.filter(isShown).slice(0, MOST_OVERVIEW_LANES);
    }
    const summaryOf = (group) => {
      const lanes = group.lanes.filter((lane) => lane.summary && lane.type !== "steps");
      return lanes.find(({ type }) => type === "stream") ?? lanes[0];
    };
    const lanes = scene.groups.map(summaryOf);
    const each = Math.ceil(lanes.length / MOST_OVERVIEW_LANES); // of very many ranks
    return lanes.filter((lane, k) => lane && k % each === 0);
  }
  function paintOverviewLanes() {
    const g = overviewCopy.getContext("2d"), w = overviewPx, h = OVERVIEW_PX;
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.fillStyle = palette.bg;
    g.fillRect(0, 0, w, h);
    const lanes = overviewLanes(), room = (h - 15) / Math.max(lanes.length, 1);
    const high = room > 3 ? room - 1 : room;
    const { start, end } = scene.meta, axis = { left: 0, t0: start, px: (end - start) / w };
    lanes.forEach((lane, k) => paintShares(g, lane, axis, 12 + k * room, high, start, end, false));
    g.font = "10px system-ui, sans-serif";
    g.textBaseline = "top";
    let free = 0;
    const steps = scene.meta.windows.filter((step) => !step.group), isDense = steps.length * LEAST_STEP_PX > w;
    for (const step of steps) {
      const x = overviewX(step.start);
      g.fillStyle = palette.line;
      if (!isDense) g.fillRect(x, 0, 1, h);
      g.fillStyle = step.steady ? palette.fg : palette.muted;
      if (x < free || (!isDense && overviewX(step.end) - x < 24)) continue;
      g.fillText(step.label, x + 3, 1);
      free = x + g.measureText(step.label).width + 8;
    }
  }
  function paintBrush() {
    const g = overviewSurface, w = overviewPx, h = OVERVIEW_PX;
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.drawImage(overviewCopy, 0, 0);
    g.setTransform(scale, 0, 0, scale, 0, 0);
    const x0 = overviewX(scene.view[0]), x1 = Math.max(overviewX(scene.view[1]), x0 + 2);
    g.fillStyle = palette.bg;
    g.globalAlpha = 0.65;
    g.fillRect(0, 0, x0, h);
    g.fillRect(x1, 0, w - x1, h);
    g.globalAlpha = 1;
    g.strokeStyle = g.fillStyle = palette.accent;
    g.lineWidth = 1.5;
    g.strokeRect(x0 + 0.75, 0.75, x1 - x0 - 1.5, h - 1.5);
    for (const x of [x0, x1]) g.fillRect(x - 2, h / 2 - 8, 4, 16);
    if (scene.finding) {
      g.fillStyle = palette.mark;
      for (const [, start, end] of scene.finding.marks)
        g.fillRect(overviewX(start), h - 3, Math.max(2, overviewX(end) - overviewX(start)), 3);
    }
  }

  // ---------------------------------------------------------------- what is where

  function rowAt(y) {
    const isAt = (row) => y >= yOf(row) && y < yOf(row) + row.height;
    return y < AXIS_PX ? null : scene.rows.find(isAt) ?? null;
  }

  function itemAt(x, y) {
    const row = x >= labelPx ? rowAt(y) : null, lane = row?.lane;
    if (!lane || !lane.count) return null;
    const t = timeAt(x), reach = 3 * nsPerPx(), levels = levelsOf(lane), full = row.height - secondPx(lane);
    const inSecond = y > yOf(row) + full;
    const level = clamp(Math.floor(((y - yOf(row) - 2) / (full - 4)) * levels), 0, levels - 1);
    const isThere = (i) => levels > 1 ? row.isCrowded || lane.level[i] === level
      : !lane.overlaps || isSecond(lane, i) === inSecond;
    const middle = firstAbove(lane.start, t);
    let best = -1, distance = reach;
    let low = Math.max(0, middle - 64 * levels);
    if (levels > 1 && !row.isCrowded) // the last one at this level may have begun long before
      for (low = middle - 1; low > 0 && lane.level[low] !== level; low--);
    for (let i = Math.max(0, low); i < Math.min(lane.count, middle + 2 * levels); i++) {
      if (!isThere(i)) continue;
      const off = Math.max(lane.start[i] - t, t - lane.end[i], 0);
      if (off < distance || (off === 0 && distance === 0)) { best = i; distance = off; }
    }
    return best < 0 ? null : { lane, i: best };
  }

  function revealRow(row) {
    if (!row) return;
    const top = row.y, bottom = row.y + row.height + AXIS_PX;
    if (top < scrollPx) scroller.scrollTop = top;
    else if (bottom > scrollPx + height) scroller.scrollTop = bottom - height;
    scrollPx = scroller.scrollTop;
  }

  return {
    layoutRows, fit, scrolled, refresh, repaint, paintNow, revealRow,
    AXIS_PX, xOf, timeAt, nsPerPx, rowAt, itemAt, overviewX, overviewTime,
  };
};
