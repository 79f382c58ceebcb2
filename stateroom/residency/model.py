"""A model's config.json read into what sizing needs: layer kinds, state tensors, KV, dtypes.

read_model(load_config(path)) -> ModelShape
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stateroom.residency.attention import AttentionKv
from stateroom.residency.config_fields import ConfigError, Fields
from stateroom.residency.config_file import load_config, text_fields
from stateroom.residency.dtypes import ConfigDtypes, read_dtypes
from stateroom.residency.families import find_family
from stateroom.residency.families.family import Family
from stateroom.residency.layer_kinds import KvKind, LayerKind
from stateroom.residency.layer_lists import read_layers
from stateroom.residency.state_tensors import StateTensor

__all__ = ["ConfigError", "ModelShape", "load_config", "read_model"]


@dataclass(frozen=True, slots=True)
class ModelShape:
    """One model, before any parallelism.

    `tensors` are those of one recurrent layer, empty where no layer is recurrent. `kv` is None where no
    layer has attention; a fault in its fields is kept as `kv_error` and raised by the KV answer only.
    """

    family: str
    mechanism: str
    model_type: str
    layers: tuple[LayerKind, ...]
    tensors: tuple[StateTensor, ...]
    kv: AttentionKv | None
    kv_error: ConfigError | None
    dtypes: ConfigDtypes
    max_position_embeddings: int | None
    vocab_size: int | None
    warnings: tuple[str, ...]

    @property
    def layer_count(self) -> int:
        """Decoder layers of all kinds."""
        return len(self.layers)

    @property
    def recurrent_layer_count(self) -> int:
        """Layers that pin a state."""
        return sum(layer.recurrent for layer in self.layers)


def read_model(config: Mapping[str, object]) -> ModelShape:
    """The shape of the model in a parsed config.json (a nested text section is found).

    Errors: ConfigError, one sentence with the field, its value and the remedy, for a field that is
    missing or wrong, and for a model of no known family.
    """
    fields = text_fields(config)
    family = find_family(fields)
    layers, warnings = _layers(fields, family)
    kv, kv_error = _kv(fields, family, layers)
    return ModelShape(
        family=family.name,
        mechanism=family.mechanism,
        model_type=fields.text("model_type") if fields.has("model_type") else family.model_types[0],
        layers=layers,
        tensors=family.tensors(fields) if any(layer.recurrent for layer in layers) else (),
        kv=kv,
        kv_error=kv_error,
        dtypes=read_dtypes(fields, family.ssm_dtype, family.name),
        max_position_embeddings=fields.optional_integer("max_position_embeddings"),
        vocab_size=fields.optional_integer("vocab_size"),
        warnings=warnings,
    )


def _layers(fields: Fields, family: Family) -> tuple[tuple[LayerKind, ...], tuple[str, ...]]:
    count = fields.integer("num_hidden_layers")
    if isinstance(family.layers, LayerKind):
        return (family.layers,) * count, ()
    kinds, warnings = read_layers(fields, family.layers, count)
    if family.attention_is_windowed:
        kinds = tuple(
            LayerKind(kind.recurrent, KvKind.WINDOW) if kind.kv is KvKind.FULL else kind for kind in kinds
        )
    return kinds, warnings


def _kv(
    fields: Fields, family: Family, layers: tuple[LayerKind, ...]
) -> tuple[AttentionKv | None, ConfigError | None]:
    if all(layer.kv is KvKind.NONE for layer in layers):
        return None, None
    try:
        kv = family.kv(fields)
    except ConfigError as error:
        return None, error
    if kv.window_tokens is None and any(layer.kv is KvKind.WINDOW for layer in layers):
        return None, ConfigError(
            "sliding_window",
            None,
            "layers with windowed attention keep this many tokens",
            "add it to the config",
        )
    return kv, None
