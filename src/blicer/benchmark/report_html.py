"""A report as one HTML page that needs no other file and no network."""

from __future__ import annotations

from html import escape

from blicer.benchmark.report_document import (
    Block,
    Cards,
    Code,
    Document,
    Folded,
    Group,
    Heading,
    Item,
    Pictures,
    Row,
    Table,
    Text,
)
from blicer.benchmark.report_drawing import for_page

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6675; --line: #d9dee6;
  --paper: #ffffff; --card: #f5f7fa; --new: #1f6feb; --good: #1a7f46; --bad: #b4382c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b6; --line: #333c48;
  --paper: #12161c; --card: #1b2129; --new: #6cb0ff; --good: #56c886; --bad: #f0877b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 8px; }
h2 { font-size: 1.3rem; margin: 48px 0 12px; }
h3 { font-size: 1.05rem; margin: 32px 0 10px; }
p { margin: 0 0 12px; max-width: 75ch; overflow-wrap: anywhere; }
a { color: var(--new); }
nav { margin: 16px 0 0; font-size: .9rem; }
nav a { display: inline-block; margin: 0 16px 4px 0; }
.soft { color: var(--soft); font-size: .9rem; } .good { color: var(--good); }
.bad { color: var(--bad); } .strong { font-weight: 650; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(240px, 1fr)); gap: 16px;
  margin: 20px 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 16px 18px; }
.card .big { font-size: 1.75rem; font-weight: 650; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.card .soft { overflow-wrap: anywhere; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr));
  gap: 20px; margin: 16px 0; }
figure { margin: 0; max-width: 560px; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; padding: 12px; }
figcaption { color: var(--soft); font-size: .875rem; margin-top: 8px; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; }
.scroll { overflow-x: auto; margin: 0 0 12px; -webkit-overflow-scrolling: touch; }
.scroll.tall { max-height: 75vh; overflow-y: auto; border: 1px solid var(--line);
  border-radius: 10px; }
table { border-collapse: separate; border-spacing: 0; min-width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: 6px 12px; border-bottom: 1px solid var(--line);
  vertical-align: baseline; }
