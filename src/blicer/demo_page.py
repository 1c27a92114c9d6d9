"""The demonstration's results as one HTML page that needs no other file and no network."""

from __future__ import annotations

from html import escape
from typing import Any

from blicer.demo_pictures import lambda_picture, reliability_picture

Results = dict[str, Any]
METRICS = {"p@1": "P@1", "p@5": "P@5", "mrr": "MRR"}
DIRECTIONS = {"forward": "English → Russian", "backward": "Russian → English"}

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6675; --line: #d9dee6;
  --paper: #ffffff; --card: #f5f7fa; --old: #9aa5b4; --new: #1f6feb; --good: #1a7f46;
  --bad: #b4382c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b6; --line: #333c48;
  --paper: #12161c; --card: #1b2129; --old: #6b7787; --new: #6cb0ff; --good: #56c886;
  --bad: #f0877b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 8px; }
h2 { font-size: 1.15rem; margin: 40px 0 12px; }
p { margin: 0 0 12px; } .soft { color: var(--soft); }
.cards, .pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr));
  gap: 20px; }
.cards { margin-top: 24px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 18px 20px; }
.card .big { font-size: 2rem; font-weight: 650; line-height: 1.2;
  font-variant-numeric: tabular-nums; }
.card .was { color: var(--soft); font-weight: 400; }
.good { color: var(--good); } .bad { color: var(--bad); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 7px 12px 7px 0; border-bottom: 1px solid var(--line);
  vertical-align: baseline; }
th { color: var(--soft); font-weight: 500; font-size: .875rem; }
td.n, th.n { text-align: right; padding: 7px 0 7px 12px; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
td small { color: var(--soft); font-size: .8rem; display: inline-block; min-width: 6.2em; }
tr.last td { font-weight: 650; } tr.last td small { font-weight: 400; }
.scroll + p { margin-top: 12px; }
table.words { table-layout: fixed; min-width: 460px; } table.words th:last-child { width: 40%; }
tr.group td { padding-top: 18px; color: var(--soft); font-size: .875rem; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 16px; }
figcaption { color: var(--soft); font-size: .875rem; margin-top: 8px; }
@media (max-width: 620px) { td small { display: block; min-width: 0; }
  main { padding: 24px 16px; } table.words { table-layout: auto; min-width: 0;
  font-size: .875rem; } }
svg { display: block; width: 100%; height: auto; }
svg text { font: 13px system-ui, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--soft); }
svg text.strong { fill: var(--ink); font-weight: 600; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px;
  margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .875rem; line-height: 1.7; }
