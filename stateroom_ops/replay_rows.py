"""The sequences that decode, as tensors that change only when one joins or leaves."""

from __future__ import annotations

from dataclasses import dataclass

from stateroom_ops.stamps import Rows, id_hash

__all__ = ["DecodingRows"]


@dataclass(slots=True)
class _Decoding:
    slots: tuple[int, ...]
    joined_at: int  # advances when it joined
    tokens_at_join: int
    ends_at: int  # advances when it has made its last token


class DecodingRows:
    """A sequence takes one row for each of its slots. Cost of a step grows with joins and leaves only."""

    def __init__(self) -> None:
        self._members: dict[str, _Decoding] = {}
        self._advances = 0
        self._ending: dict[int, list[str]] = {}
        self._rows: Rows | None = None
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._members)

    @property
    def rows(self) -> Rows:
        """All rows with the token counts as written last."""
        if self._rows is None:
            self._rows = self._built()
        return self._rows

    @property
    def row_names(self) -> list[str]:
        """The sequence of each row."""
        if self._rows is None:
            self._rows = self._built()
        return self._names

    def join(self, name: str, slots: tuple[int, ...], tokens: int, output_tokens: int) -> None:
        """It decodes `output_tokens` times from the next advance on."""
        ends_at = self._advances + output_tokens
        self._members[name] = _Decoding(slots, self._advances, tokens, ends_at)
        self._ending.setdefault(ends_at, []).append(name)
        self._rows = None

    def leave(self, name: str) -> None:
        """It does not decode any more; unknown ones are ignored."""
        member = self._members.pop(name, None)
        if member is None:
            return
        self._rows = None
        ending = self._ending.get(member.ends_at)  # gone for one that has just ended
        if ending is not None:
            ending.remove(name)

    def advance(self) -> list[str]:
        """Every sequence makes one token; those that have made their last, in the order they joined."""
        rows = self.rows
        self._advances += 1
        rows.counts.add_(1)
        return self._ending.pop(self._advances, [])

    def _built(self) -> Rows:
        slots, hashes, counts = [], [], []
        self._names = []
        for name, member in self._members.items():
            count = member.tokens_at_join + self._advances - member.joined_at
            for slot in member.slots:
                slots.append(slot)
                hashes.append(id_hash(name))
                counts.append(count)
                self._names.append(name)
        return Rows.of(slots, hashes, counts)
