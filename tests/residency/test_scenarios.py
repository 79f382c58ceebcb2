"""Scenarios S01-S26 where they concern sizing; the services' halves are tested beside the services."""

from __future__ import annotations

import pytest

from stateroom.residency.agreement import agree, numbers_differ_sentence, seats_while_running, truncate_warmup
from stateroom.residency.answer import Bounded, Pending, Unbounded
from stateroom.residency.config_fields import ConfigError
from stateroom.residency.rank_state import StateOptions
from stateroom.residency.sizing import SizingTerms, built_bytes, local_answer, raw_slots
from tests.residency.groups import BF16, QUOTA_BYTES, QWEN_SLOT_BYTES, planned, request, state_terms
from tests.residency.published import config

MIB = 2**20


def test_s01_more_asked_than_fits_is_clamped_with_one_warning() -> None:
    plan = planned(QUOTA_BYTES)
    assert plan.ranks[0].state.slot_bytes == QWEN_SLOT_BYTES
    assert (plan.cap, plan.rows, plan.error) == (339, 340, "")
    clamped = [warning for warning in plan.warnings if "512" in warning]
    assert clamped == ["512 slots are asked and 339 fit: rank 0 limits with 24.86 GiB"]


@pytest.mark.parametrize(
    ("quota", "cap"),
    [
        ("37.50GiB", None),
        ("37.47GiB", 511),
        (513 * QWEN_SLOT_BYTES, None),
        (513 * QWEN_SLOT_BYTES - 1, 511),
    ],
)
def test_s02_a_batch_ceiling_is_no_floor(quota: int | str, cap: int | None) -> None:
    plan = planned(quota)
    assert plan.cap == cap
    assert plan.rows == (cap or 512) + 1


def test_s03_exactly_enough_is_enough() -> None:
    plan = planned(34 * QWEN_SLOT_BYTES, ask=32, reserved_slots=2)
    assert (plan.cap, plan.rows, plan.ranks[0].spare_bytes) == (None, 34, 0)


def test_s04_warm_up_shrinks_and_the_pool_stays_in_its_quota() -> None:
    plan = planned(10 * QWEN_SLOT_BYTES, ask=16)
    assert plan.cap == 9
    assert truncate_warmup([1, 4, 16], plan.agreement.seats) == (1, 4, 9)
    assert plan.rows * plan.ranks[0].state.slot_bytes <= 10 * QWEN_SLOT_BYTES


def test_s05_an_agreement_raises_no_quota() -> None:
    """A rank without attention and one without states agree; each applies at most its own quota."""
    plan = planned(
        "2GiB", "1GiB", name="kimi-linear-48b-a3b", pp_size=2, pp_layers=(26, 1),
        guarantee="full_length", max_seq_len=4096,
    )  # fmt: skip
    assert plan.ranks[1].state.slot_bytes == 0
    for rank in plan.ranks:
        assert built_bytes(rank.terms, rank.rows) <= rank.terms.quota_bytes


def test_s06_min_over_slots_not_over_bytes() -> None:
    first = local_answer(state_terms(100 * MIB, 10 * MIB, 0), 99)
    second = local_answer(state_terms(80 * MIB, 2 * MIB, 0), 99)
    assert agree({0: first, 1: second}, 99).answer == Bounded(10)


def test_s08_s09_an_attention_only_rank_inherits_the_number() -> None:
    """48 recurrent layers on stage 0; the last layer, attention only, is stage 1."""
    plan = planned("2GiB", "2GiB", pp_size=2, pp_layers=(63, 1), ask=1024)
    recurrent, attention = plan.ranks
    assert (recurrent.state.recurrent_layers_count, attention.state.recurrent_layers_count) == (48, 0)
    assert attention.local == Unbounded()
    assert recurrent.local == plan.agreement.answer == Bounded(26)
    assert recurrent.rows == attention.rows == 27  # a ledger of cap rows of zero bytes (rule B3)
    assert attention.spare_bytes == attention.terms.quota_bytes


def test_s09_the_numbers_of_the_scenario() -> None:
    terms = state_terms(2 * 2**30, 39_223_296)
    assert local_answer(terms, 512) == Bounded(53)
    assert agree({0: Bounded(53), 1: Unbounded()}, 512).seats == 53


@pytest.mark.parametrize(
    ("tp_size", "field", "heads"), [(5, "linear_num_value_heads", 48), (3, "linear_num_key_heads", 16)]
)
def test_s11_heads_that_do_not_divide(tp_size: int, field: str, heads: int) -> None:
    with pytest.raises(ConfigError, match=f"{field} is {heads}: .*size {tp_size}"):
        planned(*["24GiB"] * tp_size, tp_size=tp_size)


