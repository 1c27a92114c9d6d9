/** One word with its candidates and the evidence, and the keys that decide on them. */

import { api } from "./api.js";
import { decide, MARKS, pending, undo, VERDICTS } from "./decisions.js";
import { announce, button, confidence, count, decimals, h, kbd, labelled, percent, sentence, toast, whole, word } from "./dom.js";
import { bar, evidence, legend, ranked, sliders, span } from "./mixing.js";
import { address, facts, language, languageName } from "./state.js";

/**
 * @typedef {import("./api.js").Entry} Entry
 * @typedef {import("./api.js").Candidate} Candidate
 * @typedef {import("./api.js").Verdict} Verdict
 */

const SHOWN = 8;
const FORMS = 3;
/** Keys that are swallowed while another word is on its way: they were meant for that one. */
export const DECIDING = /^(?:[1-9acnprstx]|Arrow\w+)$/;
const ORDINALS = new Intl.PluralRules("en", { type: "ordinal" });
/** @type {Record<string, string>} */
const SUFFIXES = { one: "st", two: "nd", few: "rd", other: "th" };

/** @param {number} rank */
const ordinal = (rank) => (rank ? `${whole(rank)}${SUFFIXES[ORDINALS.select(rank)]}` : "> 100");

export class EntryPanel {
  /**
   * @param {AbortSignal} signal ends the panel's listeners
   * @param {{decided?: (verdict: Verdict, stay: boolean) => void, extra?: () => Node[]}} [hooks]
   *   `decided` is told of each decision when it is made, not when it is saved
   */
  constructor(signal, hooks = {}) {
    this.hooks = hooks;
    this.root = h("section", { class: "entry", "aria-label": "Entry" });
    /** @type {Entry | null} */
    this.entry = null;
    this.reverse = false;
    this.selected = 0;
    this.all = false;
    /** Whether another word is on its way to the screen. */
    this.busy = false;
    this.title = h("h1", { tabindex: "-1" });
    addEventListener("decisions", () => this.entry && this.draw(), { signal });
    addEventListener("undone", () => this.refresh(), { signal });
    addEventListener("saved", (event) => this.saved(/** @type {CustomEvent} */ (event).detail), { signal });
  }

  /** @param {string} text @param {boolean} reverse @param {Promise<Entry>} [prefetched] */
  async show(text, reverse, prefetched) {
    this.wanted = `${reverse}\n${text}`;
    const wanted = this.wanted;
    this.busy = true;
    this.root.setAttribute("aria-busy", "true");
    if (!this.entry) this.root.replaceChildren(h("p", { class: "soft" }, "Looking up ", word(text, language(reverse)), " …"));
    let entry;
    try {
      entry = await (prefetched ?? api.entry(text, reverse));
    } catch (error) {
      if (wanted !== this.wanted) return;
      this.entry = null;
      this.root.replaceChildren(h("p", { class: "failure" }, sentence(error), " ", button("Try again", () => this.show(text, reverse))));
      return;
    } finally {
      if (wanted === this.wanted) {
        this.busy = false;
        this.root.removeAttribute("aria-busy");
      }
    }
    if (wanted !== this.wanted) return; // another word was asked for meanwhile
    this.entry = entry;
    this.reverse = reverse;
    this.selected = 0;
    this.all = false;
    this.build();
    const first = entry.candidates[0];
    announce(entry.known
      ? `${entry.word}: ${count(entry.candidates.length, "candidate")}${first ? `, first ${first.word}` : ""}.`
      : `${entry.word} is not in the vocabulary.`);
  }

  /** Ask the server again, and keep what is selected and typed. */
  async refresh() {
    const { entry, reverse } = this;
    if (!entry) return;
    try {
      const fresh = await api.entry(entry.word, reverse);
      if (this.entry !== entry) return;
      this.entry = fresh;
      this.draw();
    } catch {
      // The entry on screen stays; the next request says what is wrong.
    }
  }

  get candidates() {
    return this.entry ? ranked(this.entry.candidates) : [];
  }