th { color: var(--soft); font-weight: 500; font-size: .825rem; background: var(--paper);
  white-space: nowrap; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.t { white-space: nowrap; } td.long { min-width: 22ch; overflow-wrap: anywhere; }
td.n small { display: block; color: var(--soft); font-size: .8rem; font-weight: 400; }
td.t small { color: var(--soft); font-size: .8rem; margin-left: .4em; }
td:first-child, th:first-child { position: sticky; left: 0; background: var(--paper); z-index: 1; }
.tall thead th { position: sticky; top: 0; z-index: 2; }
.tall thead th:first-child { z-index: 3; }
tr.group td { padding-top: 18px; color: var(--soft); position: static; }
tbody tr:hover td { background: var(--card); }
th button { all: unset; cursor: pointer; color: inherit; }
th button:focus-visible, input:focus-visible { outline: 2px solid var(--new); }
th[aria-sort=ascending] button::after { content: " ▲"; }
th[aria-sort=descending] button::after { content: " ▼"; }
input { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 6px 12px; width: min(100%, 360px); }
.filter { display: flex; flex-wrap: wrap; gap: 12px; align-items: baseline; margin: 0 0 12px; }
.filter:not(.ready) { display: none; }
details { margin: 16px 0; } summary { cursor: pointer; color: var(--soft); margin-bottom: 8px; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px;
  margin: 0 0 12px; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem;
  line-height: 1.6; }
@media (max-width: 620px) { main { padding: 24px 16px; } th, td { padding: 6px 8px; }
  td:first-child:not(.n) { max-width: 38vw; white-space: normal; } }
"""

# Sorting by a click on a column's name, and rows that have all the words of a filter.
SCRIPT = """
for (const table of document.querySelectorAll('table.sortable')) {
  const body = table.tBodies[0], rows = [...body.rows];
  const texts = rows.map(row => row.textContent.toLowerCase().replaceAll('→', '-'));
  const value = (row, at) => {
    const cell = row.cells[at], number = cell.dataset.value;
    return number === undefined ? cell.textContent : number === '' ? NaN : Number(number);
  };
  table.querySelectorAll('th').forEach((head, at) => head.addEventListener('click', () => {
    const now = head.getAttribute('aria-sort');
    const up = now ? now === 'descending' : !head.classList.contains('n');
    table.querySelectorAll('th').forEach(other => other.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    const sign = up ? 1 : -1;
    const order = [...body.rows].map(row => [value(row, at), row]);
    order.sort(([a], [b]) => {
      if (typeof a === 'string' || typeof b === 'string') {
        return sign * String(a).localeCompare(String(b), 'en', {numeric: true});
      }
      return Number.isNaN(a) - Number.isNaN(b) || sign * (a - b);
    });
    body.append(...order.map(([, row]) => row));
  }));
  const filter = table.closest('section').querySelector('.filter');
  const input = filter.querySelector('input'), count = filter.querySelector('span');
  filter.classList.add('ready');
  const show = () => {
    const words = input.value.toLowerCase().replaceAll('→', '-').split(/\\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, at) => {
      row.hidden = !words.every(word => texts[at].includes(word));
      shown += !row.hidden;
    });
    count.textContent = `${shown} of ${rows.length} rows`;
  };
  input.addEventListener('input', show);
  show();
}
"""

_LONG = 40  # letters; a longer text in a table may break


def page(document: Document) -> str:
    """The whole page."""
    title = escape(document.title)
    links = [
        f'<a href="#part-{at}">{escape(block.text)}</a>'
        for at, block in enumerate(document.blocks)
        if isinstance(block, Heading) and block.level == 2
    ]
    blocks = [_block(block, at) for at, block in enumerate(document.blocks)]
    body = [f"<h1>{title}</h1>", *blocks[:1], f"<nav>{' '.join(links)}</nav>", *blocks[1:]]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + f"\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _block(block: Block, at: int) -> str:
    if isinstance(block, Heading):
        return f'<h{block.level} id="part-{at}">{escape(block.text)}</h{block.level}>'
    if isinstance(block, Text):
        kind = ' class="soft"' if block.soft else ""
        return f"<p{kind}>{escape(block.text)}</p>"
    if isinstance(block, Code):
        return f"<pre>{escape(block.text)}</pre>"
    if isinstance(block, Cards):
        return _cards(block)
    if isinstance(block, Pictures):
        return _pictures(block, at)
    if isinstance(block, Folded):
        summary = f"<summary>{escape(block.title)}</summary>"
        return f"<details>{summary}{_table(block.table)}</details>"
    return _table(block)


def _cards(cards: Cards) -> str:
    shown = []
    for card in cards.cards:
        lines = "".join(f'<div class="soft">{escape(line)}</div>' for line in card.lines)
        tone = f" {card.tone}" if card.tone else ""
        shown.append(
            f'<div class="card"><div class="soft">{escape(card.title)}</div>'
            f'<div class="big{tone}">{escape(card.big)}</div>{lines}</div>'
        )
    return f'<div class="cards">{"".join(shown)}</div>'


def _pictures(pictures: Pictures, at: int) -> str:
    shown = [
        f"<figure>{for_page(one.svg, f'picture-{at}-{place}-')}"
        f"<figcaption>{escape(one.caption)}</figcaption></figure>"
        for place, one in enumerate(pictures.pictures)
    ]
    return f'<div class="pictures">{"".join(shown)}</div>'


def _table(table: Table) -> str:
    names = [_name(name, place, table) for place, name in enumerate(table.head)]
    rows = "\n".join(_row(row, table) for row in table.rows)
    kind = ' class="sortable"' if table.sortable else ""
    inner = f"<table{kind}><thead><tr>{''.join(names)}</tr></thead><tbody>{rows}</tbody></table>"
    if not table.sortable:
        return f'<div class="scroll">{inner}</div>'
    return (
        '<section><div class="filter"><input type="search" aria-label="Show rows with these words" '
        'placeholder="Show rows with: en-fr 5k tuned"><span class="soft"></span></div>'
        f'<div class="scroll tall">{inner}</div></section>'
    )


def _name(name: str, place: int, table: Table) -> str:
    kind = ' class="n"' if place >= table.texts else ""
    shown = f'<button type="button">{escape(name)}</button>' if table.sortable else escape(name)
    return f"<th{kind}>{shown}</th>"


def _row(row: Row | Group, table: Table) -> str:
    if isinstance(row, Group):
        return f'<tr class="group"><td colspan="{len(table.head)}">{escape(row.text)}</td></tr>'
    return f"<tr>{''.join(_cell(one, place, table) for place, one in enumerate(row))}</tr>"


def _cell(item: Item | str, place: int, table: Table) -> str:
    one = Item(item) if isinstance(item, str) else item
    number = place >= table.texts
    kinds = ["n" if number else "long" if len(one.text) > _LONG else "t", one.tone]
    value = ""
    if number and table.sortable:
        value = f' data-value="{"" if one.value is None else repr(float(one.value))}"'
    note = f" <small>({escape(one.note)})</small>" if one.note else ""
    classes = " ".join(kind for kind in kinds if kind)
    return f'<td class="{classes}"{value}>{escape(one.text)}{note}</td>'
