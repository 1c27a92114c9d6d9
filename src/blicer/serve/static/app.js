/** The frame: views, direction, theme, keys, and what the server says when it is asked again. */

import { ApiError, setToken, takeToken } from "./api.js";
import { curateView } from "./curate.js";
import { loadDecisions, retryAll, undo, unsaved } from "./decisions.js";
import { dictionaryView } from "./dictionary.js";
import { announce, button, byId, count, h, isTyping, kbd, keyName, labelled, sentence, toast } from "./dom.js";
import { entryView } from "./entry.js";
import { learnView } from "./learn.js";
import { mapView } from "./map.js";
import { adoptWeights } from "./mixing.js";
import { reportView } from "./report.js";
import { startSearch } from "./search.js";
import { address, arrive, facts, go, languageName, loadInfo, route, settings } from "./state.js";

/**
 * @typedef {{show: (route: import("./state.js").Route) => Promise<void>, refresh: () => void,
 *   key: (key: string) => boolean, swap: () => string}} View
 */

/** @type {Record<string, {label: string, make: (root: HTMLElement, signal: AbortSignal) => any}>} */
const VIEWS = {
  entry: { label: "Look up", make: entryView },
  map: { label: "Map", make: mapView },
  dictionary: { label: "Dictionary", make: dictionaryView },
  curate: { label: "Curate", make: curateView },
  learn: { label: "Learn", make: learnView },
  report: { label: "Report", make: reportView },
};
/** @type {[string[], string][]} */
const KEYS = [
  [["/"], "search a word"],
  [["D"], "switch the direction"],
  [["G", "W"], "look up; M map, D dictionary, C curate, L learn, R report"],
  [["N"], "next word of the queue (also →)"],
  [["P"], "previous word of the queue (also ←)"],
  [["↑", "↓"], "select a candidate or a row"],
  [["A"], "accept what is selected"],
  [["R"], "reject what is selected"],
  [["X"], "reject and stay with the word"],
  [["1–9"], "accept that candidate"],
  [["T"], "type an own translation; Enter saves, Esc leaves"],
  [["C"], "note for the next decision"],
  [["S"], "skip the word in its queue"],
  [["U"], "undo the last decision"],
  [["?"], "this help"],
];
/** @type {Record<string, string>} */
const JUMPS = { w: "entry", m: "map", d: "dictionary", c: "curate", l: "learn", r: "report" };

const LOOK_EVERY = 5000; // milliseconds

const main = byId("main");
/** @type {{name: string, view: View, end: AbortController} | null} */
let current = null;

/** Draw the view of the address. */
async function show() {
  arrive();
  const wanted = route();
  const name = wanted.view in VIEWS ? wanted.view : "entry";
  const first = current === null;
  if (current?.name !== name) {
    current?.end.abort();
    const end = new AbortController();
    current = { name, end, view: VIEWS[name].make(main, end.signal) };
  }
  drawFrame();
  document.title = [wanted.word, VIEWS[name].label, "blicer"].filter(Boolean).join(" · ");
  const { view } = current;
  await view.show(wanted);
  // Whoever came by a link or a key hears where they are; the first visit begins at the top.
  if (!first && current?.view === view && (document.activeElement === document.body || !main.contains(document.activeElement)) && !isTyping(document.activeElement))
    /** @type {HTMLElement | null} */ (main.querySelector("h1"))?.focus({ preventScroll: true });
}

function drawFrame() {
  const { view, reverse } = route();
  const shown = view in VIEWS ? view : "entry";
  const { learn } = facts.info;
  byId("tabs").replaceChildren(...Object.entries(VIEWS).map(([name, { label }]) =>
    h("a", { href: address({ view: name }), "aria-current": name === shown ? "page" : null }, label,
      name === "learn" && learn.state === "running" && h("span", { class: "dot", title: "learning" }))));
  const direction = /** @type {HTMLButtonElement} */ (byId("direction"));
  direction.disabled = false;
  direction.replaceChildren(h("bdi", {}, languageName(reverse)), h("span", { class: "arrow" }, "→"), h("bdi", {}, languageName(reverse, true)), h("span", { class: "arrow" }, "⇄"));
  direction.setAttribute("aria-label", `Direction: ${languageName(reverse)} to ${languageName(reverse, true)}. Switch.`);
}

function switchDirection() {
  const { reverse } = route();
  go({ word: current?.view.swap() ?? "", reverse: !reverse });
  announce(`Direction: ${languageName(!reverse)} to ${languageName(reverse)}.`);
}

/** Other tabs and people decide too: ask again when the page is looked at. */
async function refresh() {
  if (!current || document.hidden) return;
  try {
    await Promise.all([loadInfo(), loadDecisions()]);
    current.view.refresh();
  } catch (error) {
    failed(error);
  }
}

