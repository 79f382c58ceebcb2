"""A config that cannot be sized: one sentence with the field, its value and the remedy; no silent default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateroom.residency.config_fields import ConfigError
from stateroom.residency.model import load_config, read_model
from stateroom.residency.parallel import Parallel
from stateroom.residency.rank_state import StateOptions, rank_state
from tests.residency.published import MODEL_NAMES, config

# Fields that decide no state byte, or that another one stands in for by the model's own rule.
NOT_NEEDED = {
    "attn_output_gate", "dtype", "torch_dtype", "vocab_size", "max_position_embeddings", "mtp_num_hidden_layers",
    "model_type", "expand", "mamba_expand", "mamba_ssm_dtype", "mamba_ssm_cache_dtype", "mamba_dt_rank",
    "time_step_rank", "token_shift_count", "num_nextn_predict_layers", "mtp_hybrid_override_pattern",
    "mtp_layers_block_type", "full_attention_interval", "layer_types", "conv_dim", "lru_width", "hidden_size",
    "num_attention_heads", "num_key_value_heads", "head_dim", "attention_head_dim", "kv_lora_rank",
    "qk_rope_head_dim", "attention_window_size", "mamba_d_ssm", "mamba_d_head", "intermediate_size",
}  # fmt: skip


def _bytes(fields: dict[str, Any]) -> tuple[int, int]:
    state = rank_state(read_model(fields), Parallel(), StateOptions(model_dtype="bfloat16"))
    return state.slot_bytes, state.recurrent_layers_count


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_a_missing_field_is_named_or_decides_nothing(name: str) -> None:
    """Each field in turn is left out: the bytes stay the same, or the error names a missing field."""
    fields = config(name)
    whole = _bytes(fields)
    for field in fields:
        less = {key: value for key, value in fields.items() if key != field}
        error = _error_of(less)
        if error is not None:
            assert "is missing" in str(error), str(error)
            assert error.remedy in str(error)
            continue
        assert field in NOT_NEEDED, field
        # without its own SSM dtype a config follows the model's
        assert _bytes(less) == whole or field in ("mamba_ssm_dtype", "mamba_ssm_cache_dtype"), field


def _error_of(fields: dict[str, Any]) -> ConfigError | None:
    try:
        _bytes(fields)
    except ConfigError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("linear_num_value_heads", 0, "linear_num_value_heads is 0: a whole number of at least 1"),
        ("linear_num_value_heads", True, "linear_num_value_heads is True"),
        ("linear_conv_kernel_dim", 1, "linear_conv_kernel_dim is 1: a whole number of at least 2"),
        ("linear_key_head_dim", 128.5, "linear_key_head_dim is 128.5"),
        ("mamba_ssm_dtype", "float12", "mamba_ssm_dtype is 'float12': no such dtype"),
        ("num_hidden_layers", None, "num_hidden_layers is missing"),
    ],
)
def test_a_wrong_value_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_model({**config("qwen3.5-27b"), field: value})


def test_an_unknown_model_is_never_taken_for_one_without_state() -> None:
    with pytest.raises(ConfigError, match="model_type is 'brand_new': it is of no known family"):
        read_model({"model_type": "brand_new", "num_hidden_layers": 2, "hidden_size": 8})


def test_a_new_release_of_a_known_family_is_known_by_its_fields() -> None:
    fields = {**config("qwen3.5-27b"), "model_type": "qwen9_text"}
    assert read_model(fields).mechanism == "gated delta net"


@pytest.mark.parametrize("name", ["qwen3.5-27b", "nemotron-h-56b", "falcon-h1-7b"])
def test_a_head_width_that_is_no_rule_of_the_model_is_an_error_of_the_kv_answer_only(name: str) -> None:
    fields = {k: v for k, v in config(name).items() if k not in ("head_dim", "attention_head_dim")}
    state = rank_state(read_model(fields), Parallel(), StateOptions(model_dtype="bf16"))
    assert state.slot_bytes == _bytes(config(name))[0]
    with pytest.raises(ConfigError, match="head_dim is missing"):
        _ = state.kv_token_bytes


def test_widths_that_contradict_each_other_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"mamba_n_heads is 47: .*3072 that mamba_expand states"):
        read_model({**config("granite-4.0-h-1b"), "mamba_n_heads": 47})


def test_an_odd_expand_is_not_used_where_the_width_is_stated() -> None:
    """Falcon-Mamba states expand 16 beside the width 8192 that it has; Nemotron's heads x dim is its width."""
    falcon = config("falcon-mamba-7b")
    assert _bytes(falcon) == _bytes({**falcon, "expand": 2})
    del falcon["intermediate_size"]
    with pytest.raises(ConfigError, match="intermediate_size is missing"):
        read_model(falcon)


def test_the_text_section_of_a_multimodal_config_is_found() -> None:
    inner = {k: v for k, v in config("qwen3.5-27b").items() if k not in ("dtype", "mamba_ssm_dtype")}
    wrapped = {
        "model_type": "qwen3_5", "torch_dtype": "float16", "mamba_ssm_dtype": "float32",
        "text_config": {**inner, "dtype": None}, "vision_config": {"hidden_size": 8},
    }  # fmt: skip
    state = rank_state(read_model(wrapped), Parallel(), StateOptions())
    assert (state.ssm_dtype.dtype, state.conv_dtype.dtype) == ("float32", "float16")
    assert state.conv_dtype.source == "model dtype (config torch_dtype)"


def test_infinity_in_json_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"time_step_limit": [0.0, Infinity], ' + json.dumps(config("mamba2-2.7b"))[1:])
    assert read_model(load_config(path)).recurrent_layer_count == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "the file cannot be read"),
        ('{"a": 1,\n oops}', "line 2 is not JSON"),
        ("[1]", "it holds a list, not an object"),
    ],
)
def test_a_file_that_is_no_config(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=message) as error:
        load_config(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_wrapper_around_a_config_says_what_to_pass() -> None:
    with pytest.raises(ConfigError, match="pass the object under `fields` instead"):
        read_model({"name": "x", "fields": config("qwen3.5-27b")})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tp_size": 0}, "--tp is 0"),
        ({"pp_size": 2, "pp_rank": 2}, "pp rank is 2: ranks are 0 to 1"),
        ({"pp_size": 2, "pp_layers": (1,)}, "it names 1 stages and --pp is 2"),
        ({"pp_size": 2, "pp_layers": (40, 20)}, "it adds up to 60 and the model has 64 layers"),
        ({"pp_size": 65}, "--pp is 65: the model has 64 layers"),
    ],
)
def test_a_layout_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rank_state(read_model(config("qwen3.5-27b")), Parallel(**arguments), StateOptions())


def test_no_dtype_anywhere_is_an_error_with_the_flag_that_helps() -> None:
    with pytest.raises(ConfigError, match=r"dtype is missing: .*--ssm-dtype"):
        rank_state(read_model(config("nemotron-nano-9b-v2")), Parallel(), StateOptions())
