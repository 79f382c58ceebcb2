"""What the table of families says about one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stateroom.residency.attention import KvReader, grouped_query
from stateroom.residency.config_fields import Fields
from stateroom.residency.layer_kinds import LayerKind
from stateroom.residency.state_tensors import StateTensor

__all__ = ["Family", "TensorReader"]

_STATED_HEADS = grouped_query()
TensorReader = Callable[[Fields], tuple[StateTensor, ...]]


@dataclass(frozen=True, slots=True)
class Family:
    """One family of models.

    `mechanism` is the recurrence in words; `model_types` the config's own names; `markers` the fields
    that together give the family away where model_type is absent or new; `tensors` reads what one
    recurrent layer keeps; `layers` names the accepted spellings of the layer list, or is the one kind
    that all layers have; `ssm_dtype` is the dtype its kernels always keep the recurrent state in, where
    they do not follow the model's.
    """

    name: str
    mechanism: str
    model_types: tuple[str, ...]
    tensors: TensorReader
    layers: tuple[str, ...] | LayerKind
    markers: tuple[str, ...] = ()
    kv: KvReader = _STATED_HEADS
    ssm_dtype: str | None = None
    attention_is_windowed: bool = False