  build() {
    const { entry, reverse } = this;
    if (!entry) return;
    const here = language(reverse);
    this.title = h("h1", { tabindex: "-1" }, word(entry.word, here));
    const head = h("header", { class: "headword" }, this.title);
    if (!entry.known) {
      head.append(h("p", { class: "soft" }, `Not among the ${whole(facts.info.words[Number(reverse)])} words of ${languageName(reverse)}.`));
      this.root.replaceChildren(head, this.suggestions());
      return;
    }
    this.head = h("p", { class: "facts" });
    head.append(this.head);
    this.table = h("table", { class: "candidates" });
    this.more = h("p", { class: "more" });
    this.side = h("div", { class: "card" });
    this.history = h("div", { class: "card" });
    const { box, reset } = sliders(() => this.table?.isConnected && this.draw());
    this.root.replaceChildren(
      head,
      ...(this.hooks.extra?.() ?? []),
      h("div", { class: "columns" },
        h("div", { class: "main" }, h("div", { class: "card flush" }, legend(), this.table, this.more), this.ownForm()),
        h("aside", { class: "side", "aria-label": "Evidence" },
          this.side,
          h("div", { class: "card" }, h("div", { class: "cardhead" }, h("h2", {}, "Weights"), reset), box),
          this.neighbours(), this.history)));
    this.draw();
  }

  suggestions() {
    const box = h("div", { class: "card" }, h("h2", {}, "Words that begin alike"));
    const { entry } = this;
    const stem = [...(entry?.word ?? "")].slice(0, 4).join("");
    for (const reverse of [this.reverse, !this.reverse])
      api.complete(stem, reverse).then(
        ({ words }) => words.length && box.append(h("p", {}, languageName(reverse), ": ",
          ...words.flatMap((one) => [h("a", { href: address({ view: "entry", word: one.word, reverse }) }, word(one.word, language(reverse))), " "]))),
        () => {});
    return box;
  }

  /** Everything that decisions, weights and the selection change. */
  draw() {
    const { entry, table, more, side, history } = this;
    if (!entry?.known || !table || !more || !side || !history) return;
    const list = this.candidates;
    this.selected = Math.max(0, Math.min(this.selected, list.length - 1));
    const shown = this.all ? list : list.slice(0, Math.max(SHOWN, this.selected + 1));
    const range = span(shown);
    const focused = document.activeElement?.getAttribute("data-focus");
    table.replaceChildren(
      h("caption", { class: "hidden" }, `Candidate translations of ${entry.word}`),
      h("thead", {}, h("tr", {},
        h("th", { scope: "col", class: "key" }, h("span", { class: "hidden" }, "Key")), h("th", { scope: "col" }, languageName(this.reverse, true)),
        h("th", { scope: "col" }, "Confidence"), h("th", { scope: "col", class: "shares" }, "Shares of the score"),
        h("th", { scope: "col", class: "n back", title: "Rank of this word among the candidate's own translations, by CSLS" }, "Way back"),
        h("th", { scope: "col", class: "verdict" }, h("span", { class: "hidden" }, "Verdict")))),
      h("tbody", {}, ...shown.map((candidate, place) => this.row(candidate, place, range))));
    more.replaceChildren(...(shown.length < list.length ? [button(`Show all ${list.length} candidates`, () => ((this.all = true), this.draw()), { class: "quiet" })] : []));
    if (focused) /** @type {HTMLElement | null} */ (table.querySelector(`[data-focus="${CSS.escape(focused)}"]`))?.focus();
    this.drawFacts(entry);
    this.drawSide(list[this.selected]);
    this.drawHistory(entry);
  }

  /** @param {Entry} entry */
  drawFacts(entry) {
    const total = facts.info.words[Number(this.reverse)];
    this.head?.replaceChildren(
      languageName(this.reverse), " · ", h("span", { title: "1 is the most frequent word" }, `frequency rank ${whole(entry.rank ?? 0)}`), ` of ${whole(total)}`,
      ...(entry.here === null ? [] : [" · ", h("span", { title: "the chance that the other vocabulary has a translation at all" }, `a translation exists: ${percent(entry.here)}`)]),
      ...(entry.candidates.some((one) => one.seed) ? [" · ", h("span", { class: "badge seed" }, "in the seeds")] : []),
      " · ", h("a", { href: address({ view: "map", word: entry.word, reverse: this.reverse }) }, "map"));
  }