/** Say when a learning that was under way has ended, whatever is on screen. */
async function watchLearning() {
  if (facts.info?.learn.state !== "running" || document.hidden) return;
  await refresh();
  if (facts.info.learn.state !== "running" && current?.name !== "learn")
    toast(`Learning is ${facts.info.learn.state}.`, { label: "See what changed", run: () => go({ view: "learn" }) });
}

function drawBanner() {
  const banner = byId("banner");
  const lost = unsaved().filter((item) => item.state === "failed");
  banner.hidden = !lost.length;
  banner.replaceChildren(...(lost.length ? [`${count(lost.length, "decision is", "decisions are")} not saved. ${lost[0].error} `, button("Retry", retryAll, { class: "small" })] : []));
}

function startTheme() {
  const toggle = byId("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const chosen = settings.get("theme");
    if (chosen) document.documentElement.dataset.theme = chosen;
    toggle.setAttribute("aria-pressed", String(chosen ? chosen === "dark" : system.matches));
  };
  toggle.addEventListener("click", () => {
    settings.set("theme", toggle.getAttribute("aria-pressed") === "true" ? "light" : "dark");
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}

const help = /** @type {HTMLDialogElement} */ (byId("keys"));

function showHelp() {
  const single = h("input", { type: "checkbox", onchange: () => settings.set("keys", single.checked ? "" : "off") });
  single.checked = settings.get("keys") !== "off";
  help.replaceChildren(
    h("div", { class: "cardhead" }, h("h2", { id: "keys-title" }, "Keys"), button("Close", () => help.close(), { class: "quiet small", autofocus: true })),
    h("dl", { class: "keylist" }, ...KEYS.flatMap(([keys, text]) => [h("dt", {}, kbd(...keys)), h("dd", {}, text)])),
    labelled("Single letters are keys (turn off if they disturb your screen reader)", single, "field check"),
    h("p", { class: "soft" }, "A decision counts once it says “saved”. Confidence is the chance that a translation is right, measured on seeds the training did not see."));
  help.showModal();
}

let waitsForJump = false;

/** @param {KeyboardEvent} event */
function keys(event) {
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const key = keyName(event);
  if (isTyping(event.target) || (settings.get("keys") === "off" && key.length === 1 && key !== "?")) return;
  if (event.target instanceof HTMLInputElement && event.target.type === "range" && event.key.startsWith("Arrow")) return;
  if (waitsForJump) {
    waitsForJump = false;
    if (JUMPS[key]) return event.preventDefault(), go({ view: JUMPS[key] });
  }
  if (key === "/") byId("search").focus();
  else if (key === "?") showHelp();
  else if (key === "u") undo();
  else if (key === "g") waitsForJump = true;
  else if (key === "d") switchDirection();
  else if (!current?.view.key(key)) return;
  event.preventDefault();
}

/** @param {unknown} error */
function failed(error) {
  if (error instanceof ApiError && (error.status === 401 || error.status === 403)) return askToken(error);
  if (current) return; // what is on screen stays, the next action says what is wrong
  main.replaceChildren(h("p", { class: "failure" }, sentence(error), " ", button("Try again", start)));
}

/** @param {ApiError} error */
function askToken(error) {
  const field = h("input", { type: "password", autocomplete: "off", required: true });
  main.replaceChildren(h("form", { class: "card token", onsubmit: (/** @type {Event} */ event) => {
    event.preventDefault();
    setToken(field.value.trim());
    location.reload();
  } }, h("h1", { tabindex: "-1" }, "This server asks for a token"), h("p", {}, sentence(error)),
  h("p", {}, "Open the address that “blicer serve” printed, or give the token here."), labelled("Token", field), h("button", { type: "submit", class: "primary" }, "Go on")));
  field.focus();
}

async function start() {
  try {
    await loadInfo();
    await loadDecisions();
    await show();
  } catch (error) {
    failed(error);
  }
}

takeToken();
startTheme();
startSearch();
addEventListener("info", () => {
  adoptWeights();
  if (current) drawFrame();
});
addEventListener("noted", drawFrame);
addEventListener("hashchange", () => (takeToken(), facts.info ? show() : start()));
addEventListener("decisions", drawBanner);
addEventListener("keydown", keys);
addEventListener("focus", refresh);
addEventListener("stale", refresh);
setInterval(watchLearning, LOOK_EVERY);
document.addEventListener("visibilitychange", refresh);
addEventListener("beforeunload", (event) => unsaved().length && event.preventDefault());
byId("direction").addEventListener("click", switchDirection);
byId("help").addEventListener("click", showHelp);
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
start();
