/** Search as you type, in both languages at once. */

import { api } from "./api.js";
import { announce, byId, count, h, sentence, whole, word } from "./dom.js";
import { go, language, languageName, route } from "./state.js";

const WAIT = 60; // milliseconds without a key before the server is asked

export function startSearch() {
  const input = /** @type {HTMLInputElement} */ (byId("search"));
  const box = byId("found");
  /** @type {{word: string, reverse: boolean, node: HTMLElement}[]} */
  let options = [];
  let at = -1;
  let timer = 0;
  let asked = new AbortController();

  function close() {
    asked.abort();
    clearTimeout(timer);
    box.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    [options, at] = [[], -1];
  }

  /** @param {string} text @param {boolean} reverse */
  function choose(text, reverse) {
    close();
    input.value = "";
    input.blur();
    const { view } = route();
    go({ view: view === "map" ? "map" : "entry", word: text, reverse });
  }

  /** @param {number} index */
  function mark(index) {
    options[at]?.node.setAttribute("aria-selected", "false");
    at = options.length ? (index + options.length) % options.length : -1;
    const { node } = options[at] ?? {};
    node?.setAttribute("aria-selected", "true");
    node?.scrollIntoView({ block: "nearest" });
    if (node) input.setAttribute("aria-activedescendant", node.id);
  }

  async function ask() {
    asked.abort();
    asked = new AbortController();
    const { signal } = asked;
    const text = input.value.trim();
    if (!text) return close();
    const first = route().reverse;
    let found;
    try {
      found = await Promise.all([first, !first].map(async (reverse) => ({ reverse, words: (await api.complete(text, reverse, signal)).words })));
    } catch (error) {
      if (!signal.aborted) {
        box.replaceChildren(h("p", { class: "soft pad" }, sentence(error)));
        box.hidden = false;
      }
      return;
    }
    if (signal.aborted) return;
    options = [];
    at = -1;
    const groups = found.filter(({ words }) => words.length).map(({ reverse, words }) => {
      const name = languageName(reverse);
      return h("div", { role: "group", "aria-label": name }, h("div", { class: "group", "aria-hidden": "true" }, name), ...words.map((one) => {
        const node = h("div", { role: "option", id: `found-${options.length}`, "aria-selected": "false", class: "option",
          // A press would take the focus from the field and close the list before the click.
          onmousedown: (/** @type {Event} */ event) => event.preventDefault(), onclick: () => choose(one.word, reverse) },
        word(one.word, language(reverse)), h("span", { class: "n" }, whole(one.rank), h("span", { class: "hidden" }, " by frequency")));
        options.push({ word: one.word, reverse, node });
        return node;
      }));
    });
    box.replaceChildren(...(groups.length ? groups : [h("div", { class: "soft pad", role: "option", "aria-selected": "false", "aria-disabled": "true" }, "No word begins like this.")]));
    box.hidden = false;
    input.setAttribute("aria-expanded", "true");
    input.removeAttribute("aria-activedescendant");
    announce(count(options.length, "word") + " found.");
  }

  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT);
  };
  input.addEventListener("input", (event) => /** @type {InputEvent} */ (event).isComposing || soon());
  input.addEventListener("compositionend", soon);
  input.addEventListener("focus", () => input.value && soon());
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.isComposing || event.key === "Process") return; // the input method's own keys
    if (event.key === "ArrowDown") mark(at + 1);
    else if (event.key === "ArrowUp") mark(at < 0 ? -1 : at - 1);
    else if (event.key === "Escape") box.hidden ? input.blur() : close();
    else if (event.key === "Enter" && input.value.trim()) {
      const text = input.value.trim();
      const folded = text.toLowerCase();
      const same = options.find((one) => one.word === text) ?? options.find((one) => one.word.toLowerCase() === folded);
      const chosen = options[at] ?? same ?? options[0];
      if (chosen) choose(chosen.word, chosen.reverse);
      else choose(text, route().reverse);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
}
