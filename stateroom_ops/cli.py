"""The `stateroom` command. A command's module is loaded when it runs: `plan` and `--help` load neither
torch nor grpc."""

from __future__ import annotations

import importlib

import click

__all__ = ["main"]

# name: (module, attribute, one line for --help)
COMMANDS = {
    "plan": ("stateroom_ops.plan_command", "plan", "How many sequences fit, which rank limits, and why."),
    "up": ("stateroom_ops.up_command", "up", "Start a scheduler and its ranks on this machine."),
    "replay": ("stateroom_ops.replay_command", "replay", "Replay a request trace through a group."),
    "status": (
        "stateroom_ops.status_command",
        "status",
        "The agreed cap, every rank, who holds and who waits.",
    ),
    "why": ("stateroom_ops.why_command", "why", "Why one sequence waits, or waited."),
    "quota": ("stateroom_ops.quota_command", "quota", "Another quota for one rank of a running group."),
    "demo": ("stateroom_ops.demo_command", "demo", "A group of 4 ranks under more load than it holds."),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of a first visit."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads it."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), f"{module}.{attribute} is a {type(command).__name__}"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line each, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="stateroom")
def main() -> None:
    """Admission control and recurrent-state memory for hybrid language models."""


if __name__ == "__main__":
    main()