  /** @param {Candidate} candidate @param {number} place @param {{low: number, high: number}} range */
  row(candidate, place, range) {
    const there = language(this.reverse, true);
    const waiting = this.waiting(candidate);
    const verdict = waiting ? waiting.verdict : candidate.decision;
    const moved = this.entry ? this.entry.candidates.indexOf(candidate) - place : 0;
    const select = () => ((this.selected = place), this.draw());
    /** @param {"accept" | "reject"} one @param {string} text */
    const act = (one, text) => h("button", {
      type: "button", class: `act ${one}`, "aria-pressed": String(verdict === one), "data-focus": `${one} ${candidate.word}`,
      "aria-label": `${text} ${candidate.word}`, title: text, onclick: (/** @type {Event} */ event) => {
        event.stopPropagation();
        this.selected = place;
        if (verdict === one) this.takeBack(candidate);
        else this.judge(candidate, one, true);
      } }, MARKS[one]);
    return h("tr", {
      class: [place === this.selected && "selected", verdict, waiting?.state].filter(Boolean).join(" "),
      "aria-current": place === this.selected ? "true" : null, onclick: select },
    h("td", { class: "key" }, place < 9 ? h("kbd", {}, place + 1) : ""),
    h("th", { scope: "row", class: "translation" },
      h("a", { href: address({ view: "entry", word: candidate.word, reverse: !this.reverse }), onclick: (/** @type {Event} */ event) => event.stopPropagation() },
        word(candidate.word, there)),
      candidate.seed && h("span", { class: "badge seed", title: "given with the training" }, "seed"),
      verdict && verdict !== "skip" && h("span", { class: `badge ${verdict}` }, waiting ? this.waitingText(waiting) : VERDICTS[verdict]),
      moved !== 0 && h("span", { class: "moved", title: "places moved by your weights" }, moved > 0 ? `▲${moved}` : `▼${-moved}`),
      h("span", { class: "under" }, candidate.rank === null ? "not in the vocabulary" : `rank ${whole(candidate.rank)}`,
        ...(candidate.forms.length ? [" · also ", ...candidate.forms.slice(0, FORMS).flatMap((form, at) => [at ? ", " : "", word(form, there)])] : []),
        candidate.forms.length > FORMS && h("span", { title: candidate.forms.slice(FORMS).join(", ") }, ` and ${candidate.forms.length - FORMS} more`))),
    h("td", { class: "confidence" }, confidence(candidate.confidence, facts.info.likely)),
    h("td", { class: "shares" }, candidate.score === null ? h("span", { class: "soft" }, "not scored") : bar(candidate, range)),
    h("td", { class: "n back" }, h("span", { class: "hidden" }, "way back: "), ordinal(candidate.back_rank)),
    h("td", { class: "verdict" }, act("accept", "Accept"), act("reject", "Reject")));
  }

  /** @param {Candidate} candidate */
  waiting(candidate) {
    return this.entry ? pending(this.entry.word, candidate.word, this.reverse) : undefined;
  }

  /** @param {import("./decisions.js").Item} item */
  waitingText(item) {
    return item.state === "failed" ? "not saved" : item.state === "undoing" ? "undoing …" : "saving …";
  }

  /** @param {Candidate | undefined} candidate */
  drawSide(candidate) {
    if (!this.side) return;
    if (!candidate) return this.side.replaceChildren(h("p", { class: "soft" }, "No candidates."));
    this.side.replaceChildren(
      h("div", { class: "cardhead" }, h("h2", {}, "Why ", word(candidate.word, language(this.reverse, true)), "?")), evidence(candidate));
  }

