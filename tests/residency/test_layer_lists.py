"""Every spelling of "which layer is which", and what each of them refuses."""

from __future__ import annotations

from typing import Any

import pytest

from stateroom.residency.config_fields import ConfigError, Fields
from stateroom.residency.layer_kinds import KvKind
from stateroom.residency.layer_lists import SPELLINGS, read_layers
from stateroom.residency.model import read_model
from tests.residency.published import config

LETTERS = {
    (True, KvKind.NONE): "R",
    (False, KvKind.FULL): "A",
    (False, KvKind.WINDOW): "W",
    (True, KvKind.FULL): "B",
    (False, KvKind.NONE): ".",
}

# field, value, further fields, layers -> a letter a layer
CASES: list[tuple[str, Any, dict[str, Any], str]] = [
    ("layer_types", ["linear_attention", "full_attention", "sliding_attention"], {}, "RAW"),
    ("layers_block_type", ["mamba", "hybrid", "moe", "attention", "mlp"], {}, "RB.A."),
    ("hybrid_override_pattern", "M-M*E", {}, "R.RA."),
    ("attn_type_list", [0, 0, 1], {}, "RRA"),
    ("full_attn_idxs", [1], {}, "RAR"),
    ("attn_layer_indices", [0, 2], {}, "ARA"),
    ("hybrid_layer_ids", [1], {}, "RBR"),
    ("attn_layer_period", 3, {"attn_layer_offset": 1}, "RARRAR"),
    ("full_attention_interval", 4, {}, "RRRARRRA"),
    ("layer_group_size", 2, {}, "RARA"),
    ("linear_attn_config", {"kda_layers": [1, 2, 4], "full_attn_layers": [3, 5]}, {}, "RRARA"),
    ("mamba_step", 2, {}, "RARA"),
    ("mamba_step", 8, {}, "RRRA"),  # shorter than half a step: the last layer
    ("_block_types", ["recurrent", "recurrent", "attention"], {}, "RRARR"),
    ("block_types", ["recurrent", "attention"], {}, "RAR"),
]


@pytest.mark.parametrize(("field", "value", "more", "letters"), CASES)
def test_a_spelling(field: str, value: Any, more: dict[str, Any], letters: str) -> None:
    kinds, warnings = read_layers(Fields({field: value, **more}), (field,), len(letters))
    assert "".join(LETTERS[kind.recurrent, kind.kv] for kind in kinds) == letters
    assert warnings == ()


def test_every_spelling_has_a_case() -> None:
    assert {field for field, *_ in CASES} == set(SPELLINGS)


REFUSED: list[tuple[str, Any, dict[str, Any], str]] = [
    (
        "layer_types",
        ["linear_attention"] * 63,
        {},
        r"layer_types is 63: it has 63 entries and num_hidden_layers is 64",
    ),
    (
        "layer_types",
        ["linear_attention"] * 63 + ["rotary"],
        {},
        r"layer_types is 'rotary': no such layer kind",
    ),
    ("hybrid_override_pattern", "M" * 63 + "X", {}, r"hybrid_override_pattern is 'X': no such layer letter"),
    ("attn_type_list", [0] * 63 + [2], {}, r"attn_type_list is 2: 0 is linear and 1 is attention"),
    ("full_attn_idxs", [64], {}, r"full_attn_idxs is 64: the last layer is 63"),
    ("attn_layer_period", 4, {"attn_layer_offset": 4}, r"attn_layer_offset is 4: attn_layer_period is 4"),
    (
        "linear_attn_config",
        {"kda_layers": [1], "full_attn_layers": [65]},
        {},
        r"full_attn_layers is 65: the last",
    ),
    (
        "linear_attn_config",
        {"kda_layers": [1], "full_attn_layers": [2]},
        {},
        r"does not name each of the 64 layers",
    ),
    ("_block_types", [], {}, r"_block_types is \[\]: the cycle is empty"),
    ("layer_types", "linear_attention", {}, r"layer_types is 'linear_attention': a list is needed"),
    ("full_attention_interval", "4", {}, r"full_attention_interval is '4': a whole number"),
]


@pytest.mark.parametrize(("field", "value", "more", "message"), REFUSED)
def test_s25_a_list_that_cannot_be_true(field: str, value: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_layers(Fields({field: value, **more}), (field,), 64)


def test_s25_no_list_at_all_names_the_field() -> None:
    fields = config("qwen3.5-27b")
    del fields["layer_types"], fields["full_attention_interval"]
    with pytest.raises(ConfigError, match="layer_types is missing") as error:
        read_model(fields)
    assert error.value.field == "layer_types"


def test_the_explicit_list_counts_and_a_rule_that_disagrees_is_told() -> None:
    fields = config("qwen3.5-27b")
    fields["full_attention_interval"] = 2
    model = read_model(fields)
    assert model.recurrent_layer_count == 48
    assert model.warnings == (
        "full_attention_interval and layer_types name different layers; layer_types is used",
    )


def test_recurrentgemma_attention_is_a_window() -> None:
    model = read_model(config("recurrentgemma-2b"))
    assert {layer.kv for layer in model.layers} == {KvKind.NONE, KvKind.WINDOW}
    assert model.kv is not None
    assert model.kv.window_tokens == 2048