"""


def page(results: Results) -> str:
    """The whole page; every number on it is one of ``results``."""
    pair = results["pair"]
    title = "English–Russian, before and after reranking"
    body = [
        f"<h1>{title}</h1>",
        f'<p class="soft">{pair["source_words"]:,} English and {pair["target_words"]:,} Russian '
        f"word vectors, {pair['seed_pairs']:,} seed pairs, and {pair['test_words']:,} test words "
        "that nothing was fitted to or chosen on.</p>",
        _headlines(results),
        "<h2>Test dictionary</h2>",
        _scores(results),
        '<p class="soft">Per cent of the test words, with 95 % bootstrap intervals. P@1: the first '
        "translation is right; P@5: a right one is among the first five; MRR: mean of 1 / rank of "
        "the first right one.</p>",
        "<h2>How the scores are mixed, and how sure a translation is</h2>",
        f'<div class="pair">{_mixing(results)}{_reliability(results)}</div>',
        *_words(results, "corrected", "Put right by reranking"),
        *_words(results, "spoiled", "Spoiled by reranking"),
        "<h2>Time</h2>",
        _times(results),
        "<h2>Next, with files of your own</h2>",
        f"<pre>{escape(chr(10).join(results['next']))}</pre>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def percent(fraction: float, sign: str = "") -> str:
    return f"{100 * fraction:{sign}.1f}".replace("-", "−")


def _headlines(results: Results) -> str:
    cards = []
    before, after = results["systems"][-2:]
    for direction, title in DIRECTIONS.items():
        gain = results["gain"][direction]["p@1"]
        low, high = gain["interval"]
        counts = results["changes"]["counts"][direction]
        tone = "good" if gain["difference"] >= 0 else "bad"
        cards.append(
            f'<div class="card"><div class="soft">{title}, P@1</div>'
            f'<div class="big"><span class="was">{percent(before[direction]["p@1"])} →</span> '
            f"{percent(after[direction]['p@1'])}</div>"
            f'<div><span class="{tone}">{percent(gain["difference"], "+")} points</span> '
            f'<span class="soft">({percent(low, "+")} to {percent(high, "+")})</span></div>'
            f'<div class="soft">{counts["corrected"]} words put right, '
            f"{counts['spoiled']} spoiled</div></div>"
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _scores(results: Results) -> str:
    head = "".join(f'<th class="n">{title}</th>' for title in METRICS.values())
    rows = [f"<tr><th>System</th>{head}</tr>"]
    for direction, title in DIRECTIONS.items():
        queries = results["systems"][-1][direction]["queries"]
        rows.append(f'<tr class="group"><td colspan="4">{title}, {queries:,} words</td></tr>')
        for system in results["systems"]:
            last = ' class="last"' if system is results["systems"][-1] else ""
            cells = "".join(_score(system[direction], metric) for metric in METRICS)
            rows.append(f"<tr{last}><td>{escape(system['name'])}</td>{cells}</tr>")
    return f'<div class="scroll"><table>{"".join(rows)}</table></div>'


def _score(scores: Results, metric: str) -> str:
    bounds = scores.get(f"{metric}_interval")
    shown = f" <small>{percent(bounds[0])}–{percent(bounds[1])}</small>" if bounds else ""
    return f'<td class="n">{percent(scores[metric])}{shown}</td>'


def _mixing(results: Results) -> str:
    mixture = results["mixture"]
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in mixture["weights"].items())
    share = 1 - mixture["weights"]["csls"]
    return (
        f"<figure>{lambda_picture(mixture['curve'], share)}<figcaption>P@1 on held-out seed words "
        f"as λ, the reranker's share of the score, grows. Chosen on {mixture['queries']:,} words "
        f"kept out of the mapping and the training: λ = {share:.2f} (weights: {escape(weights)})."
        "</figcaption></figure>"
    )


def _reliability(results: Results) -> str:
    found = (results["calibration"] or {}).get("reliability")
    if not found:
        return ""
    return (
        f"<figure>{reliability_picture(found['bins'])}<figcaption>How often a translation of that "
        "stated confidence is right, on held-out seed words; a larger dot stands for more words. "
        f"On average the two are {percent(found['error'])} points apart.</figcaption></figure>"
    )


def _words(results: Results, kind: str, title: str) -> list[str]:
    rows, counts = results["changes"][kind], results["changes"]["counts"]["forward"]
    if not rows:
        return []
    head = "<tr><th>English</th><th>Before</th><th>After</th><th>Test dictionary</th></tr>"
    old, new = ("bad", "good") if kind == "corrected" else ("good", "bad")
    lines = [
        f'<tr><td>{escape(row["word"])}</td><td class="{old}">{escape(row["before"])}</td>'
        f'<td class="{new}">{escape(row["after"])}</td>'
        f'<td class="soft">{escape(", ".join(row["gold"]))}</td></tr>'
        for row in rows
    ]
    shown = f"The {len(rows)} most frequent of {counts[kind]} English words."
    if len(rows) == counts[kind]:
        shown = "All English words of the test dictionary that are."
    return [
        f"<h2>{title}</h2>",
        f'<p class="soft">{shown}</p>',
        f'<div class="scroll"><table class="words">{head}{"".join(lines)}</table></div>',
    ]


def _times(results: Results) -> str:
    rows = [
        f'<tr><td>{escape(what[0].upper() + what[1:])}</td><td class="n">{seconds:.1f} s</td></tr>'
        for what, seconds in results["seconds"].items()
    ]
    total = sum(results["seconds"].values())
    rows.append(f'<tr class="last"><td>Together</td><td class="n">{total:.1f} s</td></tr>')
    return f"<table>{''.join(rows)}</table>"
