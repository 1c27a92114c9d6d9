"""LoRA for encoders that are too large to train whole; merged into plain weights in the end."""

from __future__ import annotations

from typing import Any

from blicer.crossencoder.training_settings import TrainingSettings
from blicer.errors import MissingDependency


def add_lora(model: Any, settings: TrainingSettings) -> Any:
    """Freeze the model and add low-rank updates to its linear layers; the head trains whole."""
    try:
        from peft import LoraConfig, TaskType, get_peft_model
    except ImportError as error:
        raise MissingDependency("peft", "training with LoRA (lora_rank)", extra="lora") from error
    import torch

    config = LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=settings.lora_rank,
        lora_alpha=2 * settings.lora_rank,
        lora_dropout=0.0,
        target_modules="all-linear",
    )
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        return get_peft_model(model, config)


def merge_lora(model: Any) -> Any:
    """The plain model with the updates added to its weights."""
    return model.merge_and_unload()
