/** Queues of words that need a decision, and the next one at a key's touch. */

import { api } from "./api.js";
import { decisionList, undo } from "./decisions.js";
import { announce, button, h, kbd, labelled, sentence, whole } from "./dom.js";
import { DECIDING, EntryPanel } from "./entry.js";
import { address, facts, go, note, settings } from "./state.js";

/** @typedef {import("./api.js").QueueRow} QueueRow */

const QUEUES = {
  uncertain: ["Uncertain", "Confidence is nearest to one half: a decision tells the most."],
  frequent: ["Frequent", "The most frequent words that nobody has decided on."],
  disagreement: ["Disagreement", "The scores prefer different translations."],
  seeds: ["Suspicious seeds", "Pairs of the training seeds that look wrong."],
};
const PAGE = 50;
const AHEAD = 10;

/** @param {HTMLElement} root @param {AbortSignal} signal */
export function curateView(root, signal) {
  let kind = "uncertain";
  let reverse = false;
  let place = 0;
  let left = 0;
  let ended = false;
  let turn = 0; // counts queues shown
  /** @type {QueueRow[]} */
  let rows = [];
  /** @type {Set<string>} words of this queue that were decided in this tab */
  const done = new Set();
  /** @type {Map<string, Promise<import("./api.js").Entry>>} */
  const prefetched = new Map();
  const why = h("p", { class: "why" });
  const progress = h("span", { class: "soft", role: "status" });
  const panel = new EntryPanel(signal, {
    decided: (_, stay) => {
      const row = rows[place];
      if (row && !done.has(row.source)) {
        done.add(row.source);
        left -= 1;
      }
      if (!stay) next();
    },
    extra: () => [why],
  });
  const tabs = h("div", { class: "segments", role: "group", "aria-label": "Queue" });
  const explained = h("p", { class: "soft" });
  const previous = button("← Previous", () => step(-1), { class: "quiet", "aria-keyshortcuts": "p" });
  const following = button("Next →", () => step(1), { class: "quiet", "aria-keyshortcuts": "n" });
  const who = h("input", { autocomplete: "name", placeholder: "your name", value: settings.get("who"), onchange: () => settings.set("who", who.value.trim()) });
  const learn = h("a", { class: "button", href: address({ view: "learn" }) });
  const hints = h("p", { class: "hints", "aria-hidden": "true" }, ...[["A", "accept"], ["R", "reject"], ["1–9", "accept that one"], ["X", "reject, stay"], ["↑↓", "select"],
    ["T", "own translation"], ["C", "note"], ["S", "skip"], ["N", "next"], ["P", "previous"], ["U", "undo"]].map(([key, text]) => h("span", {}, kbd(key), ` ${text}`)));
  root.replaceChildren(h("section", { class: "curate" },
    h("h1", { class: "hidden", tabindex: "-1" }, "Curate"),
    h("div", { class: "queue" }, tabs, h("div", { class: "steps-row" }, progress, previous, following)),
    explained, hints, h("div", { class: "last" }, decisionList(signal, 1)), panel.root,
    h("div", { class: "columns" },
      h("div", { class: "card main" }, h("div", { class: "cardhead" }, h("h2", {}, "Last decisions"), button("Undo last", () => undo(), { class: "small quiet", "aria-keyshortcuts": "u" })), decisionList(signal)),
      h("div", { class: "card side" }, h("h2", {}, "This session"), labelled("Sign decisions as", who), learn))));

  const drawLearn = () => {
    const { accept, reject, correct } = facts.info.decisions;
    learn.textContent = `Learn from ${whole(accept + reject + correct)} decisions`;
  };
  addEventListener("info", drawLearn, { signal });
  addEventListener("undone", (event) => {
    const item = /** @type {CustomEvent} */ (event).detail;
    done.delete(item.source);
    const at = rows.findIndex((row) => row.source === item.source);
    if (at >= 0 && item.reverse === reverse) {
      left += 1;
      place = at;
      draw();
    }
  }, { signal });

  async function load() {
    const asked = turn;
    // Decided words have left the server's queue, so the next page begins after the open ones.
    const open = rows.filter((row) => !done.has(row.source)).length;
    const answer = await api.queue(kind, reverse, open, PAGE);
    if (asked !== turn) return;
    const known = new Set(rows.map((row) => row.source));
    const fresh = answer.rows.filter((row) => !known.has(row.source));
    rows.push(...fresh);
    left = answer.total;
    ended = !answer.rows.length;
  }

  function drawQueue() {
    tabs.replaceChildren(...Object.entries(QUEUES).map(([name, [label]]) =>
      button(label, () => go({ view: "curate", word: "", kind: name }), { "aria-pressed": String(name === kind) })));
    explained.textContent = QUEUES[/** @type {keyof typeof QUEUES} */ (kind)][1];
  }

  async function draw() {
    previous.disabled = place === 0;
    const row = rows[place];
    following.disabled = !row;
    progress.textContent = row ? `${whole(Math.max(0, left))} left` : "";
    if (!row) {
      panel.entry = null;
      panel.busy = false;
      const { ready } = facts.info.dictionary;
      panel.root.replaceChildren(h("div", { class: "card empty" }, h("h2", {}, rows.length ? "All done." : "Nothing waits here."),
        h("p", {}, ready ? "Take another queue, or let the translator learn from your decisions." : "The dictionary is still being computed: more words will come."),
        !ready && button("Look again", () => dispatchEvent(new Event("hashchange")))));
      announce("The queue is empty.");
      return;
    }
    why.textContent = row.why;
    note({ view: "curate", word: row.source, kind });
    for (const ahead of rows.slice(place, place + 3))
      if (!prefetched.has(ahead.source)) {
        const entry = api.entry(ahead.source, reverse);
        entry.catch(() => {}); // whoever awaits it reports it
        prefetched.set(ahead.source, entry);
      }
    const entry = prefetched.get(row.source);
    prefetched.delete(row.source);
    await panel.show(row.source, reverse, entry);
    const at = panel.candidates.findIndex((one) => one.word === row.target);
    if (at > 0) panel.select(at);
    if (document.activeElement === document.body) panel.title.focus({ preventScroll: true });
    if (panel.root.getBoundingClientRect().top < 0) panel.root.scrollIntoView({ block: "start" });
  }

  /** @param {number} by */
  async function step(by) {
    panel.busy = true; // until the word of the new place is shown, no key may decide
    place = Math.max(0, Math.min(place + by, rows.length));
    if (place + AHEAD > rows.length && !ended)
      await load().catch((error) => announce(sentence(error)));
    await draw();
  }

  /** The next word that is not decided yet. */
  function next() {
    let by = 1;
    while (rows[place + by] && done.has(rows[place + by].source)) by += 1;
    return step(by);
  }

  return {
    /** @param {import("./state.js").Route} route */
    async show(route) {
      const wanted = route.params.get("kind") ?? "uncertain";
      kind = wanted in QUEUES ? wanted : "uncertain";
      reverse = route.reverse;
      [rows, place, ended] = [[], 0, false];
      done.clear();
      prefetched.clear();
      drawQueue();
      drawLearn();
      const own = (turn += 1);
      panel.busy = true;
      try {
        await load();
      } catch (error) {
        if (own !== turn) return;
        panel.root.replaceChildren(h("p", { class: "failure" }, sentence(error), " ", button("Try again", () => this.show(route))));
        return;
      }
      if (own !== turn) return; // another queue was asked for meanwhile
      place = Math.max(0, rows.findIndex((row) => row.source === route.word));
      await draw();
    },
    refresh: () => {
      prefetched.clear();
      panel.refresh();
    },
    key(/** @type {string} */ key) {
      if (panel.busy) return DECIDING.test(key);
      if (key === "n" || key === "ArrowRight") step(1);
      else if (key === "p" || key === "ArrowLeft") step(-1);
      else if (key === "s") panel.skip();
      else return panel.key(key);
      return true;
    },
    swap: () => "",
  };
}
