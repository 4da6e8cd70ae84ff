// The page's own small things: light or dark, and paper. All text and all tables work without it.
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

  // What is closed on the screen is open on paper.
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
