/** The mixture on screen: weights as sliders, shares as bars (docs/method.md §4 and §7). */

import { button, decimals, h } from "./dom.js";
import { facts } from "./state.js";

/** @typedef {import("./api.js").Candidate} Candidate */

const CSLS = "csls";
/** @type {Record<string, string>} */
const MEANINGS = {
  csls: "nearness of the two words in the shared space",
  "cross-encoder": "a neural net that reads both words",
  untuned: "the encoder before training",
  endings: "endings that go together in the seeds",
  transducer: "spelling that turns into the other's spelling",
  static: "nearness in ready-made vectors of many languages",
  "way-back": "how the word ranks among the candidate's own translations",
  frequency: "frequency of the candidate",
  "frequency-match": "both words about equally frequent",
  spelling: "letters in common",
};

/** @type {Record<string, number>} */
let weights = {};
let learned = "";

/** Take over the trained weights when they are new: at the start and after learning. */
export function adoptWeights() {
  const trained = JSON.stringify(facts.info.weights);
  if (trained === learned) return;
  learned = trained;
  weights = { ...facts.info.weights };
}

const names = () => facts.info.scores;
/** @param {string} name */
const colour = (name) => `score-${names().indexOf(name) % 8}`;
const size = () => names().reduce((sum, name) => sum + Math.abs(weights[name]), 0) || 1;
export const areTrained = () => names().every((name) => weights[name] === facts.info.weights[name]);

/** λ: the weight of everything except CSLS. */
const lambda = () => 1 - Math.abs(weights[CSLS] ?? 0) / size();

/** @param {number} value */
function setLambda(value) {
  const others = names().filter((name) => name !== CSLS);
  const from = others.some((name) => weights[name]) ? weights : facts.info.weights;
  const total = others.reduce((sum, name) => sum + Math.abs(from[name]), 0);
  for (const name of others) weights[name] = total ? (value * from[name]) / total : value / others.length;
  weights[CSLS] = 1 - value;
}

/** Each score's part of the mixed score, with the weights on screen. @param {Candidate} candidate */
export function shares(candidate) {
  const scale = areTrained() ? 1 : size();
  return names().map((name) => ({
    name,
    part: candidate.parts?.[name] ?? null,
    weight: weights[name],
    share: (weights[name] * (candidate.parts?.[name] ?? 0)) / scale,
  }));
}

/** @param {Candidate} candidate */
export const score = (candidate) => shares(candidate).reduce((sum, { share }) => sum + share, 0);

/** Candidates in the order of the weights on screen; given translations stay first. @param {Candidate[]} candidates */
export function ranked(candidates) {
  if (areTrained()) return candidates;
  return [...candidates].sort((one, other) => Number(other.seed) - Number(one.seed) || score(other) - score(one));
}

/** The span of the bars of some candidates: from the lowest negative sum to the highest positive one. @param {Candidate[]} candidates */
export function span(candidates) {
  let low = 0;
  let high = 1e-9;
  for (const candidate of candidates) {
    const values = shares(candidate).map(({ share }) => share);
    low = Math.min(low, values.reduce((sum, value) => sum + Math.min(0, value), 0));
    high = Math.max(high, values.reduce((sum, value) => sum + Math.max(0, value), 0));
  }
  return { low, high };
}

/** A stacked bar of the shares; negative ones lie left of zero. @param {Candidate} candidate @param {{low: number, high: number}} range */
export function bar(candidate, range) {
  const width = range.high - range.low;
  const all = shares(candidate);
  let right = -range.low / width;
  let left = right;
  const pieces = all.filter(({ share }) => share).map(({ name, share }) => {
    const part = Math.abs(share) / width;
    const from = share > 0 ? right : left - part;
    if (share > 0) right += part;
    else left -= part;
    return h("span", { class: `piece ${colour(name)}`, style: { "--from": from, "--share": part } });
  });
  const text = all.map(({ name, share }) => `${name} ${decimals(share)}`).join(", ");
  return h("span", { class: "stack", title: text, role: "img", "aria-label": `Shares: ${text}` }, ...pieces);
}

export function legend() {
  return h("ul", { class: "legend", "aria-label": "Colours of the scores" },
    ...names().map((name) => h("li", { title: MEANINGS[name] ?? name }, h("span", { class: `swatch ${colour(name)}` }), name)));
}

/** How one candidate's score comes about. @param {Candidate} candidate */
export function evidence(candidate) {
  const rows = shares(candidate).map(({ name, part, weight, share }) =>
    h("tr", {},
      h("th", { scope: "row", title: MEANINGS[name] ?? name }, h("span", { class: `swatch ${colour(name)}` }), name),
      h("td", { class: "n" }, decimals(part)), h("td", { class: "n" }, decimals(weight)), h("td", { class: "n strong" }, part === null ? "–" : decimals(share))));
  return h("table", { class: "figures" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "score"), h("th", { scope: "col", class: "n" }, "value"),
      h("th", { scope: "col", class: "n" }, "× weight"), h("th", { scope: "col", class: "n" }, "= share"))),
    h("tbody", {}, ...rows),
    h("tfoot", {}, h("tr", {}, h("th", { scope: "row", colspan: 3 }, "mixed score"), h("td", { class: "n strong" }, decimals(score(candidate))))));
}

/**
 * Sliders for λ and each weight. `onchange` runs at every move.
 * @param {() => void} onchange
 */
export function sliders(onchange) {
  /** @type {(() => void)[]} */
  const updates = [];
  const reset = button("Reset", () => {
    weights = { ...facts.info.weights };
    moved();
  }, { class: "small quiet", id: "reset-weights" });
  const said = h("p", { class: "soft", role: "status" });
  const moved = () => {
    for (const update of updates) update();
    reset.disabled = areTrained();
    said.textContent = areTrained()
      ? "The trained weights. Move one, and the candidates are ranked again."
      : "Ranked with your weights, on this screen only. Confidences stay those of the trained weights.";
    onchange();
  };
  /**
   * @param {import("./dom.js").Child} label @param {string} name @param {number} low
   * @param {() => number} get @param {(value: number) => void} set
   */
  const slider = (label, name, low, get, set) => {
    const input = h("input", { type: "range", min: low, max: 1, step: 0.01, "aria-label": `Weight: ${name}`, "data-weight": name,
      oninput: () => (set(Number(input.value)), moved()) });
    const output = h("output", {}, "");
    updates.push(() => {
      if (document.activeElement !== input || Math.abs(Number(input.value) - get()) > 0.006) input.value = String(get());
      output.textContent = decimals(get());
      input.setAttribute("aria-valuetext", decimals(get()));
    });
    return h("div", { class: "slider" }, h("span", { class: "label" }, label), input, output);
  };
  const rows = names().map((name) =>
    slider(h("span", { title: MEANINGS[name] ?? name }, h("span", { class: `swatch ${colour(name)}` }), name), name,
      facts.info.weights[name] < 0 ? -1 : 0, () => weights[name], (value) => (weights[name] = value)));
  const first = names().length > 1 &&
    slider(h("span", { title: "weight of everything except CSLS" }, h("i", {}, "λ"), " all but csls"), "λ, all but csls", 0, lambda, setLambda);
  const box = h("div", { class: "sliders" }, first, ...rows, said);
  moved();
  return { box, reset };
}
