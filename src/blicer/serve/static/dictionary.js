/** The whole dictionary: a list that draws only the rows in sight and fetches them by pages. */

import { api } from "./api.js";
import { decide, MARKS, pending, VERDICTS } from "./decisions.js";
import { announce, button, confidence, count, h, labelled, sentence, toast, whole, word } from "./dom.js";
import { address, facts, go, language, languageName, loadInfo, note } from "./state.js";

/** @typedef {import("./api.js").Row} Row */

const PAGE = 100;
const BEYOND = 8; // rows drawn above and below what is in sight
const COLUMNS = /** @type {const} */ ([["rank", "Rank"], ["word", ""], ["translation", ""], ["confidence", "Confidence"]]);
const STATUSES = { all: "All entries", open: "Undecided", accept: "Accepted", reject: "Rejected", correct: "Own translations", seed: "Seeds" };

/** @param {HTMLElement} root @param {AbortSignal} signal */
export function dictionaryView(root, signal) {
  let reverse = false;
  let query = { sort: "rank", order: "asc", q: "", status: "all", min: "", max: "" };
  let filtered = 0;
  let active = 0;
  let version = 0; // answers of an earlier query are dropped
  /** @type {Map<number, Row[] | "asked">} */
  let pages = new Map();
  /** @type {Map<number, HTMLElement>} */
  const drawn = new Map();

  const title = h("h1", { tabindex: "-1" }, "Dictionary");
  const counted = h("p", { class: "facts", role: "status" });
  const text = h("input", { type: "search", dir: "auto", autocomplete: "off", placeholder: "part of a word", oninput: (/** @type {InputEvent} */ event) => !event.isComposing && later(),
    oncompositionend: () => later() });
  const status = h("select", { onchange: () => apply() }, ...Object.entries(STATUSES).map(([value, label]) => h("option", { value }, label)));
  const least = h("input", { type: "number", min: 0, max: 1, step: 0.05, placeholder: "0", onchange: () => apply() });
  const most = h("input", { type: "number", min: 0, max: 1, step: 0.05, placeholder: "1", onchange: () => apply() });
  const head = h("div", { class: "row headrow", role: "row", "aria-rowindex": 1 });
  const body = h("div", { class: "rows", role: "rowgroup" });
  const list = h("div", { class: "virtual", role: "grid", "aria-label": "Dictionary", tabindex: "0", onscroll: () => schedule(), onkeydown: keys },
    h("div", { class: "headgroup", role: "rowgroup" }, head), body);
  root.replaceChildren(h("section", { class: "dictionary" },
    h("header", { class: "headword" }, title, counted),
    h("form", { class: "toolbar", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), apply()) },
      labelled("Find", text), labelled("Show", status), labelled("Confidence from", least), labelled("to", most),
      button("Clear", () => go({ view: "dictionary", q: null, status: null, min: null, max: null }), { class: "quiet" })),
    h("div", { class: "card flush" }, list)));

  const observer = new ResizeObserver(() => draw());
  observer.observe(list);
  signal.addEventListener("abort", () => observer.disconnect());
  addEventListener("decisions", () => redraw(), { signal });

  let timer = 0;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(apply, 150);
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  let frame = 0;
  const schedule = () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  };

  /** Take the fields into the address and start again. */
  function apply() {
    query = { ...query, q: text.value.trim(), status: status.value, min: least.value, max: most.value };
    note({ view: "dictionary", ...query, sort: query.sort === "rank" ? "" : query.sort, order: query.order === "asc" ? "" : query.order, status: query.status === "all" ? "" : query.status });
    restart();
  }

  async function restart() {
    version += 1;
    pages = new Map();
    active = 0;
    list.scrollTop = 0;
    drawHead();
    await fetchPage(0);
    announce(counted.textContent ?? "");
  }

  /** @param {number} page */
  async function fetchPage(page) {
    if (pages.has(page)) return;
    pages.set(page, "asked");
    const asked = version;
    try {
      const answer = await api.dictionary({ reverse, offset: page * PAGE, limit: PAGE, sort: query.sort, order: query.order, q: query.q,
        status: query.status, min_confidence: query.min, max_confidence: query.max });
      if (asked !== version) return;
      pages.set(page, answer.rows);
      filtered = answer.filtered;
      const building = facts.info.dictionary;
      counted.textContent = answer.filtered === answer.total ? count(answer.total, "entry", "entries")
        : `${whole(answer.filtered)} of ${count(answer.total, "entry", "entries")}`;
      if (!building.ready) counted.append(` · still being computed: ${whole(building.done)} of ${whole(building.total)}`);
      redraw();
    } catch (error) {
      if (asked !== version) return;
      pages.delete(page);
      counted.textContent = sentence(error);
    }
  }

  function drawHead() {
    head.replaceChildren(...COLUMNS.map(([name, label]) => {
      const sorted = query.sort === name;
      const said = label || languageName(reverse, name === "translation");
      return h("div", { role: "columnheader", class: `cell ${name}`, "aria-sort": sorted ? (query.order === "asc" ? "ascending" : "descending") : "none" },
        button(said, () => {
          query.order = sorted ? (query.order === "asc" ? "desc" : "asc") : name === "confidence" ? "desc" : "asc";
          query.sort = name;
          apply();
        }, { class: "sort" }));
    }), h("div", { role: "columnheader", class: "cell status" }, "Status"));
  }

  /** @param {number} index @returns {Row | undefined} */
  function rowAt(index) {
    const page = pages.get(Math.floor(index / PAGE));
    return page === "asked" ? undefined : page?.[index % PAGE];
  }

  function redraw() {
    const focused = document.activeElement?.closest(".virtual .row") && body.contains(document.activeElement);
    for (const node of drawn.values()) node.remove();
    drawn.clear();
    draw();
    if (focused) drawn.get(active)?.focus();
  }

  function draw() {
    const height = parseFloat(getComputedStyle(list).getPropertyValue("--row")) || 44;
    body.style.setProperty("height", `${filtered * height}px`);
    list.setAttribute("aria-rowcount", String(filtered + 1));
    const first = Math.max(0, Math.floor(list.scrollTop / height) - BEYOND);
    const last = Math.min(filtered, Math.ceil((list.scrollTop + list.clientHeight) / height) + BEYOND);
    for (const [index, node] of drawn)
      if (index < first || index >= last) {
        if (node.contains(document.activeElement)) list.focus({ preventScroll: true });
        node.remove();
        drawn.delete(index);
      }
    for (let index = first; index < last; index += 1) {
      const row = rowAt(index);
      const old = drawn.get(index);
      if (!row) fetchPage(Math.floor(index / PAGE));
      if (old && (old.dataset.ready || !row)) continue;
      old?.remove();
      const node = rowNode(row, index);
      node.style.setProperty("top", `${index * height}px`);
      drawn.set(index, node);
      body.append(node);
    }
    if (!filtered && pages.get(0) !== "asked") body.replaceChildren(h("p", { class: "soft pad" }, "No entry matches."));
    else body.querySelector("p")?.remove();
  }

  /** @param {Row | undefined} row @param {number} index */
  function rowNode(row, index) {
    const attributes = { role: "row", class: `row${index === active ? " active" : ""}`, "aria-rowindex": index + 2, tabindex: "-1", onfocus: () => activate(index) };
    if (!row) return h("div", attributes, h("div", { role: "gridcell", class: "cell rank" }, "…"));
    const { target } = row;
    const waiting = target === null ? undefined : pending(row.source, target, reverse);
    const verdict = waiting ? waiting.verdict : row.decision;
    const state = waiting ? (waiting.state === "failed" ? "not saved" : "saving …") : verdict ? VERDICTS[verdict] : "";
    return h("div", { ...attributes, "data-ready": "1", ondblclick: () => go({ view: "entry", word: row.source }) },
      h("div", { role: "gridcell", class: "cell rank" }, whole(row.rank)),
      h("div", { role: "gridcell", class: "cell word" }, h("a", { tabindex: "-1", href: address({ view: "entry", word: row.source, reverse }) }, word(row.source, language(reverse)))),
      h("div", { role: "gridcell", class: "cell translation" }, target === null ? "–" : h("a", { tabindex: "-1", href: address({ view: "entry", word: target, reverse: !reverse }) }, word(target, language(reverse, true)))),
      h("div", { role: "gridcell", class: "cell confidence" }, confidence(row.confidence, facts.info.likely)),
      h("div", { role: "gridcell", class: "cell status" }, row.seed && h("span", { class: "badge seed" }, "seed"),
        verdict && h("span", { class: `badge ${verdict} ${waiting?.state ?? ""}` }, h("span", { "aria-hidden": "true" }, `${MARKS[verdict]} `), state)));
  }

  /** @param {number} index */
  function activate(index) {
    drawn.get(active)?.classList.remove("active");
    active = index;
    drawn.get(active)?.classList.add("active");
  }

  /** @param {number} index */
  function move(index) {
    if (!filtered) return;
    const height = parseFloat(getComputedStyle(list).getPropertyValue("--row")) || 44;
    activate(Math.max(0, Math.min(index, filtered - 1)));
    const top = active * height;
    const view = list.clientHeight - head.offsetHeight;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + height > list.scrollTop + view) list.scrollTop = top + height - view;
    draw();
    drawn.get(active)?.focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} event */
  function keys(event) {
    if (event.target instanceof HTMLButtonElement || event.ctrlKey || event.altKey || event.metaKey) return;
    const step = Math.max(1, Math.floor(list.clientHeight / 50));
    /** @type {Record<string, number>} */
    const moves = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + step, PageUp: active - step, Home: 0, End: filtered - 1 };
    const inside = body.contains(document.activeElement);
    if (event.key in moves) move(inside ? moves[event.key] : event.key === "End" ? filtered - 1 : active);
    else if (event.key === "Enter" && inside && rowAt(active)) go({ view: "entry", word: rowAt(active)?.source ?? "" });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {"accept" | "reject"} verdict */
  async function judge(verdict) {
    const row = rowAt(active);
    if (!row || row.target === null) return;
    const sent = decide({ source: row.source, target: row.target, verdict, reverse });
    move(active + 1);
    const item = await sent;
    if (item.state === "failed") toast(`Not saved: ${row.source} → ${row.target}. ${item.error}`);
  }

  /** The server has acknowledged a decision. @param {Event} event */
  function saved(event) {
    /** @type {import("./decisions.js").Item} */
    const item = /** @type {CustomEvent} */ (event).detail;
    for (const rows of pages.values())
      for (const row of rows === "asked" ? [] : rows)
        if (row.source === item.source && row.target === item.target && item.reverse === reverse) row.decision = item.verdict;
  }

  /** Ask again for the pages that are known, without moving. */
  async function refresh() {
    version += 1;
    pages = new Map();
    draw();
  }
  const polling = setInterval(async () => {
    if (facts.info.dictionary.ready || document.hidden) return;
    await loadInfo().catch(() => {});
    refresh();
  }, 3000);
  signal.addEventListener("abort", () => clearInterval(polling));
  addEventListener("undone", refresh, { signal });
  addEventListener("saved", saved, { signal });

  return {
    /** @param {import("./state.js").Route} route */
    async show(route) {
      reverse = route.reverse;
      const get = (/** @type {string} */ name, /** @type {string} */ fallback) => route.params.get(name) ?? fallback;
      query = { sort: get("sort", "rank"), order: get("order", "asc"), q: get("q", ""), status: get("status", "all"), min: get("min", ""), max: get("max", "") };
      [text.value, status.value, least.value, most.value] = [query.q, query.status, query.min, query.max];
      await restart();
    },
    refresh,
    key(/** @type {string} */ key) {
      if (!body.contains(document.activeElement)) return false;
      if (key === "a") judge("accept");
      else if (key === "r") judge("reject");
      else return false;
      return true;
    },
    swap: () => "",
  };
}