  /** @param {Entry} entry */
  drawHistory(entry) {
    if (!this.history) return;
    this.history.hidden = !entry.decisions.length;
    this.history.replaceChildren(h("h2", {}, "Decisions on this word"),
      h("ul", { class: "decisions" }, ...entry.decisions.map((one) => h("li", { class: `decision ${one.verdict}` },
        h("span", { class: "mark" }, MARKS[one.verdict]),
        h("span", { class: "pair" }, word(one.target || "–", language(this.reverse, true)), one.note && h("span", { class: "note" }, `“${one.note}”`)),
        h("span", { class: "state" }, [VERDICTS[one.verdict], one.who, one.when.slice(0, 10)].filter(Boolean).join(" · "))))));
  }

  neighbours() {
    const { entry, reverse } = this;
    if (!entry) return h("div");
    /** @param {boolean} other @param {{word: string, value: number}[]} rows @param {string} measure */
    const list = (other, rows, measure) => h("div", { class: other ? "across" : "own" },
      h("h3", {}, languageName(reverse, other), h("span", { class: "soft" }, ` by ${measure}`)),
      h("ol", { class: "neighbours" }, ...rows.map((one) => h("li", {},
        h("a", { href: address({ view: "entry", word: one.word, reverse: reverse !== other }) }, word(one.word, language(reverse, other))),
        h("span", { class: "n" }, decimals(one.value))))));
    return h("div", { class: "card" }, h("h2", {}, "Neighbours"), h("div", { class: "two" },
      list(false, entry.own.map((one) => ({ word: one.word, value: one.cosine })), "cosine"),
      list(true, entry.other.map((one) => ({ word: one.word, value: one.csls })), "CSLS")));
  }

  ownForm() {
    const there = language(this.reverse, true);
    const options = h("datalist", { id: "own-words" });
    this.own = h("input", { name: "own", dir: "auto", lang: there, list: "own-words", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
      oninput: async (/** @type {InputEvent} */ event) => {
        const text = /** @type {HTMLInputElement} */ (event.target).value.trim();
        if (!text || event.isComposing) return;
        const found = await api.complete(text, !this.reverse).catch(() => ({ words: [] }));
        options.replaceChildren(...found.words.map((one) => h("option", { value: one.word })));
      } });
    this.note = h("input", { name: "note", dir: "auto", autocomplete: "off" });
    const form = h("form", { class: "card ownform", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), this.typed()) },
      labelled(h("span", {}, "Own translation ", kbd("T")), this.own),
      labelled(h("span", {}, "Note for the next decision ", kbd("C")), this.note),
      h("button", { type: "submit", class: "primary" }, "Save own translation"), options);
    // Escape leaves the field, so that the letter keys decide again.
    form.addEventListener("keydown", (event) => {
      const composing = event.isComposing || event.key === "Process";
      if (composing) return;
      if (event.key === "Escape" || (event.key === "Enter" && event.target === this.note)) {
        event.preventDefault();
        event.stopPropagation();
        this.title.focus();
      }
    });
    return form;
  }

  typed() {
    const { entry, own } = this;
    const text = own?.value.trim();
    if (!entry || !text || !own) return own?.focus();
    const offered = entry.candidates.find((one) => one.word === text);
    own.value = "";
    this.title.focus();
    if (offered) return this.judge(offered, "accept", false);
    this.save(text, "correct");
    this.hooks.decided?.("correct", false);
  }

  /** The server has acknowledged a decision, perhaps after a retry. @param {import("./decisions.js").Item} item */
  saved(item) {
    if (item.source !== this.entry?.word || item.reverse !== this.reverse) return;
    const candidate = this.entry.candidates.find((one) => one.word === item.target);
    if (candidate && item.verdict !== "skip") candidate.decision = item.verdict;
    this.refresh();
  }

  /** @param {string} target @param {Verdict} verdict */
  async save(target, verdict) {
    const { entry, reverse } = this;
    if (!entry) return;
    const text = this.note?.value.trim() ?? "";
    if (this.note) this.note.value = "";
    const item = await decide({ source: entry.word, target, verdict, reverse, note: text });
    if (item.state === "failed") toast(`Not saved: ${entry.word} → ${target}. ${item.error}`);
  }

  /** @param {Candidate} candidate @param {Verdict} verdict @param {boolean} stay */
  judge(candidate, verdict, stay) {
    const known = this.waiting(candidate)?.verdict ?? candidate.decision;
    if (known !== verdict) this.save(candidate.word, verdict);
    if (stay && verdict === "reject") this.select(this.selected + 1);
    this.hooks.decided?.(verdict, stay);
  }

  /** @param {Candidate} candidate */
  takeBack(candidate) {
    const waiting = this.waiting(candidate);
    if (waiting) return undo(waiting);
    const last = this.entry?.decisions.filter((one) => one.target === candidate.word).sort((one, other) => other.id - one.id)[0];
    if (last) return undo({ ...last, state: "saved", error: "" });
    toast("This decision was made from the other language: look the candidate up to undo it.");
  }

  /** @param {number} place */
  select(place) {
    const list = this.candidates;
    this.selected = Math.max(0, Math.min(place, list.length - 1));
    this.draw();
    const one = list[this.selected];
    this.root.querySelector("tr.selected")?.scrollIntoView({ block: "nearest" });
    if (one) announce(`${this.selected + 1}: ${one.word}, confidence ${decimals(one.confidence)}.`);
  }

  skip() {
    const first = this.candidates[0];
    if (!this.entry || !first) return;
    this.save(first.word, "skip");
    this.hooks.decided?.("skip", false);
  }

  /** Whether the key was one of ours. @param {string} key */
  key(key) {
    if (this.busy) return DECIDING.test(key);
    const list = this.candidates;
    const one = list[this.selected];
    if (!this.entry?.known) return false;
    const digit = /^[1-9]$/.test(key) ? list[Number(key) - 1] : undefined;
    if (digit) this.judge(digit, "accept", false);
    else if (key === "ArrowDown") this.select(this.selected + 1);
    else if (key === "ArrowUp") this.select(this.selected - 1);
    else if (key === "a" && one) this.judge(one, "accept", false);
    else if (key === "r" && one) this.judge(one, "reject", false);
    else if (key === "x" && one) this.judge(one, "reject", true);
    else if (key === "t") this.own?.focus();
    else if (key === "c") this.note?.focus();
    else return false;
    return true;
  }
}

