"""The admission rules as plain loops over one list: no lanes, no indexes, no counters kept.

Binds are confirmed and rows scrubbed at once, priorities do not age, nobody is preempted.
"""

from __future__ import annotations

from dataclasses import dataclass

UNIT, STEP_TOKENS, CHUNK_TOKENS, TRANSFERS, STARVATION_MS = 16, 64, 48, 2, 50
WEIGHTS = {"a": 2, "b": 1}
SCALE = 1 << 20


@dataclass
class Seq:
    name: str
    kind: str
    prompt: int
    output: int
    demand: int
    priority: int
    tenant: str
    number: int
    state: str = "WAITING"
    computed: int = 0
    last_step: int = 0
    reason: str = ""
    passed_over_ms: int | None = None
    ending: bool = False

    @property
    def order(self) -> tuple[int, int]:
        return (-self.priority, self.number)

    @property
    def lane(self) -> tuple[str, int, str]:
        return ("transfer" if self.kind == "generation_init" else "tokens", self.demand, self.tenant)

    @property
    def holds(self) -> bool:
        return self.state != "WAITING"


def chunk(left_context: int, left_tokens: int) -> int:
    room = min(left_tokens, CHUNK_TOKENS)
    if left_context <= room:
        return left_context
    room = min(room, left_context - 1)
    return max(0, room - room % UNIT)


