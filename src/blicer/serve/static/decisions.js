/** Decisions of this tab: sent in order, shown as saved only once the server has said so. */

import { api } from "./api.js";
import { announce, button, h, sentence, word } from "./dom.js";
import { language, settings } from "./state.js";

/**
 * @typedef {import("./api.js").NewDecision} NewDecision
 * @typedef {import("./api.js").Verdict} Verdict
 * @typedef {NewDecision & {id: number | null, when: string, state: "saving" | "saved" | "failed" | "undoing", error: string}} Item
 */

const SHOWN = 12;
/** @type {Record<Verdict, string>} */
export const VERDICTS = { accept: "accepted", reject: "rejected", correct: "own translation", skip: "skipped" };
/** @type {Record<Verdict, string>} */
export const MARKS = { accept: "✓", reject: "✕", correct: "✎", skip: "–" };

/** @type {Item[]} newest first: those of this tab, below them the server's */
let items = [];
/** @type {Promise<unknown>} */
let sending = Promise.resolve();
const others = new BroadcastChannel("blicer-decisions");
others.onmessage = () => dispatchEvent(new CustomEvent("stale"));

function changed() {
  dispatchEvent(new CustomEvent("decisions"));
}

export async function loadDecisions() {
  const { rows } = await api.decisions(SHOWN);
  const unsaved = items.filter((item) => item.state !== "saved");
  const known = new Set(unsaved.map((item) => item.id));
  const saved = rows.filter((row) => !known.has(row.id)).map((row) => ({ ...row, state: /** @type {const} */ ("saved"), error: "" }));
  items = [...unsaved, ...saved];
  changed();
}

/** Send an item after those before it. @param {Item} item */
function send(item) {
  item.state = "saving";
  changed();
  sending = sending.then(async () => {
    const { source, target, verdict, reverse, note, who } = item;
    try {
      Object.assign(item, await api.decide({ source, target, verdict, reverse, note, who }), { state: "saved" });
      announce(`Saved: ${item.source}, ${item.target} ${VERDICTS[item.verdict]}.`);
      others.postMessage("saved");
      dispatchEvent(new CustomEvent("saved", { detail: item }));
    } catch (error) {
      Object.assign(item, { state: "failed", error: sentence(error) });
      announce(`Not saved: ${item.source}, ${item.target}. ${item.error}`);
    }
    changed();
  });
  return sending.then(() => item);
}

/**
 * @param {{source: string, target: string, verdict: Verdict, reverse: boolean, note?: string}} decision
 * @returns {Promise<Item>} the decision once it is saved or has failed
 */
export function decide(decision) {
  /** @type {Item} */
  const item = { note: "", ...decision, who: settings.get("who"), id: null, when: "", state: "saving", error: "" };
  items.unshift(item);
  return send(item);
}

/** Take back a decision: the server's word decides, an unsaved one is dropped. @param {Item} [item] the newest unless given */
export async function undo(item = items.find((one) => one.state !== "undoing")) {
  if (!item) return announce("There is nothing to undo.");
  await sending;
  if (item.state === "saved" && item.id !== null) {
    item.state = "undoing";
    changed();
    try {
      await api.undo(item.id);
      others.postMessage("undone");
    } catch (error) {
      Object.assign(item, { state: "saved", error: sentence(error) });
      announce(`Not undone: ${item.error}`);
      return changed();
    }
  }
  items = items.filter((one) => one !== item && (one.id === null || one.id !== item.id));
  announce(`Undone: ${item.source}, ${item.target}.`);
  changed();
  dispatchEvent(new CustomEvent("undone", { detail: item }));
}

export const unsaved = () => items.filter((item) => item.state === "failed" || item.state === "saving");

export function retryAll() {
  for (const item of [...items].reverse()) if (item.state === "failed") send(item);
}

/**
 * What this tab knows of a pair before the server's next answer: a verdict that is on its way, or has failed.
 * @param {string} source @param {string} target @param {boolean} reverse
 */
export function pending(source, target, reverse) {
  return items.find((item) => item.source === source && item.target === target && item.reverse === reverse && item.state !== "saved");
}

/** @param {Item} item */
function row(item) {
  const text = { saving: "saving …", saved: item.error || "saved", failed: `not saved: ${item.error}`, undoing: "undoing …" }[item.state];
  return h(
    "li",
    { class: `decision ${item.verdict} ${item.state}` },
    h("span", { class: "mark", title: VERDICTS[item.verdict] }, MARKS[item.verdict], h("span", { class: "hidden" }, VERDICTS[item.verdict])),
    h("span", { class: "pair" }, word(item.source, language(item.reverse)), " → ", word(item.target || "–", language(item.reverse, true)),
      item.note && h("span", { class: "note" }, `“${item.note}”`)),
    h("span", { class: "state" }, text, item.who && item.state === "saved" ? ` · ${item.who}` : ""),
    item.state === "failed" && button("Retry", () => send(item), { class: "small" }),
    (item.state === "saved" || item.state === "failed") &&
      button(item.state === "saved" ? "Undo" : "Drop", () => undo(item), { class: "small quiet", "aria-label": `Undo ${item.source}, ${item.target}` }),
  );
}

/** A list of the last decisions that keeps itself up to date. @param {AbortSignal} signal @param {number} [most] */
export function decisionList(signal, most = SHOWN) {
  const list = h("ol", { class: "decisions", "aria-label": most > 1 ? "Last decisions" : "Last decision" });
  const draw = () => {
    list.replaceChildren(...items.slice(0, most).map(row));
    if (!items.length) list.append(h("li", { class: "soft" }, most > 1 ? "None yet." : "No decision yet."));
  };
  addEventListener("decisions", draw, { signal });
  draw();
  return list;
}
