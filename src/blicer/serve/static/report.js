/** What the training was, what to expect of it, and how far its confidences can be trusted. */

import { api } from "./api.js";
import { count, decimals, h, percent, sentence, whole } from "./dom.js";
import { expectedCards } from "./learn.js";
import { address, facts, languageName } from "./state.js";

const PICTURES = /** @type {const} */ ([
  ["reliability", "Reliability: how often entries of each confidence are right. On the diagonal a confidence means what it says."],
  ["risk-coverage", "Risk and coverage: how many entries are right if only the surest are kept."],
  ["lambda", "Mixing: precision of the first translation for each λ, the weight of everything except CSLS."],
]);

/** Keep entries from a confidence on: what precision and coverage follow. @param {import("./api.js").Reliability} reliability */
function threshold(reliability) {
  const curve = [...reliability.curve].sort((one, other) => one[0] - other[0]);
  const said = h("p", { class: "big", role: "status" });
  const link = h("a", {}, "Show these entries");
  const input = h("input", { type: "range", min: 0, max: 1, step: 0.01, "aria-label": "Least confidence", oninput: () => draw() });
  const draw = () => {
    const least = Number(input.value);
    // Each point counts all entries from its confidence on: the lowest one that is kept tells.
    const [, precision, coverage] = curve.find(([confidence]) => confidence >= least) ?? curve[curve.length - 1];
    said.textContent = `${percent(precision)} right, ${percent(coverage)} of the words kept`;
    output.textContent = decimals(least);
    input.setAttribute("aria-valuetext", `${decimals(least)}: ${said.textContent}`);
    link.setAttribute("href", address({ view: "dictionary", word: "", min: least.toFixed(2) }));
  };
  const output = h("output", {});
  input.value = String(facts.info.likely);
  draw();
  return h("div", { class: "card" }, h("h2", {}, "Keep only sure entries"), h("div", { class: "slider" }, h("span", { class: "label" }, "Confidence from"), input, output), said, link);
}

/** @param {string} name @param {string} caption */
function picture(name, caption) {
  const image = h("img", { alt: caption.split(":")[0] });
  const figure = h("figure", { class: "card" }, image, h("figcaption", { class: "soft" }, caption));
  api.picture(name).then((url) => (image.src = url), (error) => figure.replaceChildren(h("p", { class: "soft" }, `${caption.split(":")[0]}: ${sentence(error)}`)));
  return figure;
}

/** @param {import("./api.js").Reliability} reliability */
function bins(reliability) {
  return h("details", { class: "card" }, h("summary", {}, `The figures: confidences are off by ${percent(reliability.error)} on average`),
    h("table", { class: "figures" }, h("thead", {}, h("tr", {}, ...["stated confidence", "right", "entries"].map((name) => h("th", { scope: "col", class: "n" }, name)))),
      h("tbody", {}, ...reliability.bins.map(([stated, right, n]) => h("tr", {}, h("td", { class: "n" }, decimals(stated)), h("td", { class: "n" }, percent(right)), h("td", { class: "n" }, whole(Math.round(n))))))));
}

/** Facts of any depth as a list of names and values. @param {Record<string, any>} values @returns {HTMLElement} */
function details(values) {
  /** @param {any} value @returns {import("./dom.js").Child} */
  const shown = (value) => {
    if (value === null || value === undefined) return "–";
    if (Array.isArray(value)) {
      if (value.every((one) => typeof one !== "object")) return value.length > 12 ? `${value.slice(0, 12).join(", ")} … (${whole(value.length)})` : value.join(", ");
      return count(value.length, "item");
    }
    if (typeof value === "object") return details(value);
    if (typeof value === "number") return Number.isInteger(value) ? whole(value) : String(Number(value.toPrecision(4)));
    return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
  };
  return h("dl", {}, ...Object.entries(values).flatMap(([name, value]) => [h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, shown(value))]));
}

/** @param {HTMLElement} root */
export function reportView(root) {
  function draw() {
    const { info } = facts;
    const { config, expected, advice, ...about } = info.details; // the middle two are shown above
    const sum = h("p", { class: "facts" }, `${languageName(false)} and ${languageName(true)} · ${whole(info.words[0])} and ${whole(info.words[1])} words · ${count(info.seeds, "seed pair")} · ${info.n_cand} candidates a word`);
    root.replaceChildren(h("section", { class: "report" },
      h("header", { class: "headword" }, h("h1", { tabindex: "-1" }, "Report"), sum),
      h("h2", {}, "What to expect"),
      info.expected ? expectedCards(info.expected) : h("p", { class: "soft" }, "Not known: this training held no seeds out."),
      info.advice && h("p", { class: "advice" }, info.advice),
      info.reliability?.curve.length && threshold(info.reliability),
      h("div", { class: "pictures" }, ...PICTURES.map(([name, caption]) => picture(name, caption))),
      info.reliability && bins(info.reliability),
      h("h2", {}, "The mixture"),
      h("p", {}, "Each score's weight: ", ...info.scores.flatMap((name, at) => [at ? ", " : "", name, " ", h("b", {}, decimals(info.weights[name]))]), "."),
      h("h2", {}, "The training"), h("div", { class: "card" }, details(about)),
      config && h("details", { class: "card" }, h("summary", {}, "All settings"), details(config)),
      h("p", { class: "soft" }, "The same answers for programs: ", h("a", { href: "/api-docs" }, "API"), ".")));
  }
  return { show: async () => draw(), refresh: () => {}, key: () => false, swap: () => "" };
}
