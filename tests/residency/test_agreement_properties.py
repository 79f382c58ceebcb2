"""Properties of the sums and of the agreement, on random groups (rules B1, B2, B5, B6)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from stateroom.residency.agreement import Agreement, agree, truncate_warmup
from stateroom.residency.answer import Answer, Bounded, Pending, Unbounded
from stateroom.residency.sizing import SizingTerms, built_bytes, local_answer, quota_for, raw_slots

BYTES = st.integers(0, 2**40)
ASKED = st.integers(1, 2000)
ANSWERS: st.SearchStrategy[Answer] = st.one_of(
    st.builds(Pending), st.builds(Unbounded), st.builds(Bounded, st.integers(0, 3000))
)


@st.composite
def terms(draw: st.DrawFn) -> SizingTerms:
    denominator = draw(st.integers(1, 100))
    return SizingTerms(
        quota_bytes=draw(BYTES),
        slot_bytes=draw(st.one_of(st.just(0), st.integers(1, 2**32))),
        reserved_slots=draw(st.integers(0, 4)),
        fixed_bytes=draw(st.integers(0, 2**34)),
        kv_sequence_bytes=draw(st.one_of(st.just(0), st.integers(1, 2**34))),
        usable_numerator=draw(st.integers(1, denominator)),
        usable_denominator=denominator,
        guarantee=draw(st.sampled_from(("state", "full_length"))),
    )


def _slots(answer: Answer, asked: int) -> int:
    return answer.slots_count if isinstance(answer, Bounded) else asked


GROUP = st.lists(terms(), min_size=1, max_size=6)


def _agree(group: list[SizingTerms], asked: int) -> Agreement:
    return agree({rank: local_answer(each, asked) for rank, each in enumerate(group)}, asked)


@given(GROUP, ASKED)
def test_s05_applied_bytes_never_exceed_any_quota(group: list[SizingTerms], asked: int) -> None:
    """Rule B6. A group in which nothing fits builds nothing (rule B7)."""
    agreement = _agree(group, asked)
    if agreement.seats == 0:
        return
    for each in group:
        kv = each if each.guarantee == "full_length" else replace(each, kv_sequence_bytes=0)
        held = each.slot_bytes + kv.kv_sequence_bytes > 0
        assert not held or built_bytes(kv, agreement.rows(each.reserved_slots)) <= each.quota_bytes


@given(terms(), ASKED)
def test_plan_then_build_and_one_more_row_never_fits(each: SizingTerms, asked: int) -> None:
    n = raw_slots(each)
    if n is None:
        assert local_answer(each, asked) == Unbounded()
        return
    if n > 0:
        assert quota_for(each, n) <= each.quota_bytes
    assert quota_for(each, n + 1) > each.quota_bytes


@given(terms(), ASKED)
def test_the_quota_for_so_many_slots_is_the_least(each: SizingTerms, wanted: int) -> None:
    enough = quota_for(each, wanted)
    n = raw_slots(replace(each, quota_bytes=enough))
    assert n is None or n >= wanted
    if n is not None and enough:
        less = raw_slots(replace(each, quota_bytes=enough - 1))
        assert less is not None
        assert less < wanted


@given(terms(), BYTES, ASKED)
def test_the_answer_is_monotone_in_quota(each: SizingTerms, more: int, asked: int) -> None:
    richer = replace(each, quota_bytes=each.quota_bytes + more)
    assert _slots(local_answer(richer, asked), asked) >= _slots(local_answer(each, asked), asked)


@given(terms(), st.integers(1, 2**32), ASKED)
def test_the_answer_is_antitone_in_slot_bytes(each: SizingTerms, more: int, asked: int) -> None:
    heavier = replace(each, slot_bytes=each.slot_bytes + more)
    assert _slots(local_answer(heavier, asked), asked) <= _slots(local_answer(each, asked), asked)


@given(st.dictionaries(st.integers(0, 9), ANSWERS, min_size=1), ASKED, st.randoms(use_true_random=False))
def test_the_order_of_ranks_changes_nothing(answers: dict[int, Answer], asked: int, random: object) -> None:
    shuffled = list(answers.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert agree(dict(shuffled), asked) == agree(answers, asked)


@given(st.dictionaries(st.integers(0, 9), ANSWERS, min_size=1), ASKED)
def test_unbounded_is_the_identity_and_pending_absorbs(answers: dict[int, Answer], asked: int) -> None:
    agreement = agree(answers, asked)
    with_identity = agree({**answers, 10: Unbounded()}, asked)
    assert (with_identity.answer, with_identity.limiting_ranks) == (
        agreement.answer,
        agreement.limiting_ranks,
    )
    absorbed = agree({**answers, 10: Pending()}, asked)
    assert isinstance(absorbed.answer, Pending)
    assert absorbed.seats == 0
    assert 10 in absorbed.limiting_ranks


@given(st.dictionaries(st.integers(0, 9), ANSWERS, min_size=1), ASKED)
def test_s19_the_cap_is_the_min_and_never_above_what_was_asked(
    answers: dict[int, Answer], asked: int
) -> None:
    agreement = agree(answers, asked)
    if any(isinstance(answer, Pending) for answer in answers.values()):
        return
    bounds = [a.slots_count for a in answers.values() if isinstance(a, Bounded)]
    assert agreement.seats == min([asked, *bounds])
    assert isinstance(agreement.answer, Unbounded) == (min([asked, *bounds]) == asked)


@given(st.lists(st.integers(0, 600)), st.integers(0, 512))
def test_warm_up_never_needs_more_than_the_seats(batches: list[int], seats: int) -> None:
    """Rule B5: building every batch in turn takes at most the agreed rows."""
    kept = truncate_warmup(batches, seats)
    assert all(0 < batch <= seats for batch in kept)
    assert all(batch in kept for batch in batches if 0 < batch <= seats)
    assert (seats in kept) == (seats > 0 and any(batch >= seats for batch in batches))
