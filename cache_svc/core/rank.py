"""One rank's core: its local answer, the term it follows, the agreement, and the ledger.

Pure: each call applies one message and returns the effects, or raises Refused and changes nothing.
Every message of a leader is preceded by `hear_term`, so that its term is kept before it is obeyed.
"""

from __future__ import annotations

from dataclasses import replace

from cache_svc.core.effects import BuildPool, Effect, KeepTerm, ReplaceLeader, Scrub
from cache_svc.core.ledger import Ledger
from cache_svc.core.orders import Applied, BindOrder, Opening, ReleaseOrder
from cache_svc.core.terms import Leader, is_new
from stateroom.residency.agreement import Agreement
from stateroom.residency.answer import Answer, Bounded, Pending
from stateroom.residency.quantity import format_bytes
from stateroom.residency.reasons import ErrorReason, Refused
from stateroom.residency.sizing import SizingTerms, built_bytes, local_answer, raw_slots

__all__ = ["ROWS_MAX", "RankCore"]

# Nothing else bounds the ledger of a rank without bytes; a check of this many rows takes 0.1 s.
ROWS_MAX = 2**20


class RankCore:
    """`terms` are this rank's own; with 0 bytes a slot it has no recurrent layers, no pool, and a ledger all the same."""

    def __init__(
        self, boot_id: str, terms: SizingTerms, highest_term: int = 0, highest_leader: str = ""
    ) -> None:
        self.boot_id = boot_id
        self.terms = terms
        self.leader = Leader(highest_term, highest_leader)
        self.agreement: Answer = Pending("no agreement was committed here yet")
        self._committing: Answer = self.agreement  # while its pool is being built
        self.ledger: Ledger | None = None
        self._next_number = 0  # of the open stream; 0: none is open

    @property
    def term(self) -> int:
        """Highest term heard and kept; 0: none."""
        return self.leader.term

    # ---- residency ----

    def local(self, asked: int) -> Answer:
        """What this rank affords by itself (rule B1)."""
        if asked < 1:
            raise Refused(ErrorReason.INVALID_REQUEST, f"asked is {asked}: ask for at least 1 sequence")
        return local_answer(self.terms, asked)

    def spare_bytes(self) -> int:
        """Quota that no row takes."""
        rows = self.ledger.rows if self.ledger is not None else 0
        return self.terms.quota_bytes - built_bytes(self.terms, rows)

    def set_quota(self, quota_bytes: int, boot_id: str) -> str:
        """Another quota while running (rule B8); the sentence says what follows. Moves no memory."""
        if boot_id:
            self._check_boot_id(boot_id)
        if quota_bytes < 1:
            raise Refused(
                ErrorReason.INVALID_REQUEST,
                f"a quota of {quota_bytes} bytes affords nothing: give more than 0",
            )
        self.terms = replace(self.terms, quota_bytes=quota_bytes)
        n = raw_slots(self.terms)
        if n is None:
            return "this rank has no recurrent layers: its quota limits nothing"
        built = self.built_slots()
        if built and n > built:  # one rank alone builds no more than the rows that the others have
            return (
                f"{n} sequences would fit and rows for {built} are built: restart all ranks of the group together "
                f"to hold more than {built}"
            )
        return f"{n} sequences fit" + ("" if n else ": nothing is admitted until the quota is raised")

    def built_slots(self) -> int:
        """Sequences that the rows that stand can hold; 0 before a commit."""
        return self.ledger.rows - self.ledger.reserved_slots if self.ledger is not None else 0

    def hear_term(self, term: int, leader_boot_id: str) -> tuple[KeepTerm, ...]:
        """A leader speaks (rules D1, D6). KeepTerm means: persist it, then call `kept`; nothing changed yet."""
        new = is_new(Leader(term, leader_boot_id), self.leader)
        return (KeepTerm(term, leader_boot_id),) if new else ()

    def kept(self, keep: KeepTerm) -> tuple[Effect, ...]:
        """The term is on disk: it is obeyed from now on, and the stream of the old leader ends."""
        self.leader = Leader(keep.term, keep.leader_boot_id)
        replaced, self._next_number = self._next_number > 0, 0
        return (ReplaceLeader(f"term {keep.term} leads now"),) if replaced else ()

    def _check_leads(self, term: int, leader_boot_id: str) -> None:
        unkept = self.hear_term(term, leader_boot_id)
        assert not unkept, f"{unkept} has to be kept before its leader is obeyed (rule D1)"

    def commit(
        self, term: int, leader_boot_id: str, boot_id: str, agreed: Answer, asked: int, reserved_slots: int
    ) -> tuple[BuildPool, ...]:
        """Takes the agreement. BuildPool in the effects means: allocate, then call `built`."""
        self._check_boot_id(boot_id)
        if isinstance(agreed, Pending) or asked < 1 or reserved_slots < 1:
            raise Refused(
                ErrorReason.INVALID_REQUEST,
                f"an agreement of {agreed} for {asked} asked with {reserved_slots} reserved cannot be built: "
                "commit unbounded or bounded, and reserve at least 1",
            )
        self._check_leads(term, leader_boot_id)
        agreement = Agreement(agreed, asked, ())
        rows = agreement.rows(reserved_slots)
        if agreed == Bounded(0) and self.ledger is None:
            raise Refused(ErrorReason.NOTHING_FITS, "an agreement of 0 slots builds nothing: raise the quota")
        if rows > ROWS_MAX:
            raise Refused(
                ErrorReason.INVALID_REQUEST,
                f"{rows} rows ({reserved_slots} reserved) are more than the {ROWS_MAX} a ledger may have: ask for fewer",
            )
        if agreed != Bounded(0):  # a quota below the reserved rows agrees on 0, which takes no more memory
            self._check_quota(rows, reserved_slots)
        if self.ledger is None:
            self._committing = agreed
            return (BuildPool(rows, rows * self.terms.slot_bytes),)
        self._check_rows(rows, reserved_slots)
        self.ledger.resize(agreement.seats)
        self.agreement = agreed
        return ()

    def built(self, build: BuildPool, reserved_slots: int) -> None:
        """The pool stands: the ledger begins, and only now the agreement counts as committed."""
        assert self.ledger is None, "the rows of a rank are built once"
        self.ledger = Ledger(build.rows, reserved_slots)
        self.agreement = self._committing

    def not_built(self, why: str) -> None:
        """The pool could not be allocated: nothing is agreed here."""
        self.agreement = Pending(why)

    def _check_boot_id(self, boot_id: str) -> None:
        if boot_id != self.boot_id:
            raise Refused(
                ErrorReason.WRONG_BOOT_ID,
                f"boot id {boot_id!r} is not that of this process ({self.boot_id}): ask ResidencyQuery again",
            )

    def _check_quota(self, rows: int, reserved_slots: int) -> None:
        """An agreement never raises a rank's quota (rule B6)."""
        needed_bytes = built_bytes(self.terms, rows)
        if needed_bytes > self.terms.quota_bytes:
            raise Refused(
                ErrorReason.QUOTA_EXCEEDED,
                f"{rows} rows ({reserved_slots} reserved) need {needed_bytes} bytes ({format_bytes(needed_bytes)}) and "
                f"the quota is {self.terms.quota_bytes} ({format_bytes(self.terms.quota_bytes)}): agree on fewer slots",
            )

    def _check_rows(self, rows: int, reserved_slots: int) -> None:
        assert self.ledger is not None, "rows are checked before they are built"
        if rows > self.ledger.rows or reserved_slots != self.ledger.reserved_slots:
            raise Refused(
                ErrorReason.NUMBERS_DIFFER,
                f"{self.ledger.rows} rows with {self.ledger.reserved_slots} reserved stand here and {rows} with "
                f"{reserved_slots} are agreed: agree on the rows that stand, or restart all ranks to build more (rule B8)",
            )

    # ---- the ordered stream ----

    def open_stream(self, opening: Opening) -> tuple[Ledger, tuple[Effect, ...]]:
        """A leader's stream begins: the ledger goes out first (rule D1). An older stream is replaced."""
        if opening.rank_boot_id:
            self._check_boot_id(opening.rank_boot_id)
        self._check_leads(opening.term, opening.leader_boot_id)
        if opening.sequence_number or opening.orders_count:
            raise Refused(
                ErrorReason.SEQUENCE_GAP,
                f"the first message has number {opening.sequence_number} and {opening.orders_count} orders: open with "
                "number 0 and no orders, and read the ledger before the first one",
            )
        if self.ledger is None:
            raise Refused(ErrorReason.NOT_COMMITTED, "no agreement was committed here yet: commit one first")
        replaced, self._next_number = self._next_number > 0, 1
        effects = (ReplaceLeader("the leader opened a newer stream"),) if replaced else ()
        return self.ledger, effects

    @property
    def applied_number(self) -> int:
        """Highest order applied on the open stream."""
        return max(0, self._next_number - 1)

    def apply(
        self,
        term: int,
        leader_boot_id: str,
        boot_id: str,
        sequence_number: int,
        releases: tuple[ReleaseOrder, ...],
        binds: tuple[BindOrder, ...],
    ) -> Applied:
        """One ordered message: releases, then binds. A gap or another leader changes nothing (rule D1)."""
        self._check_boot_id(boot_id)
        if Leader(term, leader_boot_id) != self.leader:
            self.hear_term(term, leader_boot_id)  # says STALE_TERM or TERM_TAKEN
            raise Refused(
                ErrorReason.SEQUENCE_GAP, f"term {term} opened no stream here: open one and read the ledger"
            )
        if sequence_number != self._next_number:
            raise Refused(
                ErrorReason.SEQUENCE_GAP,
                f"order {sequence_number} does not follow {self._next_number - 1}: open the stream again and read the ledger",
            )
        assert self.ledger is not None, "a stream was opened before an agreement was committed"
        self._next_number += 1
        refused = []
        scrub = []
        for release in releases:
            refusal = self.ledger.release(release.slot, release.generation)
            if refusal is None:
                scrub.append(release.slot)
            else:
                refused.append(refusal)
        freed: tuple[int, ...] = ()
        if not self.terms.slot_bytes:  # no bytes to clear
            freed = self.scrubbed(tuple(scrub))
            scrub = []
        for bind in binds:
            refusal = self.ledger.bind(bind.slot, bind.owner)
            if refusal is not None:
                refused.append(refusal)
        effects: tuple[Effect, ...] = (Scrub(tuple(scrub)),) if scrub else ()
        return Applied(sequence_number, tuple(refused), freed, effects)

    def scrubbed(self, slots: tuple[int, ...]) -> tuple[int, ...]:
        """Rows are zero: the slots are free again."""
        assert self.ledger is not None, "rows were scrubbed before they were built"
        for slot in slots:
            self.ledger.scrubbed(slot)
        return slots