def test_s12_the_ssm_dtype_and_who_chose_it() -> None:
    automatic = planned(QUOTA_BYTES, options=StateOptions())
    assert automatic.rows == 173
    assert automatic.ranks[0].state.ssm_dtype.source == "config mamba_ssm_dtype"
    assert not [w for w in automatic.warnings if "overrides" in w]
    flagged = planned(QUOTA_BYTES, options=StateOptions(ssm_dtype="bfloat16"))
    assert flagged.rows == 340
    assert flagged.ranks[0].state.ssm_dtype.source == "flag --ssm-dtype"
    assert [w for w in flagged.warnings if "overrides" in w] == [
        "--ssm-dtype bfloat16 overrides float32 (config mamba_ssm_dtype)"
    ]


def test_s12_family_default_then_model_dtype() -> None:
    kimi = planned("24GiB", name="kimi-linear-48b-a3b", options=StateOptions(model_dtype="bf16"))
    assert (kimi.ranks[0].state.ssm_dtype.dtype, kimi.ranks[0].state.conv_dtype.dtype) == (
        "float32",
        "bfloat16",
    )
    assert kimi.ranks[0].state.ssm_dtype.source == "family default of Kimi-Linear and Kimi-K3"
    qwen = planned("24GiB", name="qwen3-next-80b-a3b", options=StateOptions())
    assert qwen.ranks[0].state.ssm_dtype.source == "model dtype (config torch_dtype)"


def test_s13_the_conv_dtype_follows_its_own_flag() -> None:
    plan = planned(QUOTA_BYTES, options=StateOptions(conv_dtype="float16", ssm_dtype="float16"))
    assert {tensor.spec.dtype for tensor in plan.ranks[0].state.layout.tensors} == {"float16"}


def test_s13_a_model_dtype_flag_counts_before_the_config_and_says_so() -> None:
    plan = planned(QUOTA_BYTES, options=StateOptions(model_dtype="float16"))
    assert plan.ranks[0].state.conv_dtype.dtype == "float16"
    assert "--model-dtype float16 overrides bfloat16 (config dtype)" in plan.warnings


@pytest.mark.parametrize(("draft_tokens", "slot_bytes", "rows"), [(0, 78_446_592, 340), (3, 81_395_712, 327)])
def test_s14_draft_tokens_widen_the_conv_window(draft_tokens: int, slot_bytes: int, rows: int) -> None:
    plan = planned(QUOTA_BYTES, options=StateOptions(ssm_dtype="bf16", draft_tokens=draft_tokens))
    assert (plan.ranks[0].state.slot_bytes, plan.rows) == (slot_bytes, rows)


def test_s14_or_are_whole_states_of_their_own_as_declared() -> None:
    options = StateOptions(ssm_dtype="bf16", draft_tokens=3, draft_layout="extra_states")
    state = planned(QUOTA_BYTES, options=options).ranks[0].state
    assert state.auxiliary_bytes == 3 * (state.conv_bytes + state.recurrent_bytes) == 3 * QWEN_SLOT_BYTES
    assert state.slot_bytes == 4 * QWEN_SLOT_BYTES


@pytest.mark.parametrize(("rows", "each", "ask", "sequences"), [(41, 4, 100, 10), (751, 3, 250, 250)])
def test_s15_s18_the_divisor_is_what_a_sequence_really_holds(
    rows: int, each: int, ask: int, sequences: int
) -> None:
    assert planned(rows * QWEN_SLOT_BYTES, ask=ask, sequence_slots=each).sequences == sequences


def test_s16_the_reserved_row_is_counted_once() -> None:
    plan = planned(17 * QWEN_SLOT_BYTES)
    assert (plan.rows, plan.cap) == (17, 16)


def test_s20_what_is_not_asked_for_is_spare() -> None:
    plan = planned(100 * QWEN_SLOT_BYTES, ask=32)
    assert plan.rows == 33
    assert plan.ranks[0].spare_bytes == 67 * QWEN_SLOT_BYTES