/** The view of one word, or of none: then what the page is for. @param {HTMLElement} root @param {AbortSignal} signal */
export function entryView(root, signal) {
  const panel = new EntryPanel(signal);
  return {
    /** @param {import("./state.js").Route} route */
    async show({ word: text, reverse }) {
      if (!text) return root.replaceChildren(await welcome());
      root.replaceChildren(panel.root);
      await panel.show(text, reverse);
    },
    refresh: () => panel.refresh(),
    key: (/** @type {string} */ key) => panel.key(key),
    /** The word to go on with in the other direction. */
    swap: () => panel.candidates[0]?.word ?? "",
  };
}

async function welcome() {
  const { info } = facts;
  const precision = info.expected?.forward?.precision;
  const examples = h("p", { class: "examples" });
  api.dictionary({ sort: "rank", limit: 40, min_confidence: info.likely }).then(({ rows }) => {
    const some = rows.filter((row) => row.source.length > 2).slice(0, 8);
    examples.replaceChildren(...some.flatMap((row) => [
      h("a", { class: "chip", href: address({ view: "entry", word: row.source }) }, word(row.source, language(false))), " "]));
  }, () => {});
  /** @param {string} view @param {string} title @param {string} text */
  const card = (view, title, text) => h("a", { class: "card step", href: address({ view }) }, h("h2", {}, title), h("p", {}, text));
  return h("section", { class: "welcome" },
    h("h1", { tabindex: "-1" }, `${languageName(false)} and ${languageName(true)}`),
    h("p", { class: "lead" }, `${whole(info.words[0])} and ${whole(info.words[1])} words, trained with ${count(info.seeds, "seed pair")}.`,
      precision ? ` Of ten first translations about ${Math.round(10 * precision)} are right.` : "",
      " Type a word of either language above, or begin with one of these:"),
    examples,
    h("div", { class: "steps" },
      card("curate", "Curate", "Go through the words that need a human eye. One key accepts, another rejects."),
      card("learn", "Learn", "Train again with your decisions, see what changed, and go back if you like it less."),
      card("dictionary", "Dictionary", "Browse, sort and filter all entries.")));
}
