/** The two vocabularies around a word, in two dimensions. */

import { api } from "./api.js";
import { announce, count, h, labelled, sentence, svg, word } from "./dom.js";
import { address, facts, go, language, languageName, note } from "./state.js";

/**
 * @typedef {import("./api.js").Point} Point
 * @typedef {{left: number, top: number, right: number, bottom: number}} Box
 */

const MARGIN = 28;
const LINE = 17;
const DOT = 5;
const REACH = 13; // what of a dot answers to the pointer

/** @param {Box} one @param {Box} other */
const overlap = (one, other) =>
  one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;

/**
 * Places for labels, important words first: beside the dot where nothing else lies, else none.
 * Only the very first has a label in any case.
 * @param {{x: number, y: number, width: number, gap: number}[]} dots centres, widths of the labels, and their distance from the centre
 * @param {number} width
 * @param {number} height
 * @returns {({x: number, y: number, anchor: string} | null)[]}
 */
export function placeLabels(dots, width, height) {
  /** @type {Box[]} */
  const taken = dots.map(({ x, y }) => ({ left: x - DOT, right: x + DOT, top: y - DOT, bottom: y + DOT }));
  return dots.map((dot, rank) => {
    const gap = dot.gap;
    const places = [
      { x: dot.x + gap, y: dot.y + 5, anchor: "start", left: dot.x + gap },
      { x: dot.x - gap, y: dot.y + 5, anchor: "end", left: dot.x - gap - dot.width },
      { x: dot.x, y: dot.y - gap, anchor: "middle", left: dot.x - dot.width / 2 },
      { x: dot.x, y: dot.y + gap + 11, anchor: "middle", left: dot.x - dot.width / 2 },
    ];
    for (const { left, ...place } of places) {
      const box = { left, right: left + dot.width, top: place.y - 13, bottom: place.y - 13 + LINE };
      if (box.left < 0 || box.right > width || box.top < 0 || box.bottom > height) continue;
      if (taken.some((one) => overlap(one, box))) continue;
      taken.push(box);
      return place;
    }
    return rank ? null : { x: dot.x, y: dot.y - dot.gap, anchor: "middle" };
  });
}

/** Words of each language unless told otherwise: what labels have room for. */
const usual = () => (innerWidth < 720 ? 10 : 30);

/** @param {HTMLElement} root @param {AbortSignal} signal */
export function mapView(root, signal) {
  /** @type {Point[]} */
  let points = [];
  let shown = { text: "", reverse: false, n: 30 };
  const title = h("h1", { tabindex: "-1" });
  const frame = h("div", { class: "map card flush" });
  const size = h("input", { type: "range", min: 10, max: 80, step: 10, "aria-label": "Number of words of each language", onchange: () => {
    note({ n: size.value });
    load();
  } });
  const legend = h("ul", { class: "legend" });
  const measure = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  const watcher = new ResizeObserver(() => draw());
  watcher.observe(frame);
  signal.addEventListener("abort", () => watcher.disconnect());
  root.replaceChildren(h("section", { class: "mapview" },
    h("header", { class: "headword" }, title, h("p", { class: "facts" }, "Words near each other are used alike. Choose one to move there.")),
    h("div", { class: "toolbar" }, legend, labelled("Words", size, "field inline")), frame));

  async function load() {
    const wanted = { ...shown, n: Number(size.value) };
    shown = wanted;
    try {
      const answer = await api.map(wanted.text, wanted.reverse, wanted.n);
      if (shown !== wanted) return;
      points = answer.points;
      draw();
      announce(`Map of ${wanted.text}: ${count(points.length, "word")}.`);
    } catch (error) {
      if (shown === wanted) frame.replaceChildren(h("p", { class: "failure" }, sentence(error)));
    }
  }

  function draw() {
    const width = frame.clientWidth;
    const height = Math.round(Math.max(320, Math.min(width * 0.66, innerHeight - 310)));
    if (!points.length || !width) return;
    measure.font = `15px ${getComputedStyle(document.body).fontFamily}`;
    const asked = points.find((one) => one.asked) ?? points[0];
    const far = (/** @type {Point} */ one) => Math.hypot(one.x - asked.x, one.y - asked.y);
    const ordered = [...points].sort((one, other) => Number(other.asked) - Number(one.asked) || far(one) - far(other));
    const spread = (/** @type {"x" | "y"} */ axis) => {
      const values = points.map((one) => one[axis]);
      const low = Math.min(...values);
      return { low, size: Math.max(...values) - low || 1 };
    };
    const across = spread("x");
    const down = spread("y");
    const dots = ordered.map((one) => ({
      x: MARGIN + ((one.x - across.low) / across.size) * (width - 2 * MARGIN),
      y: MARGIN + (1 - (one.y - down.low) / down.size) * (height - 2 * MARGIN),
      width: measure.measureText(one.word).width * (one.asked ? 1.3 : 1) + 4,
      gap: one.asked ? REACH + 4 : DOT + 4,
    }));
    const labels = placeLabels(dots, width, height);
    const nodes = ordered.map((one, place) => {
      const reverse = one.side === "target";
      const { x, y } = dots[place];
      const label = labels[place];
      const dot = reverse
        ? svg("rect", { x: x - DOT, y: y - DOT, width: 2 * DOT, height: 2 * DOT, transform: `rotate(45 ${x} ${y})` })
        : svg("circle", { cx: x, cy: y, r: DOT });
      return svg("a", {
        href: address({ view: "map", word: one.word, reverse, n: size.value }), class: `point ${one.side}${one.asked ? " asked" : ""}${label ? "" : " bare"}`,
        "aria-label": `${one.word}, ${languageName(reverse)}` },
      svg("circle", { class: "reach", cx: x, cy: y, r: REACH }), dot,
      svg("text", { x: label?.x ?? x, y: label?.y ?? y - 10, "text-anchor": label?.anchor ?? "middle", lang: language(reverse) }, one.word));
    });
    // Later elements lie on top: the word asked for comes last.
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `Words around ${shown.text}` }, ...nodes.reverse());
    frame.replaceChildren(picture);
    legend.replaceChildren(...[false, true].map((reverse) => h("li", {}, h("span", { class: `shape ${reverse ? "target" : "source"}` }), languageName(reverse))));
  }

  return {
    /** @param {import("./state.js").Route} route */
    async show({ word: text, reverse, params }) {
      size.value = params.get("n") ?? String(usual());
      shown = { text, reverse, n: Number(size.value) };
      if (!text) {
        title.replaceChildren("Map");
        const { rows } = await api.dictionary({ reverse, sort: "rank", limit: 40, min_confidence: facts.info.likely }).catch(() => ({ rows: [] }));
        const some = rows.filter((row) => row.source.length > 2).slice(0, 12);
        frame.replaceChildren(h("p", { class: "pad" }, "Search a word above, or begin with ", ...some.flatMap((row) => [
          h("a", { class: "chip", href: address({ word: row.source }) }, word(row.source, language(reverse))), " "])));
        return;
      }
      title.replaceChildren(h("a", { href: address({ view: "entry" }) }, word(text, language(reverse))));
      await load();
    },
    refresh: () => {},
    key: (/** @type {string} */ key) => key === "Enter" && !!shown.text && document.activeElement === title && (go({ view: "entry" }), true),
    swap: () => points.find((one) => (one.side === "target") !== shown.reverse)?.word ?? "",
  };
}
