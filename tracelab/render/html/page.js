// Light or dark, tables, and paper. All text and all tables are there without it.
"use strict";

(() => {
  const root = document.documentElement;
  const KEY = "tracelab-theme";
  root.classList.remove("no-js");

  // A page from disk may have no storage.
  const stored = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const store = (theme) => { try { localStorage.setItem(KEY, theme); } catch { /* not kept */ } };
  const isDark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;

  const button = document.getElementById("theme");
  const show = (theme) => {
    if (theme) root.dataset.theme = theme;
    button.setAttribute("aria-label", isDark() ? "Switch to light" : "Switch to dark");
    button.title = button.getAttribute("aria-label");
  };
  show(["light", "dark"].includes(stored()) ? stored() : "");
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    show(theme);
    store(theme);
  });

  // Rounded or cut cells have the exact figure or whole text as title.
  const MIN_FILTERED_ROWS = 9, SHOWN_MS = 1500;
  const FIGURE = /^[<>]?(-?[\d,]+(?:\.\d+)?(?:e[+-]\d+)?)(?: (\S+))?$/;
  const UNITS = {
    ns: ["ns", 1], "µs": ["ns", 1e3], ms: ["ns", 1e6], s: ["ns", 1e9],
    B: ["B", 1], KiB: ["B", 2 ** 10], MiB: ["B", 2 ** 20], GiB: ["B", 2 ** 30],
  };
  const FORMULA = /^\s*[=+\-@]/; // a spreadsheet would compute it
  const NOTHING = ["", "-", "none"];

  const element = (tag, className, text = "") =>
    Object.assign(document.createElement(tag), { className, textContent: text });

  function textOf(cell) {
    const own = [...cell.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE || node.matches("code, button"));
    const parts = [own.map((node) => node.title || node.textContent).join(""),
      ...[...cell.querySelectorAll(".more")].map((part) => part.textContent)];
    return parts.join(" · ").trim();
  }
  function figureOf(cell) {
    const found = FIGURE.exec(cell.title || textOf(cell));
    if (!found) return null;
    const [unit, scale] = UNITS[found[2]] ?? [found[2] ?? "", 1];
    return { value: Number(found[1].replaceAll(",", "")) * scale, unit };
  }
  function columnOf(rows, index) {
    const cells = rows.map((row) => row.cells[index]);
    const figures = cells.map(figureOf), texts = cells.map(textOf);
    const isNumber = figures.some(Boolean) && texts.every((text, k) => figures[k] || NOTHING.includes(text));
    const values = isNumber ? figures.map((figure) => figure?.value) : texts.map((text) => text || undefined);
    return { isNumber, values, unit: (isNumber && figures.find((figure) => figure?.unit)?.unit) || "" };
  }
  const compare = (a, b) => typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });

  function sortBy(table, heading) {
    const body = table.tBodies[0], rows = [...body.rows];
    const { isNumber, values } = columnOf(rows, heading.cellIndex);
    const before = heading.getAttribute("aria-sort"), isDown = before ? before === "ascending" : isNumber;
    const order = rows.map((_, k) => k).sort((a, b) => {
      if (values[a] === undefined || values[b] === undefined) return (values[a] === undefined) - (values[b] === undefined);
      return isDown ? compare(values[b], values[a]) : compare(values[a], values[b]);
    });
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", isDown ? "descending" : "ascending");
    body.append(...order.map((k) => rows[k]));
  }
  function filterRows(table, text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of table.tBodies[0].rows) {
      const all = [...row.cells].map((cell) => `${cell.textContent} ${textOf(cell)}`).join(" ").toLowerCase();
      row.hidden = !words.every((word) => all.includes(word));
    }
  }

  const quoted = (text) => /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const guarded = (text) => quoted(FORMULA.test(text) ? `'${text}` : text);
  /** The shown rows, sorted; figures are exact, times in ns. */
  function csvOf(table) {
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    const columns = [...table.tHead.rows[0].cells].map((heading, index) => {
      const { isNumber, values, unit } = columnOf(rows, index), title = textOf(heading);
      const cells = values.map((value) => isNumber ? String(value ?? "") : guarded(value ?? ""));
      return [guarded(unit ? `${title} (${unit})` : title), ...cells];
    });
    return columns[0].map((_, k) => columns.map((column) => column[k]).join(",") + "\n").join("");
  }
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // not allowed, or an old browser
      const area = document.body.appendChild(element("textarea", "", text));
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }

  function addTools(table) {
    for (const heading of table.tHead.rows[0].cells) {
      if (!heading.textContent) continue;
      const sorter = element("button", "sort", heading.textContent);
      sorter.type = "button";
      sorter.addEventListener("click", () => sortBy(table, heading));
      heading.replaceChildren(sorter);
    }
    const name = table.getAttribute("aria-label") || "table";
    const tools = element("div", "tools"), copier = element("button", "copy", "Copy CSV");
    copier.type = "button";
    copier.title = "Copy the rows that are shown, with exact figures";
    copier.setAttribute("aria-label", `Copy as CSV: ${name}`);
    copier.addEventListener("click", async () => {
      await copy(csvOf(table));
      copier.focus();
      copier.textContent = "Copied";
      setTimeout(() => { copier.textContent = "Copy CSV"; }, SHOWN_MS);
    });
    if (table.tBodies[0].rows.length >= MIN_FILTERED_ROWS) {
      const filter = element("input", "filter");
      filter.type = "search";
      filter.placeholder = "Filter";
      filter.setAttribute("aria-label", `Filter the rows of: ${name}`);
      filter.addEventListener("input", () => filterRows(table, filter.value));
      tools.append(filter);
    }
    tools.append(copier);
    table.parentElement.before(tools);
  }
  for (const table of document.querySelectorAll(".section > .scroll > table")) addTools(table);

  // All parts of the page show the table of the same rank.
  const choices = [...document.querySelectorAll("select.ranks")];
  function choose(rank) {
    for (const select of choices) {
      const index = [...select.options].findIndex((option) => option.value === rank);
      if (index >= 0) select.selectedIndex = index;
      for (const tables of select.closest(".part").querySelectorAll(".of-rank"))
        tables.hidden = tables.dataset.rank !== select.value;
    }
  }
  for (const select of choices) {
    select.addEventListener("change", () => choose(select.value));
    choose([...select.options].find((option) => option.defaultSelected).value);
  }

  // In a notebook's frame, "#part" would be of the page around it.
  if (location.href === "about:srcdoc") document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (!link) return;
    event.preventDefault();
    document.getElementById(link.hash.slice(1)).scrollIntoView();
  });

  // Paper shows closed parts, too.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const element of closed) element.open = true;
  });
  addEventListener("afterprint", () => {
    for (const element of closed) element.open = false;
    closed = [];
  });
})();
