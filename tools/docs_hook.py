"""What mkdocs does to our pages, which are written to be read as plain files too.

Formulas become MathML, so that the site needs no script from elsewhere. README, changelog and other
files outside ``docs/`` become pages, and links to files that are no page become their names.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
FROM_ROOT = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "model-card.md": "src/blicer/lite/README.md",
    "notebook.md": "docs/notebook.ipynb",
}
PAGE_OF = {path: page for page, path in FROM_ROOT.items()}
LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(([^()\s]+)\)")
# Code is left alone: it is matched first.
FORMULA = re.compile(
    r"^```math\n(?P<block>.*?)^```$|^```.*?^```$|(?P<ticks>`+)[^`].*?(?P=ticks)(?!`)"
    r"|(?<![\\\w$])\$(?P<inline>[^$\s](?:[^$]*?[^$\s])?)\$(?![\w$])",
    re.MULTILINE | re.DOTALL,
)
MARK = "formula{}mark"


def on_files(files: Any, config: Any) -> Any:
    for page, path in FROM_ROOT.items():
        text = (ROOT / path).read_text("utf-8")
        if path.endswith(".ipynb"):
            text = from_notebook(json.loads(text))
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place = page.file.src_uri
    folder = posixpath.dirname(FROM_ROOT.get(place, f"docs/{place}"))
    markdown = LINK.sub(lambda found: link(found, folder), markdown)
    page.formulas = []

    def keep(found: re.Match[str]) -> str:
        block, inline = found["block"], found["inline"]
        if block is None and inline is None:
            return found[0]
        page.formulas.append(mathml(block or inline, block is not None))
        mark = MARK.format(len(page.formulas) - 1)
        return f"\n\n{mark}\n\n" if block else mark

    return FORMULA.sub(keep, markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    for number, formula in enumerate(page.formulas):
        mark = MARK.format(number)
        html = html.replace(f"<p>{mark}</p>", formula).replace(mark, formula, 1)
    return html


def mathml(latex: str, display: bool) -> str:
    latex, tag = re.subn(r"\\tag\{\d+\}", "", latex)[0], re.search(r"\\tag\{(\d+)\}", latex)
    made = convert(latex.strip(), display="block" if display else "inline")
    number = f"<span>({tag[1]})</span>" if tag else ""
    return f'<div class="equation">{made}{number}</div>' if display else made


def link(found: re.Match[str], folder: str) -> str:
    """The link as it must be on the site; one that leads out of it is its text."""
    image, text, target = found.groups()
    path, _, anchor = target.partition("#")
    if not path or re.match(r"\w+:", target):
        return found[0]
    path = posixpath.normpath(posixpath.join(folder, path))
    place = PAGE_OF.get(path) or (path[5:] if path.startswith("docs/") else "")
    if place:
        return f"{image}[{text}]({place}{'#' + anchor if anchor else ''})"
    return text if text.startswith("`") else f"{text} (`{path}`)" if text != path else f"`{path}`"


def from_notebook(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown, its outputs below its cells."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            shown = output.get("data", {"text/plain": output.get("text", "")})
            if "text/html" in shown:
                joined = "".join(shown["text/html"])
                table = re.sub(r"<style.*?</style>|\n\s*", "", joined, flags=re.DOTALL)
                parts.append(f'<div class="output">{table}</div>')
            else:
                text = html.escape("".join(shown["text/plain"]).strip(), quote=False)
                parts.append(f'<pre class="output">{text}</pre>')
    return "\n\n".join(parts)