class NaiveModel:
    def __init__(self, cap: int, asked: int) -> None:
        self.cap, self.asked, self.built = cap, asked, cap
        self.seqs: list[Seq] = []
        self.pending, self.now_ms = False, 0
        self.step = self.completed = self.arrived = 0
        self.left_tokens, self.left_sequences = STEP_TOKENS, asked
        self.granted: list[str] = []
        self.rejected: dict[str, str] = {}
        self.share: dict[str, int] = {}
        self.share_now = 0

    def find(self, name: str) -> Seq:
        return next(s for s in self.seqs if s.name == name)

    def submit(
        self, name: str, kind: str, prompt: int, output: int, demand: int, priority: int, tenant: str
    ) -> None:
        if demand > self.cap:
            self.rejected[name] = "DEMAND_EXCEEDS_CAP"
            return
        if not any(s.tenant == tenant and not s.holds for s in self.seqs):
            self.share[tenant] = max(self.share.get(tenant, 0), self.share_now)
        self.arrived += 1
        self.seqs.append(Seq(name, kind, prompt, output, demand, priority, tenant, self.arrived))

    def end(self, name: str, last_step: int) -> None:
        """Finished or cancelled, in whatever state."""
        seq = self.find(name)
        if seq.state == "WAITING":
            self.seqs.remove(seq)
        elif seq.state in ("TRANSFER_IN", "TRANSFER_OUT") and last_step < 0:
            seq.ending = True  # a cancel in mid-transfer waits for its end
        elif seq.state != "RETIRING":
            seq.state, seq.last_step = "RETIRING", self.step if last_step < 0 else last_step

    def transfer(self, name: str, event: str) -> None:
        seq = self.find(name)
        if event == "started":
            seq.state = "TRANSFER_IN" if seq.state == "GENERATION_INIT" else seq.state
        elif event == "completed" and seq.state in ("GENERATION_INIT", "TRANSFER_IN") and not seq.ending:
            seq.state, seq.computed = "DECODE", seq.prompt
        elif seq.state in ("GENERATION_INIT", "TRANSFER_IN", "TRANSFER_OUT"):
            seq.state, seq.last_step = "RETIRING", self.step

    def suspend(self, name: str, suspended: bool) -> None:
        seq = self.find(name)
        if suspended and seq.state in ("CONTEXT", "DECODE"):
            seq.state = "SUSPENDED"
        elif not suspended and seq.state == "SUSPENDED":
            seq.state = "CONTEXT" if seq.computed < seq.prompt else "DECODE"
            self.seqs.remove(seq)  # its context goes on behind the others'
            self.seqs.append(seq)

    def complete(self, step: int) -> None:
        self.completed = max(self.completed, step)
        self.seqs = [s for s in self.seqs if s.state != "RETIRING" or s.last_step > self.completed]

    def plan(self) -> tuple[int, list[tuple[str, int, int]]]:
        """Decodes and chunks of one step; the room for newcomers is what the next one leaves."""
        decodes = sum(s.state == "DECODE" for s in self.seqs)
        chunks = []
        for seq, tokens in self._chunks(decodes):
            chunks.append((seq.name, seq.computed, tokens))
            seq.computed += tokens
        for seq in self.seqs:
            if seq.state == "CONTEXT" and seq.computed == seq.prompt:
                seq.state = "TRANSFER_OUT" if seq.kind == "context_only" else "DECODE"
        next_decodes = sum(s.state == "DECODE" for s in self.seqs)
        taken = self._chunks(next_decodes)
        self.left_tokens = max(0, STEP_TOKENS - next_decodes - sum(tokens for _, tokens in taken))
        if len(taken) < sum(s.state == "CONTEXT" for s in self.seqs):
            self.left_tokens = 0  # residents first
        self.left_sequences = max(0, self.asked - next_decodes - len(taken))
        return decodes, chunks

    def _chunks(self, decodes: int) -> list[tuple[Seq, int]]:
        left, found = STEP_TOKENS - decodes, []
        for seq in [s for s in self.seqs if s.state == "CONTEXT"]:
            tokens = chunk(seq.prompt - seq.computed, left)
            found += [(seq, tokens)] * (tokens > 0)
            left -= tokens
        return found

    def set_cap(self, cap: int) -> None:
        self.cap = min(cap, self.built)
        for seq in [s for s in self.seqs if not s.holds and s.demand > self.cap]:
            self.rejected[seq.name] = "DEMAND_EXCEEDS_CAP"
            self.seqs.remove(seq)

    # ---- the pass ----

    def admit(self) -> None:
        """Passes until one starts nothing: the last one's reasons stand."""
        count = -1
        while count != len(self.granted):
            count = len(self.granted)
            self._pass()

    def _pass(self) -> None:
        blocked: list[Seq] = []
        barrier = False
        while True:
            waiting = [s for s in self.seqs if not s.holds and s.lane not in [b.lane for b in blocked]]
            if not waiting:
                break
            head = min(waiting, key=lambda s: (self.share[s.tenant], s.order))
            head = min((s for s in waiting if s.lane == head.lane), key=lambda s: s.order)
            reason = "RANK_PENDING" if self.pending else "POLICY_ORDER" if barrier else self.obstacle(head)
            if not reason:
                self._start(head)
                for seq in blocked:
                    if seq.order < head.order and seq.passed_over_ms is None:
                        seq.passed_over_ms = self.now_ms
                continue
            contended = reason in ("RESIDENCY_CAP", "BATCH_LIMIT", "TOKEN_BUDGET")
            others = [b for b in blocked if b.tenant != head.tenant]
            if contended and not barrier and others and head.order < others[0].order:
                reason = "TENANT_SHARE"
            for seq in self.seqs:
                if not seq.holds and seq.lane == head.lane:
                    seq.reason = reason
            blocked.append(head)
            waited = head.passed_over_ms is not None and self.now_ms - head.passed_over_ms >= STARVATION_MS
            barrier = barrier or (contended and not self.pending and waited)

    def obstacle(self, head: Seq) -> str:
        if sum(s.demand for s in self.seqs if s.holds) + head.demand > self.cap and head.demand:
            return "RESIDENCY_CAP"
        if head.kind == "generation_init":
            arriving = sum(s.state in ("GENERATION_INIT", "TRANSFER_IN") and s.demand > 0 for s in self.seqs)
            return "TRANSFER_LIMIT" if arriving >= TRANSFERS else ""
        if self.left_sequences < 1:
            return "BATCH_LIMIT"
        return "" if chunk(head.prompt, self.left_tokens) else "TOKEN_BUDGET"

    def _start(self, head: Seq) -> None:
        self.share_now = max(self.share_now, self.share[head.tenant])
        self.share[head.tenant] += (head.prompt + head.output) * SCALE // WEIGHTS.get(head.tenant, 1)
        if head.kind != "generation_init":
            self.left_tokens -= chunk(head.prompt, self.left_tokens)
            self.left_sequences -= 1
        head.state = "GENERATION_INIT" if head.kind == "generation_init" else "CONTEXT"
        head.passed_over_ms = None
        self.seqs.remove(head)  # context work goes in the order of grants
        self.seqs.append(head)
        self.granted.append(head.name)
