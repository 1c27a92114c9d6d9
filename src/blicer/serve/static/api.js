/** The server's endpoints, typed. Every failure is an `ApiError` with one sentence. */

/**
 * @typedef {"accept" | "reject" | "correct" | "skip"} Verdict
 * @typedef {{words: number, precision: number, interval: [number, number], space_alone: number, among_candidates: number}} Direction
 * @typedef {{forward?: Direction, backward?: Direction}} Expected
 * @typedef {{word: string, reverse: boolean, before: string | null, after: string | null, confidence_before: number | null, confidence_after: number | null}} Change
 * @typedef {{state: "idle" | "running" | "done" | "failed", message: string, progress: number, started: string | null,
 *   expected_before: Expected | null, expected_after: Expected | null, changes: Change[], n_changes: number, n_sure_changes: number, can_go_back: boolean}} Learning
 * @typedef {{bins: [number, number, number][], curve: [number, number, number][], error: number}} Reliability
 * @typedef {{languages: [string, string], language_names: [string, string], rtl: [boolean, boolean], words: [number, number],
 *   scores: string[], weights: Record<string, number>, n_cand: number, likely: number, expected: Expected | null,
 *   advice: string | null, reliability: Reliability | null, details: Record<string, any>, seeds: number,
 *   decisions: {accept: number, reject: number, correct: number},
 *   dictionary: {ready: boolean, done: number, total: number}, learn: Learning}} Info
 * @typedef {{source: string, target: string, verdict: Verdict, reverse: boolean, note: string, who: string}} NewDecision
 * @typedef {NewDecision & {id: number, when: string}} Decision
 * @typedef {{word: string, rank: number | null, confidence: number | null, score: number | null, parts: Record<string, number>,
 *   shares: Record<string, number>, back_rank: number, seed: boolean, forms: string[], decision: Verdict | null}} Candidate
 * @typedef {{word: string, known: boolean, here: number | null, rank: number | null, candidates: Candidate[],
 *   own: {word: string, cosine: number}[], other: {word: string, csls: number}[], decisions: Decision[]}} Entry
 * @typedef {{word: string, side: "source" | "target", x: number, y: number, asked: boolean}} Point
 * @typedef {{rank: number, source: string, target: string | null, confidence: number | null, seed: boolean, decision: Verdict | null}} Row
 * @typedef {{source: string, target: string, confidence: number | null, why: string}} QueueRow
 */

const TOKEN = "blicer-token";
const TIMEOUT = 30_000;

export class ApiError extends Error {
  /** @param {string} message @param {number} status 0 if there was no answer */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Keep a token that the address carries, and take it out of the address and the history. */
export function takeToken() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const token = hash.get("token");
  if (token === null) return;
  setToken(token);
  hash.delete("token");
  history.replaceState(null, "", `${location.pathname}${location.search}#${hash}`);
}

/** @param {string} token */
export const setToken = (token) => sessionStorage.setItem(TOKEN, token);

/**
 * @param {string} path
 * @param {{query?: Record<string, any>, body?: object, signal?: AbortSignal}} [options]
 * @returns {Promise<Response>}
 */
async function request(path, { query = {}, body, signal } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const address = given.length ? `${path}?${new URLSearchParams(given.map(([key, value]) => [key, String(value)]))}` : path;
  /** @type {Record<string, string>} */
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  const signals = [AbortSignal.timeout(TIMEOUT), ...(signal ? [signal] : [])];
  let response;
  try {
    response = await fetch(address, {
      method: body ? "POST" : "GET",
      headers,
      body: body && JSON.stringify(body),
      signal: AbortSignal.any(signals),
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError("The server does not answer. Is blicer serve still running?", 0);
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new ApiError(answer.error ?? `The server answered ${response.status}.`, response.status);
}

/** @param {string} path @param {Parameters<typeof request>[1]} [options] @returns {Promise<any>} */
const json = async (path, options) => (await request(path, options)).json();

export const api = {
  /** @returns {Promise<Info>} */
  info: () => json("/info"),
  /** @param {string} q @param {boolean} reverse @param {AbortSignal} [signal] @returns {Promise<{words: {word: string, rank: number}[]}>} */
  complete: (q, reverse, signal) => json("/complete", { query: { q, reverse, limit: 8 }, signal }),
  /** @param {string} word @param {boolean} reverse @returns {Promise<Entry>} */
  entry: (word, reverse) => json("/entry", { query: { word, reverse } }),
  /** @param {string} word @param {boolean} reverse @param {number} n @returns {Promise<{points: Point[]}>} */
  map: (word, reverse, n) => json("/map", { query: { word, reverse, n } }),
  /** @param {Record<string, any>} query @returns {Promise<{total: number, filtered: number, rows: Row[]}>} */
  dictionary: (query) => json("/dictionary", { query }),
  /** @param {string} kind @param {boolean} reverse @param {number} offset @param {number} limit @returns {Promise<{total: number, rows: QueueRow[]}>} */
  queue: (kind, reverse, offset, limit) => json("/queue", { query: { kind, reverse, offset, limit } }),
  /** @param {NewDecision} decision @returns {Promise<Decision>} */
  decide: (decision) => json("/decisions", { body: decision }),
  /** @param {number} id @returns {Promise<{undone: Decision}>} */
  undo: (id) => json("/decisions/undo", { body: { id } }),
  /** @param {number} limit @returns {Promise<{total: number, rows: Decision[]}>} */
  decisions: (limit) => json("/decisions", { query: { limit } }),
  /** @returns {Promise<string>} */
  decisionsFile: async () => (await request("/decisions.tsv")).text(),
  /** @returns {Promise<Learning>} */
  learning: () => json("/learn"),
  /** @returns {Promise<Learning>} */
  learn: () => json("/learn", { body: {} }),
  /** @returns {Promise<Learning>} */
  goBack: () => json("/learn/back", { body: {} }),
  /** A picture as a data URL: an image element could not send the token. @param {string} name @returns {Promise<string>} */
  picture: async (name) =>
    `data:image/svg+xml,${encodeURIComponent(await (await request(`/pictures/${name}.svg`)).text())}`,
};
