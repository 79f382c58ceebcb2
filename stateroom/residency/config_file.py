"""Reading a config.json from a path, and finding the language model's fields inside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from stateroom.residency.config_fields import ConfigError, Fields

__all__ = ["TEXT_SECTIONS", "load_config", "text_fields"]

# Where multimodal wrappers keep the language model, in the order tried.
TEXT_SECTIONS = ("text_config", "llm_config", "language_config")
# Fields that a wrapper may state for its text section; all others count only where they stand.
_OUTER_FIELDS = (
    "model_type", "dtype", "torch_dtype", "mamba_ssm_dtype", "mamba_ssm_cache_dtype", "vocab_size",
    "max_position_embeddings",
)  # fmt: skip


def load_config(path: Path) -> dict[str, object]:
    """The object in a config.json; `Infinity` is accepted, as published configs use it.

    Errors: ConfigError, one sentence, for a file that is missing, is not JSON, or is not an object.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            "--config", str(path), f"the file cannot be read ({reason})", "give the path of a config.json"
        ) from None
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            "--config",
            str(path),
            f"line {error.lineno} is not JSON ({error.msg})",
            "give the config.json as it was published",
        ) from None
    if not isinstance(found, dict):
        raise ConfigError(
            "--config",
            str(path),
            f"it holds a {type(found).__name__}, not an object",
            "give the config.json as it was published",
        )
    return found


def text_fields(config: Mapping[str, object]) -> Fields:
    """The language model's fields: the nested text section where there is one, else the top level."""
    if isinstance(config.get("fields"), Mapping) and "model_type" not in config:
        raise ConfigError(
            "fields",
            sorted(config),
            "this is a wrapper around a config, not a config",
            "pass the object under `fields` instead",
        )
    for section in TEXT_SECTIONS:
        nested = config.get(section)
        if isinstance(nested, Mapping):
            outer = {field: config[field] for field in _OUTER_FIELDS if config.get(field) is not None}
            return Fields({**outer, **{k: v for k, v in nested.items() if v is not None}}, "")
    return Fields(config)
