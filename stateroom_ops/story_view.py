"""A story in a few readable lines."""

from __future__ import annotations

from stateroom_ops.story import Holder, Spell, Story

__all__ = ["story_text"]

SPELLS_SHOWN = 4
HOLDERS_SHOWN = 4
LABEL_WIDTH = 10


def story_text(story: Story) -> str:
    """What happened, the cap and who limits it, the place in the queue, the time of each reason, and behind
    whom."""
    lines = [_headline(story)]
    lines += _labelled("cap", [_cap(story)])
    lines += _labelled("queue", [_queue(story)])
    lines += _labelled("waited", _reasons(story))
    lines += _labelled("behind", [_holder(holder) for holder in story.holders[:HOLDERS_SHOWN]])
    hidden = len(story.holders) - HOLDERS_SHOWN
    if hidden > 0:
        lines += _labelled("", [f"and {hidden} more"])
    if story.bind_ms is not None and story.outcome == "admitted":
        lines += _labelled(
            "then", [f"every rank confirmed its slot {_ms(story.bind_ms)} after it was chosen"]
        )
    if story.estimate_ms is not None:
        lines += _labelled("expected", [f"a slot in about {_ms(story.estimate_ms)}"])
    lines += _labelled("source", [story.source])
    return "\n".join(lines)


def _labelled(label: str, texts: list[str]) -> list[str]:
    return [
        f"  {label if number == 0 else '':<{LABEL_WIDTH}}{text}" for number, text in enumerate(texts) if text
    ]


def _headline(story: Story) -> str:
    if story.sentence:
        named = story.sentence.startswith(story.sequence_id)
        return story.sentence if named else f"{story.sequence_id}: {story.sentence}"
    match story.outcome:
        case "":
            return f"{story.sequence_id} still waits, {_ms(story.waited_ms)} so far."
        case "admitted":
            waited = f"after {_ms(story.waited_ms)}" if story.waited_ms else "at once"
            return f"{story.sequence_id} was admitted {waited}."
        case outcome:
            return f"{story.sequence_id}: {outcome} after {_ms(story.waited_ms)}."


def _cap(story: Story) -> str:
    if story.cap is None:
        return f"unbounded; {story.residents} slots were held"
    ranks = ", ".join(str(rank) for rank in story.limiting_ranks)
    plural = "s" if len(story.limiting_ranks) != 1 else ""
    return f"{story.cap} sequences, limited by rank{plural} {ranks}; {story.residents} resident"


def _queue(story: Story) -> str:
    at_arrival = f"{story.position_at_arrival} ahead of it when it arrived"
    return at_arrival if story.position is None else f"{at_arrival}, {story.position} now"


def _reasons(story: Story) -> list[str]:
    """Every stretch where there are few, else the time of each reason, and the first and last stretch."""
    width = max((len(spell.reason) for spell in story.spells), default=0)
    if len(story.spells) <= SPELLS_SHOWN:
        return [_spell(spell, width) for spell in story.spells]
    lines = [f"{_ms(ms):>10}  {reason}" for reason, ms in story.ms_by_reason.items()]
    lines.append(f"from {_ms(story.spells[0].from_ms)} on: {_spell(story.spells[0], 0).lstrip()}")
    lines.append(f"from {_ms(story.spells[-1].from_ms)} on: {_spell(story.spells[-1], 0).lstrip()}")
    return lines


def _spell(spell: Spell, width: int) -> str:
    return f"{_ms(spell.for_ms):>10}  {spell.reason:<{width}}{f'  ({spell.detail})' if spell.detail else ''}"


def _holder(holder: Holder) -> str:
    parts = [holder.state.lower()] if holder.state else []
    if holder.slot is not None:
        parts.append(f"slot {holder.slot}")
    if holder.held_ms is not None:
        parts.append(f"for {_ms(holder.held_ms)}")
    known = f" ({', '.join(parts)})" if parts else ""
    return holder.sequence_id + known


def _ms(ms: int) -> str:
    return f"{ms:,} ms" if ms < 10_000 else f"{ms / 1000:,.1f} s"
