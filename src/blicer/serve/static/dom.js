/** Elements, numbers and words on the page. All text becomes text nodes: data is never HTML. */

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Set attributes, listeners (`onclick`), CSS variables (`style: {"--share": 0.5}`) and children.
 * @template {Element} E
 * @param {E} node
 * @param {Record<string, any>} attributes
 * @param {Child[]} children
 * @returns {E}
 */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (name === "style") {
      const { style } = /** @type {HTMLElement} */ (/** @type {unknown} */ (node));
      for (const [key, one] of Object.entries(value)) style.setProperty(key, String(one));
    } else if (name === "value") /** @type {any} */ (node).value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children)
    if (child !== null && child !== undefined && child !== false)
      node.append(child instanceof Node ? child : String(child));
  return node;
}

/**
 * An HTML element.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * An SVG element.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  return /** @type {SVGElement} */ (fill(document.createElementNS(SVG, tag), attributes, children));
}

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`the page has no element ${id}`);
  return node;
}

/**
 * A word of the data, isolated so that right-to-left words do not disturb the line around them.
 * @param {string} text
 * @param {string} [lang]
 */
export function word(text, lang) {
  return h("bdi", { class: "word", lang: lang || null, dir: "auto" }, text);
}

/** @param {string} text @param {() => void} onclick @param {Record<string, any>} [attributes] */
export function button(text, onclick, attributes = {}) {
  return h("button", { type: "button", onclick, ...attributes }, text);
}

/**
 * A labelled form field.
 * @param {Child} text
 * @param {HTMLElement} field
 * @param {string} [className]
 */
export function labelled(text, field, className = "field") {
  return h("label", { class: className }, h("span", {}, text), field);
}

/** @param {...string} keys */
export function kbd(...keys) {
  return h("span", { class: "keys" }, ...keys.map((key) => h("kbd", {}, key)));
}

/** @param {number} value */
export const whole = (value) => value.toLocaleString("en");

/** @param {number | null | undefined} value */
export const percent = (value) =>
  value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`;

/** @param {number | null | undefined} value */
export const decimals = (value) =>
  value === null || value === undefined ? "–" : value.toFixed(2);

/** @param {number} n @param {string} one @param {string} [many] */
export const count = (n, one, many = `${one}s`) => `${whole(n)} ${n === 1 ? one : many}`;

/**
 * A confidence as number and bar; the bar's colour says whether the pair counts as likely.
 * @param {number | null} value
 * @param {number} likely
 */
export function confidence(value, likely) {
  if (value === null) return h("span", { class: "sure none", title: "no confidence" }, "–");
  const level = value >= Math.max(0.6, likely) ? "high" : value >= likely ? "middle" : "low";
  return h(
    "span",
    { class: `sure ${level}` },
    h("span", { class: "number" }, decimals(value)),
    h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: "fill", style: { "--share": value } })),
  );
}

/** Say something to screen readers. @param {string} text */
export function announce(text) {
  byId("live").textContent = text;
}

/**
 * Show an error for a while, or news with something to do until it is done or closed.
 * @param {string} text
 * @param {{label: string, run: () => void}} [action]
 */
export function toast(text, action) {
  const node = h("div", { class: action ? "toast news" : "toast" }, h("span", {}, text));
  const close = () => node.remove();
  if (action) node.append(button(action.label, () => (close(), action.run())));
  node.append(button("✕", close, { class: "close", "aria-label": "Close" }));
  byId("toasts").append(node);
  if (!action) setTimeout(close, 8000);
}

/** @param {unknown} error */
export const sentence = (error) => (error instanceof Error ? error.message : String(error));

/**
 * The key as our shortcuts name it: the Latin letter of its place on a keyboard of another script,
 * the digit also where digits need Shift.
 * @param {KeyboardEvent} event
 */
export function keyName(event) {
  const [, letter, digit] = /^(?:Key([A-Z])|Digit([1-9]))$/.exec(event.code) ?? [];
  if (digit && !event.shiftKey) return digit;
  if (letter && !/^[a-z]$/i.test(event.key)) return letter.toLowerCase();
  return event.key.length === 1 ? event.key.toLowerCase() : event.key;
}

/** Whether keys typed now belong to a form field. @param {EventTarget | null} target */
export function isTyping(target) {
  return (
    target instanceof HTMLElement &&
    (target.matches("input:not([type=range]):not([type=checkbox]), textarea, select") || target.isContentEditable)
  );
}
