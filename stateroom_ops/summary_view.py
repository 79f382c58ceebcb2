"""A replay's summary as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from stateroom_ops.terminal import wide_console

__all__ = ["print_summary"]


def print_summary(summary: Mapping[str, Any]) -> None:
    """Prints it to stdout."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in _lines(summary):
        table.add_row(name, text)
    wide_console().print(table)


def _lines(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    wait, tokens, speed = summary["wait_ms"], summary["tokens"], summary["throughput"]
    clock = "virtual ms" if summary["virtual_time"] else "ms"
    cap = "unbounded" if summary["unbounded"] else f"{summary['cap']} of {summary['asked']} asked"
    lines = [
        ("cap", cap),
        ("", summary["sentence"]),
        *(("", because) for because in summary["limiting_because"]),
        ("requests", f"{summary['finished']} of {summary['requests']} finished{_others(summary)}"),
        ("residents", f"{summary['peak_residents']} at most; {summary['peak_waiting']} waiting at most"),
        (
            "admission wait",
            f"p50 {wait['p50']:,.0f}, p95 {wait['p95']:,.0f}, p99 {wait['p99']:,.0f}, most {wait['max']:,.0f} {clock}",
        ),
        ("waits by reason", _waits(summary["waits_by_reason"], clock)),
        (
            "throughput",
            f"{speed['generated_tokens_per_s']:,.0f} tokens/s, {speed['requests_per_s']:,.1f} requests/s "
            f"({tokens['context']:,} context and {tokens['generated']:,} generated tokens in "
            f"{summary['steps']:,} steps, {summary['real_s']:.1f} s)",
        ),
        ("errors", str(summary["errors"])),
    ]
    lines += [("", sentence) for sentence in summary["error_sentences"]]
    lines += [("event", sentence) for sentence in summary["events"]]
    if summary["trace_file"]:
        lines.append(("trace file", str(summary["trace_file"])))
    return lines


def _others(summary: Mapping[str, Any]) -> str:
    parts = [f"{count} rejected with {reason}" for reason, count in summary["rejected_by_reason"].items()]
    if summary["cancelled"]:
        parts.append(f"{summary['cancelled']} cancelled")
    if summary["recomputed"]:
        parts.append(f"{summary['recomputed']} computed again")
    return "".join(f", {part}" for part in parts)


def _waits(by_reason: Mapping[str, Mapping[str, int]], clock: str) -> str:
    return (
        "; ".join(
            f"{reason} {entry['sequences']:,} sequences, {entry['ms']:,} {clock}"
            for reason, entry in by_reason.items()
        )
        or "nobody waited"
    )
