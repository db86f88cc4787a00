// Brings the page up to date while somebody looks at it. What the server sends is its
// own page, escaped there; nothing is put together here.
"use strict";

const every = 3000;
const pause = document.getElementById("pause");
const stale = document.getElementById("stale");
let paused = false;

async function refresh() {
  const response = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(5000) });
  if (!response.ok) throw new Error(String(response.status));
  const next = new DOMParser().parseFromString(await response.text(), "text/html");
  const main = document.getElementById("main");
  if (main.contains(document.activeElement) || String(document.getSelection())) return "Not refreshed while you are in it.";
  main.replaceWith(document.adoptNode(next.getElementById("main")));
  document.title = next.title;
  showSwitches();
}

async function turn() {
  if (!paused && !document.hidden) {
    try {
      stale.textContent = (await refresh()) ?? "";
    } catch {
      stale.textContent = "It does not answer; what you see is old.";
    }
  }
  setTimeout(turn, every);
}

// The buttons that switch a route of the proxy off or on, or stop its experiment, for the routes now on the page.
function showSwitches() {
  for (const button of document.querySelectorAll("button[data-post]")) button.hidden = false;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-post]");
  if (!button) return;
  const { post, route } = button.dataset;
  const done = button.textContent;
  button.blur();
  const response = await fetch(`${post}?route=${encodeURIComponent(route)}`, { method: "POST" });
  stale.textContent = `${done}, route ${route}: ${response.ok ? "done" : response.status}.`;
  if (response.ok) await refresh();
});

showSwitches();
pause.hidden = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
});
setTimeout(turn, every);
