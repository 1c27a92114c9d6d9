/** Learning from the decisions: start, progress, what changed, and the way back. */

import { api } from "./api.js";
import { decisionList, unsaved } from "./decisions.js";
import { announce, button, count, decimals, h, percent, sentence, toast, whole, word } from "./dom.js";
import { address, facts, language, languageName, loadInfo } from "./state.js";

/**
 * @typedef {import("./api.js").Learning} Learning
 * @typedef {import("./api.js").Expected} Expected
 */

const SHOWN = 20; // changes, until more are asked for
const EVERY = 1000; // milliseconds between two looks at the progress

/** Expected P@1 of both directions, with what it was before. @param {Expected | null} now @param {Expected | null} [before] */
export function expectedCards(now, before) {
  const cards = (/** @type {const} */ (["forward", "backward"])).filter((name) => now?.[name]).map((name) => {
    const one = /** @type {import("./api.js").Direction} */ (now?.[name]);
    const was = before?.[name]?.precision;
    const gain = was === undefined ? null : one.precision - was;
    const back = name === "backward";
    return h("div", { class: "card figure" },
      h("h3", {}, `${languageName(back)} → ${languageName(back, true)}`),
      h("p", { class: "big" }, percent(one.precision), gain !== null && h("span", { class: gain >= 0 ? "up" : "down" }, ` ${gain >= 0 ? "+" : "−"}${(100 * Math.abs(gain)).toFixed(1)} points`)),
      h("p", { class: "soft" }, `of first translations are right; 95 % interval ${percent(one.interval[0])} to ${percent(one.interval[1])}, from ${count(one.words, "held-out word")}`));
  });
  return h("div", { class: "cards" }, ...cards);
}

/** First translations that learning changed. @param {Learning} learning */
function changes(learning) {
  const { ready } = facts.info.dictionary;
  /** @param {string | null} text @param {number | null} sure @param {boolean} reverse */
  const cell = (text, sure, reverse) =>
    h("td", {}, text === null ? "–" : word(text, language(reverse, true)), h("span", { class: "soft" }, ` ${decimals(sure)}`));
  const rows = learning.changes.map((one) => h("tr", {},
    h("th", { scope: "row" }, h("a", { href: address({ view: "entry", word: one.word, reverse: one.reverse }) }, word(one.word, language(one.reverse)))),
    cell(one.before, one.confidence_before, one.reverse), cell(one.after, one.confidence_after, one.reverse)));
  const body = h("tbody", {}, ...rows.slice(0, SHOWN));
  const more = h("p", { class: "more" }, rows.length > SHOWN && button(`Show ${whole(rows.length)}`, () => (body.replaceChildren(...rows), more.replaceChildren()), { class: "quiet" }));
  return h("div", { class: "card flush" },
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Changed translations" }, h("table", { class: "changes" },
      h("caption", {}, h("b", {}, count(learning.n_changes, "first translation")), ` changed${ready ? "" : " so far; the dictionary is still being computed again"}, ${whole(learning.n_sure_changes)} of them of entries at least 0.5 sure, which come first.`),
      rows.length > 0 && h("thead", {}, h("tr", {}, ...["Word", "Before", "After"].map((name) => h("th", { scope: "col" }, name)))),
      body)),
    more);
}

/** @param {HTMLElement} root @param {AbortSignal} signal */
export function learnView(root, signal) {
  const box = h("div", { class: "outcome" });
  const files = button("Download decisions (TSV)", async () => {
    const text = await api.decisionsFile().catch((error) => toast(sentence(error)));
    if (text === undefined) return;
    const file = URL.createObjectURL(new Blob([text], { type: "text/tab-separated-values" }));
    h("a", { href: file, download: "decisions.tsv" }).click();
    setTimeout(() => URL.revokeObjectURL(file), 10_000);
  }, { class: "quiet" });
  root.replaceChildren(h("section", { class: "learn" },
    h("header", { class: "headword" }, h("h1", { tabindex: "-1" }, "Learn"),
      h("p", { class: "facts" }, "Trains again with what you accepted as seeds and what you rejected as wrong pairs.")),
    box, h("div", { class: "card" }, h("div", { class: "cardhead" }, h("h2", {}, "Last decisions"), files), decisionList(signal))));
  let timer = 0;
  let state = "";
  signal.addEventListener("abort", () => clearTimeout(timer));

  const meter = h("progress", { max: 1, "aria-label": "Learning" });
  const message = h("p", { role: "status" });

  /** @param {() => Promise<Learning>} ask */
  async function take(ask) {
    clearTimeout(timer);
    try {
      const learning = await ask();
      if (signal.aborted) return;
      if (state && state !== learning.state) await loadInfo();
      draw(learning);
      if (learning.state === "running") timer = setTimeout(() => take(api.learning), EVERY);
      // Changes are counted while the dictionary is computed again.
      else if (learning.state === "done" && !facts.info.dictionary.ready)
        timer = setTimeout(() => take(async () => (await loadInfo(), api.learning())), 5 * EVERY);
    } catch (error) {
      if (state !== "running") return toast(sentence(error));
      message.textContent = sentence(error);
      timer = setTimeout(() => take(api.learning), 3 * EVERY);
    }
  }

  const start = () => {
    if (unsaved().length) return toast("Some decisions are not saved yet: retry or drop them first.");
    take(api.learn);
  };
  const back = () => confirm("Go back to the translator before the last learning? Your decisions stay.") &&
    take(async () => {
      const learning = await api.goBack();
      await loadInfo();
      announce("Back at the translator before the last learning.");
      return learning;
    });

  /** @param {Learning} learning */
  function draw(learning) {
    const { accept, reject, correct } = facts.info.decisions;
    const n = accept + reject + correct;
    if (learning.state === "running" && state === "running") {
      meter.value = learning.progress;
      message.textContent = `${learning.message} · ${Math.round(100 * learning.progress)} %`;
      return;
    }
    if (learning.state !== state && state) announce(`Learning: ${learning.state}. ${learning.message}`);
    state = learning.state;
    if (learning.state === "running") {
      meter.value = learning.progress;
      message.textContent = learning.message;
      box.replaceChildren(h("div", { class: "card" }, h("h2", {}, "Under way"), meter, message, h("p", { class: "soft" }, "You can go on curating; this goes on in the background.")));
      return;
    }
    const tally = h("p", { class: "tally" }, ...[["accepted", accept], ["own translations", correct], ["rejected", reject]].map(([name, value]) =>
      h("span", {}, h("b", {}, whole(Number(value))), ` ${name}`)));
    const actions = h("div", { class: "actions" },
      button(learning.state === "failed" ? "Try again" : "Learn now", start, { class: "primary", disabled: n === 0 }),
      learning.can_go_back && button("Go back", back, { class: "quiet" }));
    box.replaceChildren(h("div", { class: "card" }, tally, actions,
      n === 0 && h("p", { class: "soft" }, "There is nothing to learn from yet: ", h("a", { href: address({ view: "curate", word: "" }) }, "curate some words"), " first."),
      learning.message && h("p", { class: learning.state === "failed" ? "failure" : "soft" }, learning.message)));
    if (learning.can_go_back)
      box.append(h("h2", {}, "What changed"), expectedCards(learning.expected_after, learning.expected_before), changes(learning));
  }

  addEventListener("info", () => state && state !== "running" && draw(facts.info.learn), { signal });
  return {
    show: () => take(api.learning),
    refresh: () => take(api.learning),
    key: () => false,
    swap: () => "",
  };
}