def test_s22_one_small_rank_limits_and_the_waste_is_reported() -> None:
    locals_ = {rank: Bounded(n) for rank, n in enumerate((40, 40, 40, 20))}
    assert agree(locals_, 64).limiting_ranks == (3,)
    quotas = [rows * QWEN_SLOT_BYTES // 4 for rows in (41, 41, 41, 21)]
    plan = planned(*quotas, tp_size=4, ask=64)
    assert (plan.cap, plan.agreement.limiting_ranks) == (20, (3,))
    assert sum(rank.unused_slots for rank in plan.ranks) == 60


@pytest.mark.parametrize("quota", [QWEN_SLOT_BYTES - 1, QWEN_SLOT_BYTES])
def test_s23_a_rank_that_affords_nothing_is_one_sentence(quota: int) -> None:
    plan = planned(QUOTA_BYTES, quota, tp_size=1, pp_size=2, pp_layers=(0, 64))
    assert plan.cap == 0
    assert plan.error.startswith("No sequence fits on rank 1: its quota is 0.07 GiB")
    assert f"({2 * QWEN_SLOT_BYTES} bytes)" in plan.error
    assert "\n" not in plan.error
    for word in ("1024 asked", "1 reserved", "--quota of rank 1", "--ssm-dtype"):
        assert word in plan.error


def test_s24_a_model_without_recurrent_layers_is_unbounded_and_has_no_pool() -> None:
    from dataclasses import replace

    from stateroom.residency.model import read_model
    from stateroom.residency.plan import plan_group

    fields = config("granite-4.0-h-1b") | {"layer_types": ["attention"] * 40}
    plan = plan_group(replace(request("1GiB", "1GiB", pp_size=2), model=read_model(fields)))
    assert plan.agreement.answer == Unbounded()
    assert [(rank.local, rank.state.slot_bytes) for rank in plan.ranks] == [(Unbounded(), 0)] * 2


def test_s26_the_cap_is_a_value_of_its_own() -> None:
    """Nothing of the request is changed by the clamp: only `seats` and `rows` carry it."""
    asked = request(3 * QWEN_SLOT_BYTES)
    plan = planned(3 * QWEN_SLOT_BYTES)
    assert plan.cap == 2
    assert plan.request == asked
    assert plan.request.max_batch_size == 512


def test_b1_pending_is_no_number() -> None:
    agreement = agree({0: Bounded(4), 1: Pending("starting")}, 8)
    assert agreement.answer == Pending("waiting for rank 1")


def test_b4_two_numbers_that_differ_are_named() -> None:
    assert numbers_differ_sentence({"pool rows": 340, "ledger rows": 340}) == ""
    sentence = numbers_differ_sentence({"seats": 339, "max_num_seqs": 512})
    assert "seats is 339" in sentence
    assert "max_num_seqs is 512" in sentence


def test_b8_the_cap_falls_to_any_number_and_rises_to_the_rows_built() -> None:
    built = 340
    down = agree({0: Bounded(100)}, 512)
    up = agree({0: Bounded(400)}, 512)
    assert seats_while_running(down, built, 1).seats == 100
    assert seats_while_running(agree({0: Bounded(339)}, 512), built, 1).seats == 339
    beyond = seats_while_running(up, built, 1)
    assert (beyond.seats, beyond.wanted) == (339, 400)
    assert "restart" in beyond.sentence


def test_full_length_is_sized_on_the_longest_sequence() -> None:
    """n = floor(((Q - F) * u - R*S) / (S + K)), tokens = length + extra + draft + 1 in whole pages."""
    plan = planned(
        "80GiB", guarantee="full_length", max_seq_len=8192, extra_tokens=7, page_tokens=64, fixed_bytes=2**30,
        usable_numerator=9, usable_denominator=10,
    )  # fmt: skip
    kv_bytes = (8192 + 64) * 65_536
    terms = plan.ranks[0].terms
    assert terms.kv_sequence_bytes == kv_bytes
    assert plan.cap == (79 * 2**30 * 9 // 10 - QWEN_SLOT_BYTES) // (QWEN_SLOT_BYTES + kv_bytes)
    assert plan.cap == raw_slots(terms)


def test_full_length_bounds_an_attention_only_rank() -> None:
    terms = SizingTerms(10 * 2**30, 0, 1, kv_sequence_bytes=2**30, guarantee="full_length")
    assert local_answer(terms, 64) == Bounded(10)


def test_a_window_bounds_the_kv_of_a_sequence() -> None:
    state = planned("4GiB", name="recurrentgemma-2b", options=BF16).ranks[0].state
    assert state.kv_token_bytes == 8192
    assert state.kv_sequence_bytes(100, 16) == 112 * 8192
    assert state.kv_sequence_bytes(10**6, 16) == 2048 * 8192


def test_full_length_without_any_length_names_the_flag() -> None:
    with pytest.raises(ConfigError, match=r"max_position_embeddings is missing: .*give --max-seq-len"):
        planned("24GiB", name="nemotron-nano-9b-v2", guarantee="full_length")


def test_attention_dp_reserves_a_dummy() -> None:
    plan = planned(QUOTA_BYTES, dp_size=2)
    assert dict(plan.request.reserved_by_name) == {
        "padding (row 0)": 1,
        "dummy of attention data parallelism": 1,
    }
    assert (plan.cap, plan.rows) == (338, 340)


def test_numbers_of_the_design() -> None:
    """Section 5: TP 2 has 680 rows; asked counts the stages in flight."""
    plan = planned(QUOTA_BYTES, QUOTA_BYTES, tp_size=2, ask=1024)
    assert (plan.rows, plan.ranks[0].state.slot_bytes) == (680, 39_223_296)
    assert planned(QUOTA_BYTES, QUOTA_BYTES, pp_size=2).request.asked == 1024
