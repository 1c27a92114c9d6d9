"""The README.md beside every saved cross-encoder: what it is, how it was made, how to use it."""

from __future__ import annotations

from typing import Any

from blicer.crossencoder.training_settings import TrainingSettings


def model_card(
    encoder: str,
    settings: TrainingSettings,
    training: dict[str, Any] | None,
    details: dict[str, Any] | None = None,
) -> str:
    """Markdown with the front matter that the Hub reads; ``details`` are added as they are."""
    details = details or {}
    languages = [str(tag) for tag in details.get("languages", ())]
    head = ["---", "library_name: sentence-transformers", "pipeline_tag: text-ranking"]
    if languages:
        head += ["language:", *(f"- {tag}" for tag in languages)]
    head += ["tags:", "- cross-encoder", "- bilingual-lexicon-induction", "- blicer", "---"]
    lines = [
        *head,
        "",
        "# A cross-encoder that judges word translations",
        "",
        f"Started from `{encoder}`. Given two words, each in a short template, it gives one logit; "
        "its sigmoid says how much the words look like translations of each other. It was made by "
        "blicer, after Li et al., *Improving Bilingual Lexicon Induction with Cross-Encoder "
        "Reranking* (Findings of EMNLP 2022).",
        "",
        "## Use",
        "",
        "```python",
        "from sentence_transformers import CrossEncoder",
        "",
        'model = CrossEncoder("this folder")',
        "# each word in the template that the model was trained with, such as T15:",
        'model.predict([("cat (english)!", "chat (français)!")])',
        "```",
        "",
        "or `blicer.Reranker.load(folder)`, which gives the same scores faster. Score both orders "
        "of a pair and take the mean; the scores are meant to be mixed with those of aligned word "
        "vectors, not used alone.",
        "",
        "## Training",
        "",
    ]
    if training:
        pairs, steps = training.get("pairs"), training.get("steps")
        lines += [f"Trained on {pairs} text pairs with soft labels in {steps} steps, with:", ""]
    else:
        lines += ["Not trained on any pairs yet. Its settings:", ""]
    lines += ["| setting | value |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in settings.to_dict().items()]
    rest = {name: value for name, value in details.items() if name != "languages"}
    if rest:
        lines += ["", "## Details", "", "| what | value |", "|---|---|"]
        lines += [f"| {name} | {_cell(value)} |" for name, value in rest.items()]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
