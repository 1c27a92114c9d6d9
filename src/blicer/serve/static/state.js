/** What the page shows: the address's fragment (view, word, direction) and the server's facts. */

import { api } from "./api.js";

/**
 * @typedef {{view: string, word: string, reverse: boolean, params: URLSearchParams}} Route
 * @typedef {import("./api.js").Info} Info
 */

/** @type {{info: Info}} */
export const facts = { info: /** @type {any} */ (null) };

export async function loadInfo() {
  const info = await api.info();
  facts.info = { ...info, likely: info.likely ?? 0 };
  dispatchEvent(new CustomEvent("info"));
  return facts.info;
}

/** @returns {Route} */
export function route() {
  const params = new URLSearchParams(location.hash.slice(1));
  return {
    view: params.get("view") ?? "entry",
    word: params.get("word") ?? "",
    reverse: params.get("reverse") === "1",
    params,
  };
}

/**
 * The address of a view. Word and direction stay unless they are given.
 * @param {Record<string, string | number | boolean | null>} changes
 */
export function address(changes) {
  const now = route();
  const values = { view: now.view, word: now.word, reverse: now.reverse, ...changes };
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(values))
    if (value !== null && value !== "" && value !== false) params.set(key, value === true ? "1" : String(value));
  return `#${params}`;
}

/** @param {Record<string, string | number | boolean | null>} changes */
export function go(changes) {
  location.hash = address(changes);
}

let shownAddress = "";

/** The view of the address is being shown. */
export function arrive() {
  shownAddress = location.hash;
}

/** Change the address without a step in the history, unless the user is on the way elsewhere. @param {Record<string, string | number | boolean | null>} changes */
export function note(changes) {
  if (location.hash !== shownAddress) return;
  history.replaceState(null, "", address(changes));
  arrive();
  dispatchEvent(new CustomEvent("noted"));
}

/** Language tag of the words asked (or, with `other`, of their translations). @param {boolean} reverse @param {boolean} [other] */
export const language = (reverse, other = false) => facts.info.languages[Number(reverse !== other)];

/** Name of a language with a capital where its script has one. @param {boolean} reverse @param {boolean} [other] */
export function languageName(reverse, other = false) {
  const name = facts.info.language_names[Number(reverse !== other)];
  return name.charAt(0).toLocaleUpperCase() + name.slice(1);
}

/** Settings of this browser, such as the theme or the name under which decisions are signed. */
export const settings = {
  /** @param {string} key */
  get: (key) => localStorage.getItem(`blicer-${key}`) ?? "",
  /** @param {string} key @param {string} value */
  set: (key, value) => localStorage.setItem(`blicer-${key}`, value),
};
