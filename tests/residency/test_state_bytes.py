"""All 40 published configs, four TP sizes, three dtype choices: equal to the engines' bytes, to the byte."""

from __future__ import annotations

import pytest

from stateroom.residency.config_fields import ConfigError
from stateroom.residency.layout import ALIGNMENT_BYTES
from stateroom.residency.model import read_model
from stateroom.residency.parallel import Parallel
from stateroom.residency.rank_state import RankState, StateOptions, rank_state
from tests.residency.published import DTYPE_CHOICES, MODEL_NAMES, config, engine_bytes

# Query heads that TP does not divide: an error of the KV answer only, the engines' tables replicate silently.
KV_ERRORS = {
    ("granite-4.0-h-1b", 8): ("num_attention_heads", 12),
    ("granite-4.0-h-tiny", 8): ("num_attention_heads", 12),
    ("jamba-reasoning-3b", 8): ("num_attention_heads", 20),
    ("recurrentgemma-2b", 4): ("num_attention_heads", 10),
    ("recurrentgemma-2b", 8): ("num_attention_heads", 10),
}
# The layouts whose tensors are no multiples of 256 bytes; padding is its own field, beside the engines' figures.
PADDED = {
    ("falcon-h1-0.5b", 8): 4608,
    ("falcon-h1-tiny-90m", 4): 3072,
    ("falcon-h1-tiny-90m", 8): 4608,
    ("recurrentgemma-2b", 8): 4608,
}


def _state(name: str, tp_size: int, choice: str) -> RankState:
    ssm, conv = DTYPE_CHOICES[choice]
    options = StateOptions(ssm_dtype=ssm, conv_dtype=conv, model_dtype="bfloat16")
    return rank_state(read_model(config(name)), Parallel(tp_size=tp_size), options)


def test_the_data_is_all_there() -> None:
    assert len(MODEL_NAMES) == 40
    assert set(engine_bytes()) == set(MODEL_NAMES)


@pytest.mark.parametrize("choice", DTYPE_CHOICES)
@pytest.mark.parametrize("name", MODEL_NAMES)
def test_bytes_are_the_engines_bytes(name: str, choice: str) -> None:
    for tp_text, by_choice in engine_bytes()[name]["tp"].items():
        tp_size, expected = int(tp_text), by_choice[choice]
        state = _state(name, tp_size, choice)
        assert len(state.layers) == expected["layers"]
        assert state.recurrent_layers_count == expected["recurrent_layers"]
        assert state.attention_layers_count == expected["attention_layers"]
        assert state.conv_bytes == expected["conv_bytes"]
        assert state.recurrent_bytes == expected["ssm_bytes"]
        assert state.slot_bytes - state.padding_bytes == expected["state_bytes"]
        if (name, tp_size) in KV_ERRORS:
            with pytest.raises(ConfigError) as error:
                _ = state.kv_token_bytes
            field, heads = KV_ERRORS[name, tp_size]
            assert (error.value.field, error.value.value) == (field, heads)
            assert f"size {tp_size}" in str(error.value)
        else:
            assert state.kv_token_bytes == expected["kv_bytes_per_token"]


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_padding_is_its_own_field(name: str) -> None:
    for tp_text in engine_bytes()[name]["tp"]:
        state = _state(name, int(tp_text), "bf16_ssm")
        assert state.padding_bytes == PADDED.get((name, int(tp_text)), 0)
        assert all(tensor.offset_bytes % ALIGNMENT_BYTES == 0 for tensor in state.layout.tensors)
        assert state.slot_bytes % ALIGNMENT_BYTES == 0


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_stages_add_up_to_the_whole_model(name: str) -> None:
    model = read_model(config(name))
    options = StateOptions(model_dtype="bfloat16")
    whole = rank_state(model, Parallel(), options)
    for pp_size in (2, 3, 4):
        stages = [rank_state(model, Parallel(pp_size=pp_size, pp_rank=s), options) for s in range(pp_size)]
        assert sum(stage.slot_bytes for stage in stages) == whole.slot_bytes
        assert sum(stage.kv_token_bytes for stage in stages) == whole.kv_token_bytes
        assert [layer for stage in stages for layer in stage.layers] == list(whole.layers)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_a_tp_that_does_not_divide_is_an_error_with_both_numbers(name: str) -> None:
    model = read_model(config(name))
    with pytest.raises(ConfigError) as error:
        rank_state(model, Parallel(tp_size=7), StateOptions(model_dtype="bfloat16"))
    assert isinstance(error.value.value, int)
    assert error.value.value % 7
    assert str(error.value.value) in str(error.value)
    assert "size 7" in str(error.value)
    assert error.value.field in str(error.value)


def test_groups_that_tp_does_not_divide_are_refused_and_a_single_group_is_replicated() -> None:
    fields = config("nemotron-nano-9b-v2")  # 8 groups, 128 heads
    with pytest.raises(ConfigError, match=r"n_groups is 8: .*size 16"):
        rank_state(read_model(fields), Parallel(tp_size=16), StateOptions(model_dtype="bf16"))
    fields["n_groups"] = 1
    whole, half = (
        rank_state(read_model(fields), Parallel(tp_size=tp), StateOptions(model_dtype="bf16"))
        for tp in (1, 2)
    )
    channels_whole = next(t.spec.shape[0] for t in whole.layout.tensors if t.spec.name == "conv")
    channels_half = next(t.spec.shape[0] for t in half.layout.tensors if t.spec.name == "conv")
    assert channels_half == (channels_whole - 2 * 128) // 2 + 2 * 128


def test_dp_and_cp_replicate_states() -> None:
    model = read_model(config("qwen3.5-27b"))
    alone, dp, cp = (
        rank_state(model, parallel, StateOptions())
        for parallel in (Parallel(), Parallel(dp_size=4), Parallel(cp_size=2))
    )
    assert alone.slot_bytes == dp.slot_bytes == cp.slot_bytes
    assert (Parallel().extra_reserved_slots, Parallel(dp_size=4).extra_reserved_slots) == (0, 1)


def test_one_layout_hash_a_layout() -> None:
    model = read_model(config("qwen3.5-27b"))
    first = rank_state(model, Parallel(tp_size=2, tp_rank=0), StateOptions()).layout
    second = rank_state(model, Parallel(tp_size=2, tp_rank=1), StateOptions()).layout
    other = rank_state(model, Parallel(tp_size=2), StateOptions(ssm_dtype="bf16")).layout
    assert first.hash == second.hash != other.hash
