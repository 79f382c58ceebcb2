"""Stamps over strided views of any dtype: every tensor of a row carries them, at both ends."""

from __future__ import annotations

import torch

from stateroom_ops.replay_rows import DecodingRows
from stateroom_ops.stamps import PoolStamps, Rows, id_hash
from tests.ops.fakes import FakePool


def test_every_tensor_of_the_row_is_stamped_and_no_other_row_is_touched() -> None:
    pool = FakePool(4)
    stamps = PoolStamps(pool)
    assert stamps.stamps_count == 2 * 2 * 2  # layers x tensors x both ends
    rows = Rows.of([1, 3], [11, 33], [5, 7])
    stamps.write(rows)
    assert not stamps.wrong(rows)
    for layer in pool.layers.values():
        for view in layer.values():
            assert [bool(view[row].any()) for row in range(4)] == [False, True, False, True]
    assert not pool.bytes[:1280].any()
    assert not pool.bytes[2560:3840].any()


def test_a_stamp_of_another_sequence_or_step_is_found_in_any_layer() -> None:
    for layer in (4, 9):
        for name in ("conv", "recurrent"):
            pool = FakePool(3)
            stamps = PoolStamps(pool)
            rows = Rows.of([1, 2], [11, 22], [5, 7])
            stamps.write(rows)
            pool.layers[layer][name].view(torch.uint8)[2].fill_(255)
            assert stamps.wrong(rows) == [1], (layer, name)
    assert stamps.wrong(Rows.of([1], [11], [6])) == [0]
    assert stamps.wrong(Rows.of([1], [12], [5])) == [0]
    assert stamps.found(1) == (11, 5)


def test_a_clean_row_is_clean_to_its_last_byte() -> None:
    pool = FakePool(2)
    stamps = PoolStamps(pool)
    assert stamps.is_clean(1)
    pool.bytes[-1] = 1
    assert not stamps.is_clean(1)


def test_no_id_hashes_to_the_stamp_of_a_clean_row() -> None:
    assert all(0 < id_hash(f"req-{n}") < 2**31 for n in range(1000))


def test_decoding_rows_count_every_token_and_end_on_time() -> None:
    decoding = DecodingRows()
    decoding.join("a", (1,), 10, 2)
    assert decoding.advance() == []
    decoding.join("b", (2, 3), 20, 1)
    assert sorted(decoding.advance()) == ["a", "b"]
    assert decoding.rows.slots.tolist() == [1, 2, 3]
    assert decoding.rows.counts.tolist() == [12, 21, 21]
    assert decoding.row_names == ["a", "b", "b"]
    decoding.leave("a")
    assert decoding.rows.slots.tolist() == [2, 3]
    assert decoding.rows.counts.tolist() == [21, 21]


def test_one_that_left_and_joined_again_before_any_advance_ends_once() -> None:
    decoding = DecodingRows()
    for slot in (1, 2):
        decoding.leave("a")
        decoding.join("a", (slot,), 10, 1)
    assert decoding.advance() == ["a"]


def test_one_that_left_and_joined_again_ends_by_its_new_count() -> None:
    decoding = DecodingRows()
    decoding.join("a", (1,), 10, 3)
    decoding.advance()
    decoding.leave("a")
    decoding.join("a", (2,), 10, 3)
    assert [decoding.advance() for _ in range(3)] == [[], [], ["a"]]
