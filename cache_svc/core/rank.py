"""One rank's core: its local answer, the term it follows, the agreement, and the ledger.

Pure: each call applies one message and returns the effects, or raises Refused and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cache_svc.core.effects import BuildPool, Effect, KeepTerm, ReplaceLeader, Scrub
from cache_svc.core.ledger import Generation, Ledger, Owner, Refusal
from stateroom.residency.agreement import Agreement
from stateroom.residency.answer import Answer, Bounded, Pending
from stateroom.residency.quantity import format_bytes
from stateroom.residency.reasons import ErrorReason, Refused
from stateroom.residency.sizing import SizingTerms, built_bytes, local_answer, raw_slots

__all__ = ["Applied", "BindOrder", "RankCore", "ReleaseOrder"]


@dataclass(frozen=True, slots=True)
class BindOrder:
    """Bind a slot to an owner."""

    slot: int
    owner: Owner


@dataclass(frozen=True, slots=True)
class ReleaseOrder:
    """Release a slot of this ownership."""

    slot: int
    generation: Generation


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one ordered message."""

    sequence_number: int
    refused: tuple[Refusal, ...]
    freed: tuple[int, ...]
    effects: tuple[Effect, ...]


class RankCore:
    """`terms` are this rank's own; `zero_bytes` says that it has no recurrent layers and no pool."""

    def __init__(
        self, boot_id: str, terms: SizingTerms, highest_term: int = 0, highest_leader: str = ""
    ) -> None:
        self.boot_id = boot_id
        self.terms = terms
        self.term = highest_term
        self.leader_boot_id = highest_leader
        self.agreement: Answer = Pending("no agreement was committed here yet")
        self.ledger: Ledger | None = None
        self._next_number = 0  # of the open stream; 0: none is open
        self._building: BuildPool | None = None

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
        if built and n > built:
            return (
                f"{n} sequences would fit and {built} are built: restart this rank to hold more than {built}"
            )
        return f"{n} sequences fit" + ("" if n else ": nothing is admitted until the quota is raised")

    def built_slots(self) -> int:
        """Sequences that the rows that stand can hold; 0 before a commit."""
        return self.ledger.rows - self.ledger.reserved_slots if self.ledger is not None else 0

    def hear_term(self, term: int, leader_boot_id: str) -> tuple[Effect, ...]:
        """Follows the highest term; refuses a lower one and the same one from another (rules D1, D6)."""
        if term < 1 or not leader_boot_id:
            raise Refused(
                ErrorReason.INVALID_REQUEST, f"term {term} of leader {leader_boot_id!r}: both are required"
            )
        if term < self.term:
            raise Refused(
                ErrorReason.STALE_TERM,
                f"term {term} is over, this rank follows term {self.term}: stop leading",
            )
        if term == self.term and self.leader_boot_id not in ("", leader_boot_id):
            raise Refused(
                ErrorReason.TERM_TAKEN,
                f"term {term} belongs to leader {self.leader_boot_id}: take a higher one",
            )
        if (term, leader_boot_id) == (self.term, self.leader_boot_id):
            return ()
        replaced = self._next_number > 0
        self.term, self.leader_boot_id, self._next_number = term, leader_boot_id, 0
        keep: tuple[Effect, ...] = (KeepTerm(term, leader_boot_id),)
        return (*keep, ReplaceLeader(f"term {term} leads now")) if replaced else keep

    def commit(
        self, term: int, leader_boot_id: str, boot_id: str, agreed: Answer, asked: int, reserved_slots: int
    ) -> tuple[Effect, ...]:
        """Takes the agreement. BuildPool in the effects means: allocate, then call `built`."""
        self._check_boot_id(boot_id)
        if isinstance(agreed, Pending) or asked < 1 or reserved_slots < 1:
            raise Refused(
                ErrorReason.INVALID_REQUEST,
                f"an agreement of {agreed} for {asked} asked with {reserved_slots} reserved cannot be built: "
                "commit unbounded or bounded, and reserve at least 1",
            )
        effects = self.hear_term(term, leader_boot_id)
        agreement = Agreement(agreed, asked, ())
        rows = agreement.rows(reserved_slots)
        if isinstance(agreed, Bounded) and not agreed.slots_count:
            raise Refused(ErrorReason.NOTHING_FITS, "an agreement of 0 slots builds nothing: raise the quota")
        self._check_quota(rows, reserved_slots)
        if self.ledger is None:
            self._building = BuildPool(rows, rows * self.terms.slot_bytes)
            self.agreement = agreed
            return (*effects, self._building)
        self._check_rows(rows, reserved_slots)
        self.ledger.resize(agreement.seats)
        self.agreement = agreed
        return effects

    def built(self, build: BuildPool, reserved_slots: int) -> None:
        """The pool stands: the ledger begins."""
        if self.ledger is None:
            self.ledger = Ledger(build.rows, reserved_slots)

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
                f"{reserved_slots} are agreed: restart this rank to build more (rule B8)",
            )

    # ---- the ordered stream ----

    def open_stream(self, term: int, leader_boot_id: str) -> tuple[Ledger, tuple[Effect, ...]]:
        """A leader's stream begins: the ledger goes out first (rule D1). An older stream is replaced."""
        replaces = self._next_number > 0 and term >= self.term
        effects = self.hear_term(term, leader_boot_id)
        if self.ledger is None:
            raise Refused(ErrorReason.NOT_COMMITTED, "no agreement was committed here yet: commit one first")
        self._next_number = 1
        if replaces and not any(isinstance(e, ReplaceLeader) for e in effects):
            effects = (*effects, ReplaceLeader("the leader opened a newer stream"))
        return self.ledger, effects

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
        if (term, leader_boot_id) != (self.term, self.leader_boot_id):
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
